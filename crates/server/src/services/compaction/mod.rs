//! Level 5 in the server. The summary comes from session memory, a prepared summary, a model, structure or the
//! caller's model, and replaces the messages that it covers.
//!
//! No lock on the session is held while a summary is written.

mod delegate;
mod delegate_result;
mod hooks;
mod input;
mod model;
mod prompt;
mod repeat;
mod rounds;
mod series;
mod smallest;
mod summarise;
mod token;
mod wait_for_memory;

use palimpsest_core::command::{
    AdvanceCompaction, Command, CompactionInput, CompactionMessages, CompactionScope, Rejection,
    ServeView, SkipReason, StartCompaction, SummarySource, SummarySpec, WrittenSummary,
};
use palimpsest_core::event::{CompactionFailureReason, Event, Trigger};
use palimpsest_core::ids::{CompactionKey, Ordinal, Revision, SessionKey};
use palimpsest_core::message::Usage;
use palimpsest_core::session::{
    CompactionHooks, ContentNotLoaded, RequestStamp, Session, Strategy,
};
use palimpsest_proto::context::v1;
use palimpsest_store::crash_point;

pub(super) use self::delegate::{Delegated, DelegatedBody, request};
pub(super) use self::delegate_result::{Brought, DelegateAnswer, commit};
pub(super) use self::hooks::refusal;
pub(super) use self::repeat::outcome;
pub(super) use self::series::{in_rounds, rest};
pub(super) use self::token::Wish;
use palimpsest_engine::sessions::{CommandOutcome, MissingSession, Transaction};

use super::Service;
use super::append::expected;
use super::originals::contents;
use crate::convert;
use crate::errors::ServiceError;

/// The parameters of a requested compaction.
#[derive(Debug, Clone)]
pub(super) struct CompactionRequest {
    pub(super) trigger: Trigger,
    /// `None` selects the strategy by policy and server configuration.
    pub(super) strategy: Option<Strategy>,
    pub(super) scope: CompactionScope,
    /// The model for the summary. `None` selects the policy's model.
    pub(super) model: Option<String>,
    /// Instructions for this summary. Session memory was written without them.
    pub(super) instructions: Option<String>,
    pub(super) expected_revision: Option<Revision>,
    pub(super) request: Option<RequestStamp>,
    pub(super) dry_run: bool,
    pub(super) when: WaitMode,
    /// The target whose pending messages are served first. `None` if the caller served the view just before.
    pub(super) view: Option<OwnView>,
    /// True if session memory is too far behind, so that another summary leaves a smaller view.
    pub(super) skips_memory: bool,
}

/// The target whose view a call acts on. Pending messages of the view are served first, because no call may have
/// prepared it yet.
#[derive(Debug, Clone)]
pub(super) struct OwnView(pub(super) Option<v1::Target>);

impl OwnView {
    pub(super) fn serve(&self, session: &Session) -> ServeView {
        let last = session.last_served();
        let (target, window) = convert::target(self.0.clone(), last)
            .unwrap_or_else(|_| (last.target.clone(), last.window));
        ServeView {
            target,
            window,
            ..ServeView::default()
        }
    }
}

/// The way in which the result of a compaction reaches the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitMode {
    /// The caller waits for the outcome, which is in the reply.
    Waited,
    /// The caller does not wait. The outcome is an event.
    Background,
    /// The summary is prepared before the threshold is reached. No caller waits for it.
    Ahead,
}

impl CompactionRequest {
    /// Returns the compaction that `PrepareContext` starts when the view reaches its threshold.
    pub(super) fn automatic(asked: Trigger) -> Self {
        Self {
            trigger: asked,
            strategy: None,
            scope: CompactionScope::Whole,
            model: None,
            instructions: None,
            expected_revision: None,
            request: None,
            dry_run: false,
            when: WaitMode::Waited,
            view: None,
            skips_memory: false,
        }
    }

    /// Returns the request for a prepared summary at the warning threshold. Only a model may write it.
    fn ahead() -> Self {
        Self {
            strategy: Some(Strategy::Model),
            when: WaitMode::Ahead,
            ..Self::automatic(Trigger::Auto)
        }
    }

    /// Returns true if a summary that was written independently of this call may be used.
    fn takes_any(&self) -> bool {
        let as_is = self.instructions.is_none() && self.model.is_none();
        as_is && self.scope == CompactionScope::Whole && self.when != WaitMode::Ahead
    }

    /// Returns true if session memory may be used as the summary.
    fn takes_memory(&self) -> bool {
        let fits = matches!(self.strategy, None | Some(Strategy::SessionMemory));
        fits && self.takes_any() && !self.skips_memory
    }

    /// Returns the start command of a compaction whose summary exists.
    fn start(&self, source: SummarySource, expected_revision: Option<Revision>) -> Command {
        Command::StartCompaction(StartCompaction {
            expected_revision,
            request: self.request.clone(),
            ..StartCompaction::new(self.trigger, source)
        })
    }

    /// Serves the view if necessary and runs a command on it. `command` receives the revision that it must expect.
    fn run(
        &self,
        transaction: &mut Transaction<'_>,
        command: impl FnOnce(Option<Revision>) -> Command,
    ) -> Result<CommandOutcome, Rejection> {
        let expected = expected(self.expected_revision, transaction)?;
        let view = self.view.as_ref();
        let serve = view.zip(transaction.session());
        match serve.map(|(view, session)| view.serve(session)) {
            Some(serve) => transaction.run_served(serve, expected, command),
            None => transaction.run(command(expected)),
        }
    }
}

/// The outcome of a compaction.
#[derive(Debug, Clone)]
pub(super) enum CompactionOutcome {
    /// The event that ended the compaction, and its revision.
    Event(Box<Event>, Revision),
    /// Nothing was eligible, or the compaction was not allowed to start.
    Skipped(SkipReason),
    /// An idempotent repeat. The event with this revision answered the original call.
    Before(Revision),
    /// The compaction is still running.
    Running(CompactionKey),
}

impl CompactionOutcome {
    /// Returns the event and its revision, if the compaction has ended with one.
    pub(super) fn event(&self) -> Option<(Revision, &Event)> {
        match self {
            Self::Event(event, revision) => Some((*revision, &**event)),
            Self::Skipped(_) | Self::Before(_) | Self::Running(_) => None,
        }
    }

    /// Returns true if an existing summary does not help and another strategy may.
    fn is_of_no_use(&self) -> bool {
        matches!(
            self,
            Self::Skipped(SkipReason::NothingEligible | SkipReason::TooLittleGain)
        )
    }
}

/// Compacts a session. `tell` builds the caller's result from the session after the compaction.
pub(super) async fn compact<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    tell: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, ServiceError> {
    // An orphaned compaction would block this one until its deadline.
    if !wanted.dry_run {
        Box::pin(repeat::expire_orphaned(service, key)).await?;
    }
    let wanted = &Box::pin(smallest::choose(service, key, wanted)).await?;
    // With hooks, an existing summary needs two steps, start and end, because the hooks run between them. Without
    // hooks, one transaction does both.
    let ready = if hooks::have_a_say(service, key, wanted).await? {
        Box::pin(hooks::begin_ready(service, key, wanted)).await?
    } else if let Some(told) = Box::pin(at_once(service, key, wanted, &tell)).await? {
        return Ok(told);
    } else {
        None
    };
    let begun = match ready {
        Some(begun) => begun,
        None => Box::pin(begin(service, key, wanted)).await?,
    };
    let mut job = match begun {
        StartOutcome::Ended(ended) => return Box::pin(tell_now(service, key, &ended, tell)).await,
        StartOutcome::Job(job) => job,
    };
    if !wanted.dry_run {
        let running = CompactionOutcome::Running(job.key);
        // A delegated compaction ends in `CommitSummary`. The hook runs now because it may veto or add
        // instructions.
        if job.strategy == Strategy::Delegated {
            if let Some(call) = Box::pin(hooks::before(service, key, &mut job)).await? {
                let end = hooks::stop(job.key, None, call);
                return Box::pin(conclude(service, key, None, end, tell)).await;
            }
            return Box::pin(tell_now(service, key, &running, tell)).await;
        }
        if wanted.when == WaitMode::Background {
            let (inner, name, wanted) = (service.clone(), key.clone(), wanted.clone());
            service.mutations.in_background(async move {
                let done = Box::pin(run(&inner, &name, &wanted, job, |_, _| Ok(()))).await;
                report(&name, done);
            });
            return Box::pin(tell_now(service, key, &running, tell)).await;
        }
    }
    Box::pin(run(service, key, wanted, job, tell)).await
}

/// Writes the summary of a started compaction and ends it.
async fn run<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    mut job: Box<CompactionJob>,
    tell: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, ServiceError> {
    crash_point("compaction.begun");
    let begun_at = service.sessions.clock().now();
    // A dry run calls no hooks, because a hook may have side effects.
    if !wanted.dry_run
        && let Some(call) = Box::pin(hooks::before(service, key, &mut job)).await?
    {
        let end = hooks::stop(job.key, None, call);
        return Box::pin(conclude(service, key, None, end, tell)).await;
    }
    // Session memory and prepared summaries exist already and need no model.
    let summarised = match job.ready.take() {
        Some(ready) => Ok(ready),
        None => summarise::summarise(service, key, &job, wanted).await,
    };
    crash_point("compaction.summarised");
    let took_ms = service.sessions.clock().now().millis_since(begun_at);
    finish(service, key, wanted, (&job, took_ms), summarised, tell).await
}

/// Builds the caller's result from the current session. Loads the whole session only if `tell` needs contents.
pub(super) async fn tell_now<T>(
    service: &Service,
    key: &SessionKey,
    ended: &CompactionOutcome,
    tell: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, ServiceError> {
    let look = |session: &Session| tell(session, ended);
    // Most replies need no contents, so the whole session is loaded only after the first attempt failed.
    if let Ok(told) = service.sessions.read(key, look).await? {
        return Ok(told);
    }
    let told = service.sessions.read_whole(key, look).await?;
    told.map_err(|ContentNotLoaded| ServiceError::Internal {
        doing: "read a session whole",
        source: None,
    })
}

/// Replaces the covered messages by an existing summary in one transaction. Returns `None` if no usable summary
/// exists.
async fn at_once<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    tell: &impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<Option<T>, ServiceError> {
    if let Some(told) = with_memory(service, key, wanted, tell).await? {
        return Ok(Some(told));
    }
    if !wanted.takes_any() || wanted.strategy.is_some() {
        return Ok(None);
    }
    // A prepared summary that is almost written is worth the wait: a second request to the model would cost more.
    if wanted.trigger != Trigger::Manual && !wanted.dry_run {
        repeat::ahead_ends(service, key).await?;
    }
    with_prepared(service, key, wanted, tell).await
}

/// Starts a compaction in the background. Its outcome is an event.
pub(super) fn begin_in_background(service: &Service, key: &SessionKey, wanted: CompactionRequest) {
    in_background(service, key, wanted);
}

/// Starts a prepared summary in the background if a model is configured.
pub(super) fn prepare_ahead(service: &Service, key: &SessionKey) {
    if service.models.is_some() {
        in_background(service, key, CompactionRequest::ahead());
    }
}

fn in_background(service: &Service, key: &SessionKey, wanted: CompactionRequest) {
    let (inner, key) = (service.clone(), key.clone());
    service.mutations.in_background(async move {
        let done = Box::pin(in_rounds(&inner, &key, &wanted)).await;
        report(&key, done.map(|_| ()));
    });
}

pub(super) fn report(key: &SessionKey, done: Result<(), ServiceError>) {
    if let Err(error) = done {
        let error = tonic::Status::from(error);
        let error = error.message();
        tracing::warn!(session = %key, error, "failed to compact; the next call tries again");
    }
}

/// Compacts with session memory in one transaction. Returns `None` if session memory cannot be used.
async fn with_memory<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    tell: &impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<Option<T>, ServiceError> {
    if !wanted.takes_memory() {
        return Ok(None);
    }
    // A dry run reports the current state and waits for nothing.
    if !wanted.dry_run {
        wait_for_memory::wait_for_memory(service, key).await?;
    }
    let made = compaction_messages(service, key).await?;
    // A caller that selected session memory overrides the policy, and gets no other strategy.
    let only = wanted.strategy.is_some();
    let decide = |transaction: &mut Transaction<'_>| {
        let first = transaction
            .session()
            .is_some_and(|session| session.policy().autocompact.session_memory_first);
        if !(first || only) {
            return Ok(None);
        }
        let outcome = wanted.run(transaction, |expected| {
            wanted.start(SummarySource::SessionMemory(made.clone()), expected)
        })?;
        Ok(Some(ended(outcome, transaction)))
    };
    let finish = |session: &Session, ended: &Option<CompactionOutcome>| match ended {
        // If session memory does not help, another strategy may.
        None => Ok(None),
        Some(ended) if ended.is_of_no_use() && !only => Ok(None),
        Some(ended) => tell(session, ended).map(Some),
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    let told = sessions.run(key, missing, wanted.dry_run, decide, finish);
    Ok(told.await?)
}

/// Compacts with the prepared summary in one transaction. Returns `None` if none is usable.
async fn with_prepared<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    tell: &impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<Option<T>, ServiceError> {
    let made = compaction_messages(service, key).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        let outcome = wanted.run(transaction, |expected| {
            wanted.start(SummarySource::Prepared(made.clone()), expected)
        })?;
        Ok(ended(outcome, transaction))
    };
    let finish = |session: &Session, ended: &CompactionOutcome| match ended {
        // No prepared summary exists, or it does not help any more.
        ended if ended.is_of_no_use() => Ok(None),
        ended => tell(session, ended).map(Some),
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    let told = sessions.run(key, missing, wanted.dry_run, decide, finish);
    Ok(told.await?)
}

/// A started compaction and the input for its summary.
#[derive(Debug)]
pub(super) struct CompactionJob {
    pub(super) key: CompactionKey,
    /// The strategy that writes the summary.
    pub(super) strategy: Strategy,
    pub(super) leaving: Vec<Ordinal>,
    /// The caller's instructions for the summary.
    pub(super) instructions: Option<Box<str>>,
    /// The recorded hook calls and their instructions.
    hooks: CompactionHooks,
    /// A copy of the session at the start of the compaction.
    pub(super) session: Session,
    /// The start command of a dry run, which is repeated on a copy at the end.
    start: Option<Start>,
    /// An existing summary, if the compaction uses one.
    ready: Option<WrittenSummary>,
}

impl CompactionJob {
    /// Returns true if a model writes the summary.
    fn asks_model(&self) -> bool {
        self.strategy == Strategy::Model
    }
}

/// Returns the default strategy: a model if the server has one, otherwise extractive.
fn usual(service: &Service) -> Strategy {
    if service.models.is_some() {
        Strategy::Model
    } else {
        Strategy::Extractive
    }
}

/// The command that starts a compaction, without its expected revision.
#[derive(Debug, Clone)]
struct Start(StartCompaction);

impl Start {
    fn at(&self, expected_revision: Option<Revision>) -> Command {
        Command::StartCompaction(StartCompaction {
            expected_revision,
            ..self.0.clone()
        })
    }
}

enum StartOutcome {
    Job(Box<CompactionJob>),
    Ended(CompactionOutcome),
}

async fn begin(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
) -> Result<StartOutcome, ServiceError> {
    let spec = SummarySpec {
        strategy: wanted.strategy.unwrap_or_else(|| usual(service)),
        scope: wanted.scope,
        ahead: wanted.when == WaitMode::Ahead,
        instructions: wanted.instructions.as_deref().map(Box::from),
    };
    let start = Start(StartCompaction {
        request: wanted.request.clone(),
        ..StartCompaction::new(wanted.trigger, SummarySource::Write(spec))
    });
    let decide = |transaction: &mut Transaction<'_>| {
        let outcome = wanted.run(transaction, |expected| start.at(expected))?;
        Ok(ended(outcome, transaction))
    };
    let finish = |session: &Session, ended: &CompactionOutcome| {
        // A dry run commits no start, so the start is repeated together with the end.
        let start = wanted.dry_run.then(|| start.clone());
        begun(session, ended, start, false)
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    let begun = sessions.run(key, missing, wanted.dry_run, decide, finish);
    Ok(begun.await?)
}

/// Returns the started compaction, with the existing summary if `ready` is true.
fn begun(
    session: &Session,
    ended: &CompactionOutcome,
    start: Option<Start>,
    ready: bool,
) -> Result<StartOutcome, ContentNotLoaded> {
    // The job keeps a copy of the session and reads contents from it later, so all contents must be loaded.
    if !session.transcript().is_whole() {
        return Err(ContentNotLoaded);
    }
    let CompactionOutcome::Event(_, _) = ended else {
        return Ok(StartOutcome::Ended(ended.clone()));
    };
    let Some(running) = &session.compactions().running else {
        return Ok(StartOutcome::Ended(CompactionOutcome::Skipped(
            SkipReason::NothingEligible,
        )));
    };
    Ok(StartOutcome::Job(Box::new(CompactionJob {
        key: running.key,
        strategy: running.strategy,
        leaving: running.leaving.clone(),
        instructions: running.instructions.clone(),
        hooks: running.hooks.clone(),
        session: session.clone(),
        start,
        ready: ready.then(|| summarise::ready(session, running)).flatten(),
    })))
}

async fn finish<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    (job, took_ms): (&CompactionJob, u64),
    summarised: Result<WrittenSummary, (CompactionFailureReason, String)>,
    tell: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, ServiceError> {
    let made = compaction_messages(service, key).await?;
    let end = match summarised {
        Ok(summary) => CompactionInput::Summary { summary, made },
        Err((why, detail)) => CompactionInput::Failed {
            why,
            detail: detail.into(),
        },
    };
    let mut end = AdvanceCompaction {
        took_ms,
        ..AdvanceCompaction::new(job.key, end)
    };
    if !wanted.dry_run {
        end = Box::pin(hooks::end(service, key, job, end)).await?;
    }
    let end = Command::AdvanceCompaction(end);
    let rehearsed = job.start.as_ref().map(|start| (wanted, start));
    conclude(service, key, rehearsed, end, tell).await
}

/// Runs the command that ends a compaction. A dry run repeats the start on a copy first, because its start was not
/// committed.
async fn conclude<T>(
    service: &Service,
    key: &SessionKey,
    rehearsed: Option<(&CompactionRequest, &Start)>,
    end: Command,
    tell: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, ServiceError> {
    let decide = |transaction: &mut Transaction<'_>| {
        if let Some((wanted, start)) = rehearsed {
            wanted.run(transaction, |expected| start.at(expected))?;
        }
        let outcome = transaction.run(end.clone())?;
        Ok(ended(outcome, transaction))
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    let told = sessions.run(key, missing, rehearsed.is_some(), decide, tell);
    Ok(told.await?)
}

fn ended(outcome: CommandOutcome, transaction: &Transaction<'_>) -> CompactionOutcome {
    match outcome {
        CommandOutcome::Answered(revision) => CompactionOutcome::Before(revision),
        CommandOutcome::Skipped(skip) => CompactionOutcome::Skipped(skip),
        CommandOutcome::Done(None) => CompactionOutcome::Skipped(SkipReason::NothingEligible),
        CommandOutcome::Done(Some(revision)) => match transaction.events().last() {
            Some(recorded) => CompactionOutcome::Event(Box::new(recorded.event.clone()), revision),
            None => CompactionOutcome::Skipped(SkipReason::NothingEligible),
        },
    }
}

/// Returns the ids and the messages that a compaction adds besides its summary.
pub(super) async fn compaction_messages(
    service: &Service,
    key: &SessionKey,
) -> Result<CompactionMessages, ServiceError> {
    // The latest user input may have left the view. The compaction then keeps it beside the summary.
    let request = |session: &Session| {
        let at = session.request_out_of_view()?;
        Some((at, session.transcript().get(at)?.clone()))
    };
    let entry = service.sessions.read(key, request).await?;
    let request = contents(service, key, entry.into_iter().collect()).await?;
    let mut id = service.next_id();
    Ok(CompactionMessages {
        mark: id(),
        summary: id(),
        request: request.into_iter().next().map(|one| one.message),
        attached: Vec::new(),
    })
}

/// The usage of a summary that no model wrote.
const NO_USAGE: Usage = Usage {
    input_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
};

/// The error for required data that could not be read.
fn lost() -> ServiceError {
    ServiceError::Internal {
        doing: "read what a compaction is made of",
        source: None,
    }
}
