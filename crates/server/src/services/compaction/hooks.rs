//! The hooks of a compaction: their requests and responses in the form of the API.

use palimpsest_core::compaction::{HookAnswer, HookRequest, Preview, StartedCompaction};
use palimpsest_core::event::HookCall;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::HookResult;
use palimpsest_proto::context::v1::{
    PostCompactRequest, PostCompactResponse, PreCompactResponse, SessionStartRequest,
    SessionStartSource,
};
use palimpsest_summarize::redact;

use super::prompt::standing;
use crate::convert;
use crate::errors::ServiceError;
use crate::services::Service;
use crate::services::append::budget;
use crate::services::hooks::{HookDecision, ask};

/// Calls a hook. Returns `None` if the hook is disabled or has no endpoint.
pub(super) async fn call(
    service: &Service,
    key: &SessionKey,
    request: HookRequest,
) -> Option<HookAnswer> {
    match request {
        HookRequest::PreCompact(started) => pre_compact(service, key, &started).await,
        HookRequest::PostCompact(started, preview) => {
            post_compact(service, key, &started, &preview).await
        }
        HookRequest::SessionStart(started) => session_start(service, key, &started).await,
    }
}

async fn pre_compact(
    service: &Service,
    key: &SessionKey,
    StartedCompaction { session, running }: &StartedCompaction,
) -> Option<HookAnswer> {
    let own = running.instructions.as_deref().map(str::to_owned);
    let instructions: Vec<String> = standing(session).into_iter().chain(own).collect();
    let budget = budget(session, None);
    let request = convert::pre_compact(session, running, budget, instructions.join("\n\n"));
    let read = |answer: PreCompactResponse| match answer.veto_reason {
        Some(reason) => Ok(HookDecision::Veto(reason)),
        None => convert::wishes(answer).map(HookDecision::Continue),
    };
    let hooks = (key, &session.policy().hooks);
    let (call, wishes) = ask(service, hooks, running.expires, request, read).await?;
    // Hook texts become part of stored events, so secrets are redacted first.
    let (wishes, redacts) = (wishes.unwrap_or_default(), service.redacts(session));
    let stored = |text: String| -> Box<str> {
        if redacts {
            redact(&text).text.into()
        } else {
            text.into()
        }
    };
    Some(HookAnswer {
        instructions: wishes.instructions.map(stored),
        must_keep: wishes.must_keep.into_iter().map(stored).collect(),
        ..HookAnswer::of(call)
    })
}

async fn post_compact(
    service: &Service,
    key: &SessionKey,
    started: &StartedCompaction,
    preview: &Preview,
) -> Option<HookAnswer> {
    let session = &preview.session;
    let request = PostCompactRequest {
        session: key.to_string(),
        compaction: convert::compaction(&preview.event, session),
        budget: Some(budget(session, None)),
        attributes: convert::hook_attributes(session).collect(),
    };
    let read = |answer: PostCompactResponse| match answer.reject_reason {
        Some(reason) => Ok(HookDecision::Veto(reason)),
        None => Ok(HookDecision::Continue(())),
    };
    let hooks = (key, &started.session.policy().hooks);
    let expires = started.running.expires;
    let (call, _) = ask(service, hooks, expires, request, read).await?;
    Some(HookAnswer::of(call))
}

async fn session_start(
    service: &Service,
    key: &SessionKey,
    StartedCompaction { session, running }: &StartedCompaction,
) -> Option<HookAnswer> {
    let policy = session.policy();
    let request = SessionStartRequest {
        session: key.to_string(),
        source: SessionStartSource::Compact.into(),
        compaction_id: running.key.to_string(),
        attributes: convert::hook_attributes(session).collect(),
    };
    let limits = service.limits().narrowed_by(&policy.limits);
    let read = |answer| {
        let mut next_id = service.next_id();
        convert::hook_messages(answer, &limits, &mut next_id).map(HookDecision::Continue)
    };
    let hooks = (key, &policy.hooks);
    let (call, messages) = ask(service, hooks, running.expires, request, read).await?;
    Some(HookAnswer {
        messages: messages.unwrap_or_default(),
        ..HookAnswer::of(call)
    })
}

/// Returns the error for a manual call whose compaction a hook stopped.
pub(in crate::services) fn refusal(calls: &[HookCall]) -> Option<ServiceError> {
    let call = calls.last().filter(|call| call.result.stops())?;
    let (hook, detail) = (call.hook.name(), call.detail.to_string());
    Some(match call.result {
        HookResult::Vetoed => ServiceError::HookVetoed {
            hook,
            reason: detail,
        },
        _ => ServiceError::HookFailed { hook, detail },
    })
}
