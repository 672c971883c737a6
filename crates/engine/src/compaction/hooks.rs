//! Hooks of a compaction: the rule of the policy, the time limit, and the meaning of a failure.
//!
//! Nothing that a hook returns is logged. Its texts are stored only in the session's log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::compaction::{HookAnswer, HookRequest};
use palimpsest_core::event::{Hook, HookCall};
use palimpsest_core::ids::Timestamp;
use palimpsest_core::message::Message;
use palimpsest_core::policy::{HookFailureMode, HookPolicy, HookRule};
use palimpsest_core::session::{HookResult, Session};
use palimpsest_core::working::FileState;
use palimpsest_summarize::redact;

use super::CompactionError;
use crate::Engine;
use crate::call::Deadline;

/// The maximum size of a stored text about a hook call, in bytes.
const MAX_DETAIL_BYTES: usize = 512;

/// Calls the users' hooks, with the transport that they have.
#[async_trait]
pub trait HookCaller: fmt::Debug + Send + Sync {
    /// Returns true if the policy or the server selects an endpoint, even an unknown one.
    fn has_endpoint(&self, policy: &HookPolicy) -> bool;

    /// Calls a hook. A call that takes longer than `timeout` fails. An error is the failure as text.
    async fn call(&self, request: &HookRequest, timeout: Duration) -> Result<HookDecision, String>;
}

/// The decision of a hook.
#[derive(Debug)]
pub enum HookDecision {
    /// The compaction continues.
    Continue(HookReply),
    /// The hook rejected the compaction for this reason.
    Veto(String),
}

/// The requests of a hook for a compaction.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HookReply {
    /// `PreCompact`: instructions that are added to those for the summary.
    pub instructions: Option<String>,
    /// `PreCompact`: texts that are kept word for word.
    pub must_keep: Vec<String>,
    /// `PreCompact`: files with their current content.
    pub files: Vec<FileState>,
    /// `SessionStart`: messages that follow the attachments.
    pub messages: Vec<Arc<Message>>,
}

/// Returns true if the session has an endpoint and at least one enabled hook.
pub(super) fn is_any_enabled(engine: &Engine, session: &Session) -> bool {
    let policy = &session.policy().hooks;
    let rules = [
        &policy.pre_compact,
        &policy.post_compact,
        &policy.session_start,
    ];
    let caller = engine.hook_caller.as_ref();
    caller.is_some_and(|caller| caller.has_endpoint(policy))
        && rules.iter().any(|rule| rule.enabled)
}

/// Calls a hook. Returns `None` if the hook is disabled or has no endpoint.
pub(super) async fn call(engine: &Engine, request: HookRequest) -> Option<HookAnswer> {
    let (hook, started) = (request.hook(), request.started());
    let session = &started.session;
    let policy = &session.policy().hooks;
    let rule = rule(policy, hook);
    // A disabled hook is not called, even if its endpoint is unknown.
    let caller = engine.hook_caller.as_ref();
    let caller = caller.filter(|caller| rule.enabled && caller.has_endpoint(policy))?;
    let began = engine.sessions.clock().now();
    let timeout = time_for(engine, rule, started.running.deadline);
    let (result, detail, reply) = match caller.call(&request, timeout).await {
        Ok(HookDecision::Continue(reply)) => (HookResult::Continued, String::new(), reply),
        Ok(HookDecision::Veto(reason)) => (HookResult::Vetoed, reason, HookReply::default()),
        Err(detail) => {
            let result = match rule.on_failure {
                HookFailureMode::Continue => HookResult::FailedContinued,
                HookFailureMode::Stop => HookResult::FailedStopped,
            };
            let key = session.key();
            tracing::warn!(session = %key, ?hook, ?result, "a hook failed");
            (result, detail, HookReply::default())
        }
    };
    // Hook texts become part of stored events, so secrets are redacted first.
    let redacts = engine.redacts(session);
    let stored = |text: String| -> Box<str> {
        if redacts {
            redact(&text).text.into()
        } else {
            text.into()
        }
    };
    // A secret that the limit cuts in two is not recognized, so redaction precedes the limit.
    let detail = stored(detail);
    let end = detail.floor_char_boundary(MAX_DETAIL_BYTES);
    Some(HookAnswer {
        call: HookCall {
            hook,
            result,
            // The detail comes from the hook and becomes part of an event, so it is shortened.
            detail: detail[..end].into(),
            duration_ms: engine.sessions.clock().now().millis_since(began),
            messages: Vec::new(),
        },
        instructions: reply.instructions.map(stored),
        must_keep: reply.must_keep.into_iter().map(stored).collect(),
        files: reply.files,
        messages: reply.messages,
    })
}

const fn rule(policy: &HookPolicy, hook: Hook) -> &HookRule {
    match hook {
        Hook::PreCompact => &policy.pre_compact,
        Hook::PostCompact => &policy.post_compact,
        Hook::SessionStart => &policy.session_start,
    }
}

/// Returns the time limit of a hook call: that of its rule, but at most half of the remaining time. The compaction
/// and its caller limit the remaining time, and the other half is for the next steps.
fn time_for(engine: &Engine, rule: &HookRule, expires: Timestamp) -> Duration {
    let now = engine.sessions.clock().now();
    let of_compaction = Duration::from_millis(expires.millis_since(now));
    let of_caller = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
    let left = of_compaction.min(of_caller);
    Duration::from_millis(rule.timeout.get()).min(left / 2)
}

/// Returns the error for a manual call whose compaction a hook stopped.
pub fn refusal(calls: &[HookCall]) -> Option<CompactionError> {
    let call = calls.last().filter(|call| call.result.stops())?;
    let (hook, detail) = (call.hook, call.detail.clone());
    Some(match call.result {
        HookResult::Vetoed => CompactionError::HookVetoed {
            hook,
            reason: detail,
        },
        _ => CompactionError::HookFailed { hook, detail },
    })
}
