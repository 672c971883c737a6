//! The driver of the compaction machine: performs each step and reports its result.
//!
//! No lock on the session is held during a wait, a hook call or a request to a model. Each commit decides again on the
//! current session.

use std::sync::Arc;
use std::time::Duration;

use crate::originals::contents;
use crate::sessions::{CommandOutcome, DryRun, MissingSession, Transaction};
use palimpsest_core::command::{
    AdvanceCompaction, Command, CompactionMessages, Rejection, SkipReason, StartCompaction,
    is_memory_update_running,
};
use palimpsest_core::compaction::{
    CompactionContext, CompactionMachine, CompactionOutcome, CompactionRequest, Preview, Step,
    StepResult, Wait,
};
use palimpsest_core::event::Event;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_store::crash_point;
use tokio::time::Instant;

use super::{CompactionError, hooks, repeat, summarize};
use crate::{Engine, EngineError};

/// The point at which [`Driver::drive`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriveUntil {
    /// The compaction has ended, or waits for the caller's model.
    End,
    /// The same, or the compaction has started and needs its caller no more.
    Started,
}

/// Drives machines on one session.
pub(super) struct Driver<'a> {
    engine: &'a Engine,
    key: &'a SessionKey,
    /// The view that is served before a start. `None` if the caller served it just before.
    view: Option<&'a TargetOverride>,
    /// The copy on which a dry run acts.
    copy: Option<DryRun<'a>>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(engine: &'a Engine, key: &'a SessionKey) -> Self {
        Self {
            engine,
            key,
            view: None,
            copy: None,
        }
    }

    /// Creates a driver for a request. A dry run copies the session.
    pub(super) async fn for_request(
        engine: &'a Engine,
        key: &'a SessionKey,
        request: &CompactionRequest,
        view: Option<&'a TargetOverride>,
    ) -> Result<Self, CompactionError> {
        let mut driver = Self::new(engine, key);
        driver.view = view;
        if request.is_dry_run {
            let copy = engine.sessions.dry_run(key, &MissingSession::Reject);
            driver.copy = Some(copy.await?);
        }
        Ok(driver)
    }

    /// Performs the steps of a machine. `render` builds the caller's result from the session right after the
    /// compaction. Returns `None` if the compaction has started and `until` requires no more.
    pub(super) async fn drive<T>(
        &mut self,
        machine: &mut CompactionMachine,
        until: DriveUntil,
        render: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
    ) -> Result<Option<T>, CompactionError> {
        let (engine, key) = (self.engine, self.key);
        loop {
            if until == DriveUntil::Started && machine.needs_no_caller().is_some() {
                return Ok(None);
            }
            let result = match self.next(machine).await? {
                Step::Wait(wait) => {
                    self.wait(wait).await?;
                    StepResult::Waited
                }
                Step::Estimate(strategy) => {
                    let dry_run = machine.request().estimate(strategy);
                    StepResult::Estimated(Box::pin(self.estimate(dry_run)).await?)
                }
                Step::Load => StepResult::Loaded(compaction_messages(engine, key).await?),
                Step::Summarize(task) => {
                    crash_point("compaction.begun");
                    let summary = Box::pin(summarize::summarize(engine, key, &task)).await;
                    crash_point("compaction.summarized");
                    StepResult::Summarized(summary)
                }
                Step::Preview(end) => StepResult::Previewed(self.preview(end).await?),
                Step::CallHook(request) => {
                    let answer = hooks::call(engine, request);
                    StepResult::HookAnswered(Box::pin(answer).await)
                }
                Step::Start(start) => {
                    let view = self.view;
                    let run = |transaction: &mut Transaction<'_>| begin(transaction, &start, view);
                    match self.commit(machine, run, &render).await? {
                        // `commit` has reported its outcome to the machine already. `happened` must not receive it
                        // twice.
                        None => continue,
                        reply => return Ok(reply),
                    }
                }
                Step::Advance(advance) => {
                    let run = |transaction: &mut Transaction<'_>| {
                        transaction.run(Command::AdvanceCompaction(advance.clone()))
                    };
                    match self.commit(machine, run, &render).await? {
                        None => continue,
                        reply => return Ok(reply),
                    }
                }
                Step::End(outcome) => {
                    let reply = render_now(engine, key, &outcome, render);
                    return Box::pin(reply).await.map(Some);
                }
            };
            machine.happened(result);
        }
    }

    async fn next(&self, machine: &mut CompactionMachine) -> Result<Step, CompactionError> {
        let engine = self.engine;
        let look = |session: &Session| {
            let context = CompactionContext {
                now: engine.sessions.clock().now(),
                has_model: engine.models.is_some(),
                calls_hooks: hooks::is_any_enabled(engine, session),
                // If other processes can write to the log, only the deadline shows that a compaction is orphaned.
                orphaned_before: engine
                    .sessions
                    .log()
                    .is_exclusive()
                    .then_some(engine.started_at),
            };
            machine.next(session, &context)
        };
        let step = match &self.copy {
            Some(copy) => copy.read(look)?,
            None => engine.sessions.read(self.key, look).await?,
        };
        Ok(step.map_err(EngineError::from)?)
    }

    /// Commits a step and reports its outcome. If the step ends the compaction, the caller's result is built before
    /// another call can change the session.
    async fn commit<T>(
        &mut self,
        machine: &mut CompactionMachine,
        run: impl Fn(&mut Transaction<'_>) -> Result<CommandOutcome, Rejection>,
        render: &impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
    ) -> Result<Option<T>, CompactionError> {
        let decide = |transaction: &mut Transaction<'_>| {
            let outcome = run(transaction)?;
            Ok(outcome_of(outcome, transaction))
        };
        let before = &*machine;
        let finish = |session: &Session, outcome: &CompactionOutcome| {
            // `finish` can run several times, for another attempt or after a load of contents. Each run therefore
            // starts from the same machine.
            let mut after = before.clone();
            after.happened(StepResult::Committed {
                outcome: outcome.clone(),
                session: session_if_started(session, outcome)?,
            });
            let reply = after.outcome().map(|outcome| render(session, outcome));
            Ok((reply.transpose()?, after))
        };
        let (reply, after) = if let Some(copy) = &mut self.copy {
            copy.run(decide, finish).await?
        } else {
            let (sessions, missing) = (&self.engine.sessions, &MissingSession::Reject);
            sessions.write(self.key, missing, decide, finish).await?
        };
        // The machine advances only with the commit. A failed write leaves it before the step.
        *machine = after;
        Ok(reply)
    }

    async fn wait(&self, wait: Wait) -> Result<(), CompactionError> {
        match wait {
            Wait::ForMemory { at_most_ms } => {
                let deadline = Instant::now() + Duration::from_millis(at_most_ms);
                let (sessions, draining) = (&self.engine.sessions, &self.engine.draining);
                let has_ended = |session: &Session, now| {
                    (!is_memory_update_running(session, now)).then_some(())
                };
                sessions
                    .until(self.key, deadline, draining, has_ended)
                    .await?;
            }
            Wait::ForEnd(which) => {
                repeat::wait_until_ended(self.engine, self.key, which).await?;
            }
        }
        Ok(())
    }

    /// Returns the tokens that a dry run leaves, or `None` if it has no effect.
    async fn estimate(&self, dry_run: CompactionRequest) -> Result<Option<u64>, CompactionError> {
        let render = |_: &Session, ended: &CompactionOutcome| {
            Ok(match ended.event() {
                Some((_, Event::CompactionFinished(compacted))) => Some(compacted.after_tokens),
                _ => None,
            })
        };
        // The estimate has a copy of its own, so it changes nothing that the request itself decides on.
        let mut driver = Self::for_request(self.engine, self.key, &dry_run, self.view).await?;
        let mut machine = CompactionMachine::new(dry_run);
        let tokens = driver.drive(&mut machine, DriveUntil::End, render).await?;
        Ok(tokens.flatten())
    }

    /// Returns the result that the end of a compaction would have now.
    async fn preview(&self, end: AdvanceCompaction) -> Result<Option<Preview>, CompactionError> {
        let sessions = &self.engine.sessions;
        // The end is decided on a copy, because the hooks that need this preview can still stop the compaction.
        let mut copy = sessions.dry_run(self.key, &MissingSession::Reject).await?;
        let decide = |transaction: &mut Transaction<'_>| {
            let outcome = transaction.run(Command::AdvanceCompaction(end))?;
            Ok(outcome_of(outcome, transaction))
        };
        let ended = copy.run(decide, |_, ended| Ok(ended.clone())).await?;
        let session = Arc::new(copy.into_session()?);
        Ok(match ended {
            CompactionOutcome::Event(event, _)
                if matches!(*event, Event::CompactionFinished(_)) =>
            {
                Some(Preview { session, event })
            }
            _ => None,
        })
    }
}

/// Serves the view if necessary and starts the compaction on it.
fn begin(
    transaction: &mut Transaction<'_>,
    start: &StartCompaction,
    view: Option<&TargetOverride>,
) -> Result<CommandOutcome, Rejection> {
    let expected = start.expected_revision;
    let start = |expected_revision| {
        Command::StartCompaction(StartCompaction {
            expected_revision,
            ..start.clone()
        })
    };
    match view {
        Some(target) => transaction.run_served(target, expected, start),
        None => transaction.run(start(expected)),
    }
}

fn outcome_of(outcome: CommandOutcome, transaction: &Transaction<'_>) -> CompactionOutcome {
    let nothing = CompactionOutcome::Skipped(SkipReason::NothingEligible);
    match outcome {
        CommandOutcome::Answered(revision) => CompactionOutcome::Answered(revision),
        CommandOutcome::Skipped(skip) => CompactionOutcome::Skipped(skip),
        CommandOutcome::Done(None) => nothing,
        // A serve may precede the command, so the event of the compaction is the last one.
        CommandOutcome::Done(Some(revision)) => match transaction.events().last() {
            Some(recorded) => CompactionOutcome::Event(Box::new(recorded.event.clone()), revision),
            None => nothing,
        },
    }
}

/// Returns a copy of the session if a compaction has just started. The summary and the hooks read contents from the
/// copy later, so all contents must be loaded.
fn session_if_started(
    session: &Session,
    outcome: &CompactionOutcome,
) -> Result<Option<Arc<Session>>, ContentNotLoaded> {
    if !matches!(outcome.event(), Some((_, Event::CompactionStarted(_)))) {
        return Ok(None);
    }
    if !session.transcript().is_fully_loaded() {
        return Err(ContentNotLoaded);
    }
    Ok(Some(Arc::new(session.clone())))
}

/// Builds the caller's result from the current session. Loads the whole session only if `render` needs contents.
pub async fn render_now<T>(
    engine: &Engine,
    key: &SessionKey,
    ended: &CompactionOutcome,
    render: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, CompactionError> {
    let look = |session: &Session| render(session, ended);
    // Most replies need no contents, so the whole session is loaded only after the first attempt failed.
    if let Ok(reply) = engine.sessions.read(key, look).await? {
        return Ok(reply);
    }
    let reply = engine.sessions.read_full(key, look).await?;
    reply.map_err(|ContentNotLoaded| {
        CompactionError::from(EngineError::Internal {
            doing: "read a session whole",
            source: None,
        })
    })
}

/// Returns the ids and the messages that a compaction adds besides its summary.
async fn compaction_messages(
    engine: &Engine,
    key: &SessionKey,
) -> Result<CompactionMessages, CompactionError> {
    // The latest user input may have left the view. The compaction then keeps it beside the summary.
    let request = |session: &Session| {
        let at = session.hidden_latest_request()?;
        Some((at, session.transcript().get(at)?.clone()))
    };
    let entry = engine.sessions.read(key, request).await?;
    let request = contents(engine, key, entry.into_iter().collect()).await?;
    let mut id = engine.next_id();
    Ok(CompactionMessages {
        boundary_id: id(),
        summary_id: id(),
        request_message: request.into_iter().next().map(|one| one.message),
        hook_messages: Vec::new(),
    })
}
