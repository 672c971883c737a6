//! Level 5. `run` drives the machine of the core, which decides every compaction. The other modules
//! perform its steps: `summarize` writes a summary, `hooks` calls the hooks, `repeat` waits for an end, and
//! `delegate` and `delegate_result` exchange a request and a summary with the caller's model.

mod compact_view;
mod delegate;
mod delegate_result;
mod error;
mod hooks;
mod model;
mod prompt;
mod repeat;
mod rounds;
mod run;
mod span;
mod summarize;
#[cfg(test)]
mod tests;
mod token;
mod user_inputs;

use palimpsest_core::compaction::{CompactionMachine, CompactionOutcome, CompactionRequest};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::Usage;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_store::error_chain;
use tracing::Instrument as _;

pub use self::compact_view::{DropOutcome, RejectedPrompt, ViewCompaction, compact_view};
pub use self::delegate::{DelegatedBody, DelegatedRequest, request};
pub use self::delegate_result::{DelegateAnswer, DelegateResult, commit};
pub use self::error::CompactionError;
pub use self::hooks::{HookCaller, HookDecision, HookReply, refusal};
pub use self::prompt::instructions_of;
pub use self::repeat::outcome;
pub(crate) use self::rounds::InputRounds;
pub use self::run::render_now;
use self::run::{DriveUntil, Driver};
pub use self::token::{DelegationOptions, MessageForm};
use crate::Engine;

/// The maximum number of compactions in one call.
const MAX_ROUNDS: usize = 100;

/// A compaction that a call requires.
#[derive(Debug, Clone)]
pub struct CompactionCall {
    /// The request.
    pub request: CompactionRequest,
    /// True if the caller waits for the outcome, which is in the reply. Otherwise the outcome is an event.
    pub waits: bool,
    /// The target whose pending messages are served first. `None` if the caller served the view just before.
    pub view: Option<TargetOverride>,
}

impl CompactionCall {
    /// Creates the call that waits for a compaction of the view that was served just before.
    pub fn waiting(request: CompactionRequest) -> Self {
        Self {
            request,
            waits: true,
            view: None,
        }
    }
}

/// Compacts a session. `render` builds the caller's result from the session after the compaction.
pub async fn compact<T>(
    engine: &Engine,
    key: &SessionKey,
    call: &CompactionCall,
    render: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, CompactionError> {
    let mut machine = CompactionMachine::new(call.request.clone());
    let span = span::begin(key, &call.request);
    let compacting = compact_with(&mut machine, engine, key, call, render);
    let done = compacting.instrument(span.clone()).await;
    span::end(&span, machine.outcome());
    done
}

async fn compact_with<T>(
    machine: &mut CompactionMachine,
    engine: &Engine,
    key: &SessionKey,
    call: &CompactionCall,
    render: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, CompactionError> {
    let mut driver = Driver::for_request(engine, key, &call.request, call.view.as_ref()).await?;
    // The copy of a dry run belongs to this driver, so its compaction cannot continue in another task.
    let until = if call.waits || call.request.is_dry_run {
        DriveUntil::End
    } else {
        DriveUntil::Started
    };
    let reply = Box::pin(driver.drive(machine, until, &render)).await?;
    let (Some(running), None) = (machine.needs_no_caller(), &reply) else {
        return reply.ok_or_else(CompactionError::content_lost);
    };
    let (inner, name, mut machine) = (engine.clone(), key.clone(), machine.clone());
    engine.background.in_background(async move {
        // The view was served with the start, so this driver serves none.
        let mut driver = Driver::new(&inner, &name);
        let done = driver.drive(&mut machine, DriveUntil::End, |_, _| Ok(()));
        report(&name, Box::pin(done).await.map(|_| ()));
    });
    Box::pin(render_now(
        engine,
        key,
        &CompactionOutcome::Running(running),
        render,
    ))
    .await
}

/// Compacts, and repeats as the policy requires. Returns all outcomes in order.
pub async fn compact_repeatedly(
    engine: &Engine,
    key: &SessionKey,
    call: &CompactionCall,
) -> Result<Vec<CompactionOutcome>, CompactionError> {
    let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
    let first = Box::pin(compact(engine, key, call, render)).await?;
    let rest = Box::pin(compact_rest(engine, key, call, &first)).await?;
    Ok(std::iter::once(first).chain(rest).collect())
}

/// Runs the compactions after the first one, as the policy requires.
pub async fn compact_rest(
    engine: &Engine,
    key: &SessionKey,
    call: &CompactionCall,
    first: &CompactionOutcome,
) -> Result<Vec<CompactionOutcome>, CompactionError> {
    let mut rounds = Vec::new();
    while call.waits && rounds.len() + 1 < MAX_ROUNDS {
        let last = rounds.last().unwrap_or(first);
        let look = |session: &Session| call.request.next_round(session, last);
        let Some(next) = engine.sessions.read(key, look).await? else {
            break;
        };
        let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
        let next = CompactionCall::waiting(next);
        let next = Box::pin(compact(engine, key, &next, render)).await?;
        if matches!(next, CompactionOutcome::Skipped(_)) {
            break;
        }
        rounds.push(next);
    }
    Ok(rounds)
}

/// Starts a compaction in the background. Its outcome is an event.
pub fn begin_in_background(engine: &Engine, key: &SessionKey, request: CompactionRequest) {
    let (inner, key) = (engine.clone(), key.clone());
    engine.background.in_background(async move {
        let call = CompactionCall::waiting(request);
        let done = Box::pin(compact_repeatedly(&inner, &key, &call)).await;
        report(&key, done.map(|_| ()));
    });
}

/// Starts a prepared summary in the background if a model is configured.
pub fn prepare_ahead(engine: &Engine, key: &SessionKey) {
    if engine.models.is_some() {
        begin_in_background(engine, key, CompactionRequest::prepare_ahead());
    }
}

/// Logs the error of a compaction without a caller.
pub fn report(key: &SessionKey, done: Result<(), CompactionError>) {
    if let Err(error) = done {
        let error = error_chain(&error);
        tracing::warn!(session = %key, error, "failed to compact; the next call tries again");
    }
}

/// The usage of a summary that no model wrote.
const NO_USAGE: Usage = Usage {
    input_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
};
