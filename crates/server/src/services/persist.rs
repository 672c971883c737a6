//! `PersistToolResult`: decides about a tool result before its message is appended.

use palimpsest_core::command::{DecidePersist, PersistOutcome, Rejection};
use palimpsest_core::ids::{CallKey, Revision, SessionKey};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::ToolResult;
use palimpsest_core::session::Session;
use palimpsest_engine::EngineError;
use palimpsest_engine::results;
use palimpsest_proto::context::v1::{PersistToolResultRequest, PersistToolResultResponse};

use super::Service;
use crate::convert;
use crate::errors::ServiceError;

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
    let offering = DecidePersist {
        tool: request.tool_name.into(),
        rule,
        expected_revision: request.expected_revision.map(Revision::new),
        request: stamp,
        ..DecidePersist::new(call, result)
    };
    let named = (&*offering.tool, &*offering.call.id);
    let answer = |session: &Session, outcome: &PersistOutcome| {
        convert::persist_response(session, outcome, form, named)
    };
    let missing = service.create_if_missing(&key.project);
    let decided = results::persist(service, &key, &missing, (&offering, dry_run), answer);
    match decided.await {
        // The rejection has call keys only. The error also contains the tool and the state of each call.
        Err(EngineError::Rejected(Rejection::AmbiguousCall(calls))) => {
            Err(ambiguous(service, &key, &calls).await?)
        }
        decided => Ok(decided?),
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
