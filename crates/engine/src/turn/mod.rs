//! One turn of an agent: new messages are appended, the levels act, and the view is served.
//!
//! A caller passes an intake, which brings its messages into the session, and a function that builds the reply. The
//! intake of messages and summaries is [`AppendInput`]. Requests are converted, and views rendered, by the caller.

mod adopt;
mod append;
mod array_layout;
mod array_reader;
mod find;
#[cfg(test)]
mod find_tests;
mod json_parts;
mod last_used;
mod past;
mod prefix;
mod record;
mod returned;
mod span;
mod sync;
#[cfg(test)]
mod tests;

use std::fmt;

use palimpsest_core::array::summary_tip;
use palimpsest_core::command::{
    CheckThresholds, ClearByRule, ClearResults, ClearTrigger, CollapseSpans, CollapseTrigger,
    Command, Rejection, ServeView, SkipReason,
};
use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest};
use palimpsest_core::effect::FollowUp;
use palimpsest_core::event::{Event, Trigger};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::Block;
use palimpsest_core::policy::{ModelTool, WindowHint};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::summary::summary_in;
use palimpsest_core::tokens::PrefixTokens;
use palimpsest_core::view::{Etag, Provider, Target, TargetOverride};
use tracing::Instrument as _;

pub use self::adopt::Adoption;
pub use self::append::{AppendContent, AppendInput, AppendStatus, Appended, append};
pub use self::array_layout::BodyFields;
pub use self::array_reader::{ArrayPlace, ArrayReader, ComparedArray, ReadArray};
pub use self::find::{UnnamedArray, sync_found};
pub use self::json_parts::JsonParts;
pub use self::last_used::LastOfSessions;
pub use self::prefix::{PrefixPart, PromptPrefix};
pub use self::record::record_response;
pub use self::returned::add_tip;
use self::span::TurnSpan;
pub use self::sync::{FirstStore, SyncInput, SyncedArray, sync};
use crate::Engine;
use crate::call::Deadline;
use crate::change::ChangeResult;
use crate::compaction::{self, CompactionError, DropOutcome, RejectedPrompt, ViewCompaction};
use crate::sessions::{Changed, CommandOutcome, MissingSession, Transaction};
use crate::staging;

/// The options of a turn.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent option of a call"
)]
pub struct TurnCall {
    /// The target of the view. Omitted parts are those of the last call that served the view.
    pub target: TargetOverride,
    /// The etag of the array that the caller has. `None` if the caller has no array in the requested form.
    pub known_etag: Option<Etag>,
    /// The prompt prefix of the next request, if known.
    pub prefix: Option<PromptPrefix>,
    /// True to report open calls as interrupted.
    pub interrupt_open_calls: bool,
    /// True if the caller applies cache edits.
    pub cache_edits: bool,
    /// The permission to compact.
    pub compaction_mode: CompactionMode,
    /// The model for a summary. `None` selects the policy's model.
    pub model: Option<Box<str>>,
    /// Instructions for a summary.
    pub instructions: Option<Box<str>>,
    /// True if the caller's model writes the summary of a compaction that is due.
    pub delegates_summary: bool,
    /// The size of the view at which the caller requests a compaction, in tokens. The caller gets its summary, and may
    /// send the summary in place of the messages before it.
    pub compact_at: Option<u64>,
    /// The rule by which the caller requests level 3.
    pub clear: Option<ClearByRule>,
    /// Set if the provider rejected the last view as too long.
    pub overflow: Option<Overflow>,
    /// True to commit nothing.
    pub dry_run: bool,
    /// The observer of the state before its commit.
    pub before_commit: Option<BeforeCommit>,
}

/// An observer of the state that a turn is about to commit. It is called only if no compaction is due, so the view of
/// this state is the view of the turn.
///
/// The commit can still fail. If another writer commits first, the observer is called again with another state.
pub struct BeforeCommit(Box<dyn Fn(&Session) + Send + Sync>);

impl BeforeCommit {
    /// Creates an observer. It runs under the lock of the session, so it must be fast.
    pub fn new(observe: impl Fn(&Session) + Send + Sync + 'static) -> Self {
        Self(Box::new(observe))
    }
}

impl fmt::Debug for BeforeCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeCommit")
    }
}

/// The permission of a call to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionMode {
    /// The call waits for the compaction, until shortly before its deadline.
    #[default]
    Wait,
    /// The compaction runs in the background.
    Background,
    /// No compaction.
    Never,
}

/// The provider's rejection of a prompt as too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// The number of tokens above the limit, if known.
    pub gap_tokens: Option<u64>,
}

/// A turn that has run.
#[derive(Debug)]
pub struct Turn<T> {
    /// The reply, built from the state after the last commit of the turn.
    pub answer: T,
    /// The result of the original append, if the call is an idempotent repeat.
    pub original: Option<Appended>,
    /// A compaction that was due and whose effect is not in the reply.
    pub omitted: Option<OmittedCompaction>,
}

/// The reason for which a reply does not contain the effect of a compaction that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmittedCompaction {
    /// The call does not permit it.
    NotPermitted,
    /// It continues in the background.
    Running,
    /// The provider rejected the prompt, and nothing can be removed from the view.
    NothingLeft,
}

/// The messages that a call brought into the session.
#[derive(Debug, Clone)]
pub struct Intake {
    /// The outcome of the append.
    pub appended: AppendStatus,
    /// The use of a whole array. `None` if the call brought new messages only.
    pub array: Option<SyncedArray>,
}

impl From<AppendStatus> for Intake {
    fn from(appended: AppendStatus) -> Self {
        Self {
            appended,
            array: None,
        }
    }
}

/// The outcome of a turn, from which the reply is built.
#[derive(Debug, Clone)]
pub struct TurnOutcome {
    /// The outcome of the append.
    pub appended: AppendStatus,
    /// The use of a whole array. `None` if the call brought new messages only.
    pub array: Option<SyncedArray>,
    /// The events with which a whole array removed messages from the view, with their revisions: rewinds, and compactions
    /// of the caller.
    pub removals: Vec<(Revision, Event)>,
    /// The events of levels with their revisions, including the earlier parts of a compaction.
    pub levels: Vec<(Revision, Event)>,
    /// The reason for which level 3 did nothing.
    pub clear_skip: Option<SkipReason>,
    /// The reason for which level 4 did nothing.
    pub collapse_skip: Option<SkipReason>,
    /// The outcome of a compaction that was due.
    pub compacted: Option<CompactionOutcome>,
    /// The event that removed the oldest rounds, if nothing else freed enough.
    pub dropped: Option<(Revision, Event)>,
    /// The tokens of the view before the turn.
    before_tokens: u64,
}

/// Runs a turn. `intake` appends in the transaction. `finish` builds the reply from the state after a commit, and runs
/// again if a compaction has changed the view.
pub async fn turn<T, I: Into<Intake>>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    call: &TurnCall,
    intake: impl Fn(&mut Transaction<'_>) -> Result<I, Rejection>,
    finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<Turn<T>, CompactionError> {
    let span = TurnSpan::begin(key, call);
    let finish = |session: &Session, outcome: &TurnOutcome| {
        let now = engine.sessions.clock().now();
        span.serves(call, (session, outcome), now);
        finish(session, outcome)
    };
    let running = run(engine, key, missing, call, intake, finish);
    let done = running.instrument(span.span().clone()).await;
    span.end();
    done
}

async fn run<T, I: Into<Intake>>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    call: &TurnCall,
    intake: impl Fn(&mut Transaction<'_>) -> Result<I, Rejection>,
    finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<Turn<T>, CompactionError> {
    let sessions = &engine.sessions;
    let decide = |transaction: &mut Transaction<'_>| call.decide(transaction, &intake);
    let decided = |session: &Session, follow_ups: &[FollowUp]| {
        let compacts = |one: &FollowUp| matches!(one, FollowUp::Compact(_));
        if let Some(before_commit) = &call.before_commit
            && !follow_ups.iter().any(compacts)
        {
            (before_commit.0)(session);
        }
    };
    let dry_run = call.dry_run;
    let changed = sessions.run_with_follow_ups(key, missing, dry_run, decide, decided, &finish);
    let Changed {
        decided: outcome,
        mut answer,
        follow_ups,
    } = changed.await?;
    // Follow-ups begin after the commit, when the session is no longer locked, because a compaction waits for models
    // and hooks.
    let mut omitted = None;
    for follow_up in follow_ups {
        match follow_up {
            FollowUp::Compact(trigger) => {
                let compacted = call.compact(engine, key, trigger, &outcome, &finish);
                match Box::pin(compacted).await? {
                    Ok(served) => answer = served,
                    Err(reason) => omitted = Some(reason),
                }
                // The caller cannot send the view, so other work on it is left to the next turn.
                if omitted == Some(OmittedCompaction::NothingLeft) {
                    break;
                }
            }
            FollowUp::StageSpans => staging::begin(engine, key),
            FollowUp::PrepareSummary => compaction::prepare_ahead(engine, key),
        }
    }
    let before = outcome.appended.before();
    Ok(Turn {
        answer,
        original: append::original(sessions, key, before).await?,
        omitted,
    })
}

impl TurnCall {
    /// Returns the target of the view and the window of its model.
    pub fn target(&self, session: &Session) -> (Target, WindowHint) {
        session.target_of(&self.target)
    }

    /// Returns the size of the prompt prefix, counted with the session's estimator.
    pub fn prefix_tokens(&self, session: &Session) -> Option<PrefixTokens> {
        let prefix = self.prefix.as_ref()?;
        Some(prefix.tokens(session.counter()))
    }

    /// Returns true if both the caller and the provider support cache edits.
    pub fn edits_cache(&self, target: &Target) -> bool {
        self.cache_edits && target.provider == Provider::Anthropic
    }

    fn decide<I: Into<Intake>>(
        &self,
        transaction: &mut Transaction<'_>,
        intake: impl Fn(&mut Transaction<'_>) -> Result<I, Rejection>,
    ) -> Result<TurnOutcome, Rejection> {
        // Measured before the append: this is the size of the view that the provider may have rejected.
        let before_tokens = transaction
            .session()
            .map_or(0, |session| session.tokens().tokens);
        let mut outcome = TurnOutcome::new(intake(transaction)?.into(), before_tokens);
        if transaction.session().is_none() {
            return Ok(outcome);
        }
        if outcome.array.is_some() {
            outcome.removals = transaction.events_of(removes_messages);
        }
        // Pending messages have no pieces, and the levels act on pieces. The thresholds are checked last, on the view
        // that the levels leave.
        self.serve(transaction)?;
        let is_cleared = self.clear_by_rule(transaction)?;
        if !is_cleared {
            outcome.clear_skip = self.clear(transaction)?;
        }
        // An idempotent repeat does not handle a rejected prompt again.
        let prompt_was_rejected = self.overflow.is_some() && outcome.appended.now().is_some();
        outcome.collapse_skip = collapse(transaction, prompt_was_rejected)?;
        transaction.run(Command::CheckThresholds(CheckThresholds {
            prompt_was_rejected,
            compact_at: self.compact_at,
            waits_for_lower_cost: self.waits_for_lower_cost(),
        }))?;
        outcome.levels = transaction.events_of(is_level_event);
        Ok(outcome)
    }

    /// Serves the view: its pending messages get pieces and are sealed.
    fn serve(&self, transaction: &mut Transaction<'_>) -> Result<(), Rejection> {
        let Some(session) = transaction.session() else {
            return Ok(());
        };
        let (target, window) = self.target(session);
        // The command runs even if nothing is pending. It records another window or prompt prefix, against which the
        // levels measure the view.
        transaction.run(Command::ServeView(ServeView {
            target,
            window,
            prefix: self.prefix_tokens(session),
            interrupt_open_calls: self.interrupt_open_calls,
            offers_snip: self.offers_snip(session),
        }))?;
        Ok(())
    }

    /// Returns true if the tools of the request contain the one that snips turns. `None` if the call does not contain the
    /// tools.
    fn offers_snip(&self, session: &Session) -> Option<bool> {
        let name = session.policy().model_tools.name_of(ModelTool::Snip);
        match (name, &self.prefix) {
            (None, _) => Some(false),
            (Some(name), Some(prefix)) => prefix.has_tool(&name),
            (Some(_), None) => None,
        }
    }

    /// Returns true if a compaction may reduce the cost of the session. It uses session memory, so a caller that chooses
    /// the model or the instructions of a summary cannot have it.
    fn waits_for_lower_cost(&self) -> bool {
        self.compaction_mode == CompactionMode::Wait
            && self.model.is_none()
            && self.instructions.is_none()
    }

    /// Clears old results by the rule of the caller (level 3). Returns true if any were cleared.
    fn clear_by_rule(&self, transaction: &mut Transaction<'_>) -> Result<bool, Rejection> {
        let Some(rule) = &self.clear else {
            return Ok(false);
        };
        let outcome = transaction.run(Command::ClearByRule(rule.clone()))?;
        Ok(matches!(outcome, CommandOutcome::Done(Some(_))))
    }

    /// Clears old results (level 3). Returns the reason if the level did nothing.
    fn clear(&self, transaction: &mut Transaction<'_>) -> Result<Option<SkipReason>, Rejection> {
        let place = transaction.session().and_then(|session| {
            let (target, _) = self.target(session);
            let edits_cache = self.edits_cache(&target);
            edits_cache.then(|| session.last_array_position(&target, self.known_etag))
        });
        let clear = ClearResults {
            trigger: ClearTrigger::Auto {
                cache_edits: place.is_some(),
                last: place.flatten(),
            },
            expected_revision: None,
            request: None,
        };
        let outcome = transaction.run(Command::ClearResults(clear))?;
        Ok(match outcome {
            CommandOutcome::Skipped(skip) => Some(skip),
            CommandOutcome::Done(_) | CommandOutcome::Answered(_) => None,
        })
    }

    /// Compacts the view, as far as the mode of the call permits, and serves it again.
    async fn compact<T>(
        &self,
        engine: &Engine,
        key: &SessionKey,
        trigger: Trigger,
        outcome: &TurnOutcome,
        finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
    ) -> Result<Result<T, OmittedCompaction>, CompactionError> {
        let request = CompactionRequest {
            model: self.model.clone(),
            instructions: self.instructions.clone(),
            // A rejected prompt cannot wait for the caller's model.
            is_delegated: self.delegates_summary && trigger == Trigger::Auto,
            // Session memory that is behind keeps recent messages word for word. The view would soon be as large again.
            max_memory_view_tokens: self.compact_at.map(|at| at / 2),
            ..CompactionRequest::new(trigger)
        };
        match self.compaction_mode {
            CompactionMode::Never => return Ok(Err(OmittedCompaction::NotPermitted)),
            CompactionMode::Background => {
                compaction::begin_in_background(engine, key, request);
                return Ok(Err(OmittedCompaction::Running));
            }
            CompactionMode::Wait => {}
        }
        let overflow = self.overflow.filter(|_| trigger == Trigger::PromptTooLong);
        let rejected = overflow.map(|overflow| RejectedPrompt {
            view_tokens: outcome.before_tokens,
            gap_tokens: overflow.gap_tokens,
        });
        let deadline = Deadline::current();
        let made = compaction::compact_view(engine, key, request, rejected, deadline).await?;
        let Some(made) = made else {
            return Ok(Err(OmittedCompaction::Running));
        };
        if matches!(made.dropped, DropOutcome::NothingLeft) {
            return Ok(Err(OmittedCompaction::NothingLeft));
        }
        let outcome = outcome.clone().with(made);
        // The compaction has committed and may have changed the view, so the view is served again. Its thresholds are
        // not checked again.
        let serve = |transaction: &mut Transaction<'_>| {
            self.serve(transaction)?;
            match outcome.summary().filter(|_| self.compact_at.is_some()) {
                Some(summary) => add_tip(transaction, |session| {
                    Ok(Some(summary_tip(&session.array().lead, summary)))
                }),
                None => Ok(()),
            }
        };
        let finish = |session: &Session, (): &()| finish(session, &outcome);
        let (sessions, missing) = (&engine.sessions, &MissingSession::Reject);
        Ok(Ok(sessions.write(key, missing, serve, finish).await?))
    }
}

impl TurnOutcome {
    /// Creates the outcome of a turn in which no level has run yet.
    fn new(intake: Intake, before_tokens: u64) -> Self {
        Self {
            appended: intake.appended,
            array: intake.array,
            removals: Vec::new(),
            levels: Vec::new(),
            clear_skip: None,
            collapse_skip: None,
            compacted: None,
            dropped: None,
            before_tokens,
        }
    }

    /// Adds the compaction that the call waited for.
    fn with(self, mut made: ViewCompaction) -> Self {
        let compacted = made.rounds.pop();
        let earlier = made.rounds.iter().filter_map(CompactionOutcome::event);
        let earlier = earlier.map(|(revision, event)| (revision, event.clone()));
        Self {
            levels: self.levels.into_iter().chain(earlier).collect(),
            compacted,
            dropped: match made.dropped {
                DropOutcome::Dropped(revision, event) => Some((revision, *event)),
                DropOutcome::NotNeeded | DropOutcome::NothingLeft => None,
            },
            ..self
        }
    }

    /// Returns the summary of a compaction that the call waited for, without its frame.
    pub fn summary(&self) -> Option<&str> {
        let (_, event) = self.compacted.as_ref()?.event()?;
        let Event::CompactionFinished(compaction) = event else {
            return None;
        };
        let added = compaction.messages.iter();
        let mut blocks = added.flat_map(|added| &added.message.blocks);
        blocks.find_map(|block| match block {
            Block::Text { text, .. } => summary_in(text),
            _ => None,
        })
    }

    /// Returns the events that removed content from the view, in order.
    pub fn removed(&self) -> impl Iterator<Item = (Revision, &Event)> {
        self.removals.iter().map(by_reference).chain(self.changes())
    }

    /// Returns the events of levels that changed the view, in order.
    pub fn changes(&self) -> impl Iterator<Item = (Revision, &Event)> {
        let compacted = self.compacted.iter();
        let compacted = compacted.filter_map(CompactionOutcome::event);
        let levels = self.levels.iter().map(by_reference);
        let dropped = self.dropped.iter().map(by_reference);
        levels.chain(compacted).chain(dropped)
    }
}

/// Collapses spans (level 4). Returns the reason if the level did nothing.
fn collapse(
    transaction: &mut Transaction<'_>,
    prompt_was_rejected: bool,
) -> Result<Option<SkipReason>, Rejection> {
    let collapse = CollapseSpans {
        trigger: if prompt_was_rejected {
            CollapseTrigger::Overflow
        } else {
            CollapseTrigger::Auto
        },
        expected_revision: None,
        request: None,
    };
    let outcome = transaction.run(Command::CollapseSpans(collapse))?;
    Ok(match ChangeResult::of(outcome, transaction) {
        ChangeResult::Now(outcome) => outcome.skip(),
        ChangeResult::Answered(_) => None,
    })
}

const fn by_reference((revision, event): &(Revision, Event)) -> (Revision, &Event) {
    (*revision, event)
}

/// Returns true for the events with which a whole array removes messages from the view.
const fn removes_messages(event: &Event) -> bool {
    matches!(
        event,
        Event::SessionRewound(_) | Event::CompactionFinished(_) | Event::ContextRestored(_)
    )
}

const fn is_level_event(event: &Event) -> bool {
    matches!(
        event,
        Event::ResultsPersisted(_)
            | Event::ResultsCleared(_)
            | Event::CacheEditsIssued(_)
            | Event::SpansCollapsed(_)
    )
}
