//! Level 5 in the server. [`run`] drives the machine of the core, which decides every compaction. The other modules
//! perform its steps: [`summarise`] writes a summary, [`hooks`] calls the hooks, [`repeat`] waits for an end, and
//! [`delegate`] and [`delegate_result`] exchange a request and a summary with the caller's model.

mod delegate;
mod delegate_result;
mod hooks;
mod input;
mod model;
mod prompt;
mod repeat;
mod rounds;
mod run;
mod summarise;
mod token;

use palimpsest_core::compaction::{CompactionMachine, CompactionOutcome, CompactionRequest};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::Usage;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;

pub(super) use self::delegate::{Delegated, DelegatedBody, request};
pub(super) use self::delegate_result::{Brought, DelegateAnswer, commit};
pub(super) use self::hooks::refusal;
pub(super) use self::repeat::outcome;
pub(super) use self::run::render_now;
use self::run::{DriveUntil, Driver};
pub(super) use self::token::Wish;

use super::Service;
use crate::errors::ServiceError;

/// The maximum number of compactions in one call.
const MAX_ROUNDS: usize = 100;

/// A compaction that a call requires.
#[derive(Debug, Clone)]
pub(super) struct CompactionCall {
    pub(super) request: CompactionRequest,
    /// True if the caller waits for the outcome, which is in the reply. Otherwise the outcome is an event.
    pub(super) waits: bool,
    /// The target whose pending messages are served first. `None` if the caller served the view just before.
    pub(super) view: Option<TargetOverride>,
}

impl CompactionCall {
    /// Returns the call that waits for a compaction of the view that was served just before.
    pub(super) fn waiting(request: CompactionRequest) -> Self {
        Self {
            request,
            waits: true,
            view: None,
        }
    }
}

/// Compacts a session. `render` builds the caller's result from the session after the compaction.
pub(super) async fn compact<T>(
    service: &Service,
    key: &SessionKey,
    call: &CompactionCall,
    render: impl Fn(&Session, &CompactionOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<T, ServiceError> {
    let mut machine = CompactionMachine::new(call.request.clone());
    let mut driver = Driver::for_request(service, key, &call.request, call.view.as_ref()).await?;
    let until = if call.waits || call.request.is_dry_run {
        DriveUntil::End
    } else {
        DriveUntil::Started
    };
    let reply = Box::pin(driver.drive(&mut machine, until, &render)).await?;
    let (Some(running), None) = (machine.needs_no_caller(), &reply) else {
        return reply.ok_or_else(lost);
    };
    let (inner, name) = (service.clone(), key.clone());
    service.mutations.in_background(async move {
        let mut driver = Driver::new(&inner, &name);
        let done = driver.drive(&mut machine, DriveUntil::End, |_, _| Ok(()));
        report(&name, Box::pin(done).await.map(|_| ()));
    });
    Box::pin(render_now(
        service,
        key,
        &CompactionOutcome::Running(running),
        render,
    ))
    .await
}

/// Compacts, and repeats as the policy requires. Returns all outcomes in order.
pub(super) async fn in_rounds(
    service: &Service,
    key: &SessionKey,
    call: &CompactionCall,
) -> Result<Vec<CompactionOutcome>, ServiceError> {
    let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
    let first = Box::pin(compact(service, key, call, render)).await?;
    let rest = Box::pin(rest(service, key, call, &first)).await?;
    Ok(std::iter::once(first).chain(rest).collect())
}

/// Runs the compactions after the first one, as the policy requires.
pub(super) async fn rest(
    service: &Service,
    key: &SessionKey,
    call: &CompactionCall,
    first: &CompactionOutcome,
) -> Result<Vec<CompactionOutcome>, ServiceError> {
    let mut rounds = Vec::new();
    while call.waits && rounds.len() + 1 < MAX_ROUNDS {
        let last = rounds.last().unwrap_or(first);
        let look = |session: &Session| call.request.next_round(session, last);
        let Some(next) = service.sessions.read(key, look).await? else {
            break;
        };
        let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
        let next = CompactionCall::waiting(next);
        let next = Box::pin(compact(service, key, &next, render)).await?;
        if matches!(next, CompactionOutcome::Skipped(_)) {
            break;
        }
        rounds.push(next);
    }
    Ok(rounds)
}

/// Starts a compaction in the background. Its outcome is an event.
pub(super) fn begin_in_background(service: &Service, key: &SessionKey, request: CompactionRequest) {
    let (inner, key) = (service.clone(), key.clone());
    service.mutations.in_background(async move {
        let call = CompactionCall::waiting(request);
        let done = Box::pin(in_rounds(&inner, &key, &call)).await;
        report(&key, done.map(|_| ()));
    });
}

/// Starts a prepared summary in the background if a model is configured.
pub(super) fn prepare_ahead(service: &Service, key: &SessionKey) {
    if service.models.is_some() {
        begin_in_background(service, key, CompactionRequest::prepare_ahead());
    }
}

pub(super) fn report(key: &SessionKey, done: Result<(), ServiceError>) {
    if let Err(error) = done {
        let error = tonic::Status::from(error);
        let error = error.message();
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

/// The error for required data that could not be read.
fn lost() -> ServiceError {
    ServiceError::Internal {
        doing: "read what a compaction is made of",
        source: None,
    }
}
