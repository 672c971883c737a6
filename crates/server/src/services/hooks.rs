//! One call of a user's hook: selection of the endpoint, time limit, and meaning of a failure.
//!
//! Nothing that a hook returns is logged. Its texts are stored only in the session's log.

use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName};
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::policy::{HookFailureMode, HookPolicy, HookRule};
use palimpsest_core::session::{Hook, HookCall, HookResult, Session};
use palimpsest_engine::call::{CurrentCall, Deadline, SPANS};
use palimpsest_proto::context::v1::hook_service_client::HookServiceClient;
use palimpsest_proto::context::v1::{
    PostCompactRequest, PostCompactResponse, PreCompactRequest, PreCompactResponse,
    SessionStartRequest, SessionStartResponse,
};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tracing::{Instrument as _, field};

use super::Service;
use crate::hooks::{HookEndpoint, failed, truncate};
use crate::telemetry::{TraceId, injected_headers};

/// A request of the hook service.
#[async_trait]
pub(super) trait HookRequest: Sized + Send + 'static {
    type Answer: Send;
    const HOOK: Hook;

    async fn put(
        client: &mut HookServiceClient<Channel>,
        question: Request<Self>,
    ) -> Result<Response<Self::Answer>, Status>;
}

macro_rules! questions {
    ($($hook:ident, $method:ident: $question:ty => $answer:ty;)*) => {$(
        #[async_trait]
        impl HookRequest for $question {
            type Answer = $answer;
            const HOOK: Hook = Hook::$hook;

            async fn put(
                client: &mut HookServiceClient<Channel>,
                question: Request<Self>,
            ) -> Result<Response<Self::Answer>, Status> {
                client.$method(question).await
            }
        }
    )*};
}

questions! {
    PreCompact, pre_compact: PreCompactRequest => PreCompactResponse;
    PostCompact, post_compact: PostCompactRequest => PostCompactResponse;
    SessionStart, session_start: SessionStartRequest => SessionStartResponse;
}

/// The decision in a hook's response.
pub(super) enum HookDecision<T> {
    /// The compaction continues, with this result.
    Continue(T),
    /// The hook rejected the compaction for this reason.
    Veto(String),
}

/// Returns true if the session has an endpoint and at least one enabled hook.
pub(super) fn are_on(service: &Service, session: &Session) -> bool {
    let policy = &session.policy().hooks;
    let rules = [
        &policy.pre_compact,
        &policy.post_compact,
        &policy.session_start,
    ];
    service.hooks.of(policy).is_some() && rules.iter().any(|rule| rule.enabled)
}

const fn rule(policy: &HookPolicy, hook: Hook) -> &HookRule {
    match hook {
        Hook::PreCompact => &policy.pre_compact,
        Hook::PostCompact => &policy.post_compact,
        Hook::SessionStart => &policy.session_start,
    }
}

/// Calls a hook and reads its response. Returns `None` if the hook is disabled or has no endpoint. After a veto or
/// a failure the call has no result.
pub(super) async fn ask<Q: HookRequest, T>(
    service: &Service,
    (key, policy): (&SessionKey, &HookPolicy),
    expires: Timestamp,
    question: Q,
    read: impl FnOnce(Q::Answer) -> Result<HookDecision<T>, String> + Send,
) -> Option<(HookCall, Option<T>)> {
    let rule = rule(policy, Q::HOOK);
    // A disabled hook is not called, even if its endpoint is unknown.
    let endpoint = service.hooks.of(policy).filter(|_| rule.enabled)?;
    let began = service.sessions.clock().now();
    let name = name(Q::HOOK);
    let span = tracing::debug_span!(
        target: SPANS, "hook", otel.kind = "client", hook = name, otel.status_code = field::Empty
    );
    let answered = match endpoint {
        Ok(endpoint) => {
            let time = time_for(service, rule, expires);
            let asked = put(service, endpoint, time, question);
            asked.instrument(span.clone()).await
        }
        Err(missing) => Err(missing),
    };
    let (result, detail, answer) = match answered.and_then(read) {
        Ok(HookDecision::Continue(answer)) => (HookResult::Continued, String::new(), Some(answer)),
        Ok(HookDecision::Veto(reason)) => (HookResult::Vetoed, reason, None),
        // An invalid response is handled as a failed call. The policy decides whether the compaction continues.
        Err(detail) => {
            let result = match rule.on_failure {
                HookFailureMode::Continue => HookResult::FailedContinued,
                HookFailureMode::Stop => HookResult::FailedStopped,
            };
            tracing::warn!(session = %key, hook = ?Q::HOOK, ?result, "a hook failed");
            (result, detail, None)
        }
    };
    let took_ms = service.sessions.clock().now().millis_since(began);
    let outcome = match result {
        HookResult::Continued => "continued",
        HookResult::Vetoed => "vetoed",
        HookResult::FailedContinued | HookResult::FailedStopped => {
            span.record("otel.status_code", "ERROR");
            "failed"
        }
    };
    service
        .metrics
        .hook_call(name, outcome, Duration::from_millis(took_ms));
    let call = HookCall {
        hook: Q::HOOK,
        result,
        // The detail comes from the hook and becomes part of an event, so it is shortened.
        detail: truncate(&detail).into(),
        took_ms,
        messages: Vec::new(),
    };
    Some((call, answer))
}

/// Makes one call within its time limit, including the wait for a connection.
async fn put<Q: HookRequest>(
    service: &Service,
    endpoint: &HookEndpoint,
    time: Duration,
    question: Q,
) -> Result<Q::Answer, String> {
    let until = Instant::now() + time;
    let late = || {
        let time = time.as_millis();
        format!("it did not answer within {time} ms, as long as its rule and whoever waits give it")
    };
    let asked = async {
        let mut ready = endpoint.ready().await?;
        let request = endpoint.request(question, trace(service), time).await?;
        let answered = Q::put(&mut ready.client, request).await;
        answered.map(Response::into_inner).map_err(|status| {
            // The hook receives the deadline too and may report it slightly before the local timer.
            let left = until.saturating_duration_since(Instant::now());
            match status.code() {
                Code::Cancelled | Code::DeadlineExceeded if left <= time / 10 => late(),
                _ => failed(&status),
            }
        })
    };
    let answered = CurrentCall::wait(timeout_at(until, asked)).await;
    answered.unwrap_or_else(|_| Err(late()))
}

/// Returns the time limit of a hook call: that of its rule, but at most half of the remaining time. The compaction
/// and its caller limit the remaining time, and the other half is for the next steps.
fn time_for(service: &Service, rule: &HookRule, expires: Timestamp) -> Duration {
    let now = service.sessions.clock().now();
    let of_compaction = Duration::from_millis(expires.millis_since(now));
    let of_caller = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
    let left = of_compaction.min(of_caller);
    Duration::from_millis(rule.timeout.get()).min(left / 2)
}

/// Returns the trace context for the hook. If no exporter produces one, it consists of the current trace id and a
/// new span id.
fn trace(service: &Service) -> HeaderMap {
    let mut headers = injected_headers();
    if headers.is_empty()
        && let Some(trace) = TraceId::current()
    {
        let (_, span) = service.ids.uuid().as_u64_pair();
        // The trace context format does not allow a span id of 0.
        let context = format!("00-{trace}-{:016x}-01", span | 1);
        headers.extend(context.parse().ok().map(|context| (TRACE, context)));
    }
    headers
}

/// The header of the W3C trace context.
const TRACE: HeaderName = HeaderName::from_static("traceparent");

const fn name(hook: Hook) -> &'static str {
    match hook {
        Hook::PreCompact => "pre_compact",
        Hook::PostCompact => "post_compact",
        Hook::SessionStart => "session_start",
    }
}
