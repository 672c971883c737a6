//! `PersistToolResult`: decides about a tool result before its message is appended.

use palimpsest_core::command::{Command, Offering, PersistOutcome, Rejection, told};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{CallKey, Revision, SessionKey};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::ToolResult;
use palimpsest_core::session::Session;
use palimpsest_engine::EngineError;
use palimpsest_engine::sessions::{CommandOutcome, Transaction};
use palimpsest_proto::context::v1::{PersistToolResultRequest, PersistToolResultResponse};

use super::Service;
use crate::convert;
use crate::errors::ServiceError;

/// The outcome of the call.
enum PersistResult {
    /// The decision, made now or earlier.
    Told(PersistOutcome),
    /// An idempotent repeat. The event with this revision holds the decision.
    Before(Revision),
}

pub(super) async fn persist(
    service: &Service,
    request: PersistToolResultRequest,
) -> Result<PersistToolResultResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let dry_run = request.dry_run;
    let call = convert::call_name(request.call, "call")?;
    let rule = convert::result_rule(request.rule, "rule")?;
    let (content, form) =
        convert::offered_result_content(request.content, service.limits(), "content")?;
    let result = ToolResult {
        tool_use_id: call.id.clone(),
        content,
        is_error: None,
        extra: UnknownFields::default(),
    };
    let offering = Offering {
        tool: request.tool_name.into(),
        rule,
        expected_revision: request.expected_revision.map(Revision::new),
        request: stamp,
        ..Offering::new(call, result)
    };
    let decide = |transaction: &mut Transaction<'_>| decide(transaction, &offering);
    let named = (&*offering.tool, &*offering.call.id);
    let finish = |session: &Session, done: &PersistResult| {
        Ok(match done {
            PersistResult::Told(told) => Ok(convert::persist_response(session, told, form, named)),
            PersistResult::Before(revision) => Err(*revision),
        })
    };
    let (sessions, missing) = (&service.sessions, service.create_if_missing(&key.project));
    let outcome = sessions.run(&key, &missing, dry_run, decide, finish).await;
    let outcome = match outcome {
        Err(EngineError::Rejected(Rejection::AmbiguousCall(calls))) => {
            return Err(ambiguous(service, &key, &calls).await?);
        }
        outcome => outcome?,
    };
    match outcome {
        Ok(response) => Ok(response),
        Err(revision) => {
            // The repeat answers from its event: the session may have changed since the decision.
            let Event::PersistDecided(event) = sessions.answer(&key, revision).await? else {
                return Err(ServiceError::fault("find the answer of an earlier call"));
            };
            let told = PersistOutcome::from(&event.offer);
            let tell = |session: &Session| convert::persist_response(session, &told, form, named);
            Ok(sessions.read(&key, tell).await?)
        }
    }
}

fn decide(
    transaction: &mut Transaction<'_>,
    offering: &Offering,
) -> Result<PersistResult, Rejection> {
    let outcome = transaction.run(Command::DecidePersist(offering.clone()))?;
    let offered = transaction.events().last().map(|recorded| &recorded.event);
    match (outcome, offered) {
        (CommandOutcome::Answered(revision), _) => Ok(PersistResult::Before(revision)),
        (CommandOutcome::Done(Some(_)), Some(Event::PersistDecided(event))) => {
            Ok(PersistResult::Told(PersistOutcome::from(&event.offer)))
        }
        // No event was needed: the result had been decided about before.
        _ => {
            let session = transaction.session().ok_or(Rejection::ContentNotLoaded)?;
            Ok(PersistResult::Told(told(session, offering)?))
        }
    }
}

/// Returns the error that lists the calls with the same id.
async fn ambiguous(
    service: &Service,
    key: &SessionKey,
    calls: &[CallKey],
) -> Result<ServiceError, ServiceError> {
    let candidates = |session: &Session| {
        let calls = calls.iter();
        calls
            .map(|call| convert::tool_call(session, *call))
            .collect()
    };
    Ok(ServiceError::ambiguous_call(
        "call.tool_use_id",
        service.sessions.read(key, candidates).await?,
    ))
}
