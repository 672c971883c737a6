//! Hooks over gRPC: one call of a user's hook service.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName};
use palimpsest_core::compaction::HookRequest;
use palimpsest_core::event::Hook;
use palimpsest_core::policy::HookPolicy;
use palimpsest_edge::metrics::Metrics;
use palimpsest_engine::call::{CurrentCall, SPANS};
use palimpsest_engine::clock::IdSource;
use palimpsest_engine::compaction::{HookCaller, HookDecision};
use palimpsest_engine::sessions::Sessions;
use palimpsest_proto::context::v1::hook_service_client::HookServiceClient;
use palimpsest_proto::context::v1::{
    PostCompactRequest, PostCompactResponse, PreCompactRequest, PreCompactResponse,
    SessionStartRequest, SessionStartResponse,
};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tracing::{Instrument as _, field};

use super::{HookEndpoint, HookEndpoints, failed};
use crate::convert;
use crate::telemetry::{TraceId, injected_headers};

/// A method of the hook service.
#[async_trait]
trait HookMethod: Sized + Send + 'static {
    type Answer: Send;

    async fn call_service(
        client: &mut HookServiceClient<Channel>,
        question: Request<Self>,
    ) -> Result<Response<Self::Answer>, Status>;
}

macro_rules! methods {
    ($($method:ident: $question:ty => $answer:ty;)*) => {$(
        #[async_trait]
        impl HookMethod for $question {
            type Answer = $answer;

            async fn call_service(
                client: &mut HookServiceClient<Channel>,
                question: Request<Self>,
            ) -> Result<Response<Self::Answer>, Status> {
                client.$method(question).await
            }
        }
    )*};
}

methods! {
    pre_compact: PreCompactRequest => PreCompactResponse;
    post_compact: PostCompactRequest => PostCompactResponse;
    session_start: SessionStartRequest => SessionStartResponse;
}

/// The hooks of remote services.
#[derive(Debug)]
pub struct RemoteHooks {
    endpoints: Arc<HookEndpoints>,
    sessions: Arc<Sessions>,
    ids: Arc<IdSource>,
    metrics: Metrics,
}

impl RemoteHooks {
    /// Creates the caller of the configured services.
    pub fn new(
        endpoints: Arc<HookEndpoints>,
        sessions: Arc<Sessions>,
        ids: Arc<IdSource>,
        metrics: Metrics,
    ) -> Self {
        Self {
            endpoints,
            sessions,
            ids,
            metrics,
        }
    }

    async fn decision(
        &self,
        request: &HookRequest,
        timeout: Duration,
    ) -> Result<HookDecision, String> {
        let policy = request.started().session.policy();
        let endpoint = self.endpoints.of(&policy.hooks);
        let endpoint = endpoint.ok_or_else(|| "no hook endpoint is configured".to_owned())??;
        let trace = self.trace();
        match request {
            HookRequest::PreCompact(started) => {
                let question = convert::pre_compact(started);
                let answer = call_with_timeout(endpoint, trace, timeout, question).await?;
                let limits = self.sessions.limits().narrowed_by(&policy.limits);
                let now = self.sessions.clock().now();
                convert::pre_compact_decision(answer, now, &limits)
            }
            HookRequest::PostCompact(_, preview) => {
                let question = convert::post_compact(preview);
                let answer = call_with_timeout(endpoint, trace, timeout, question).await?;
                Ok(convert::post_compact_decision(answer))
            }
            HookRequest::SessionStart(started) => {
                let question = convert::session_start(started);
                let answer = call_with_timeout(endpoint, trace, timeout, question).await?;
                // The messages of the hook become messages of the session, so the same limits hold for them.
                let limits = self.sessions.limits().narrowed_by(&policy.limits);
                let mut next_id = || self.ids.message_id();
                convert::session_start_decision(answer, &limits, &mut next_id)
            }
        }
    }

    /// Returns the trace context for the hook. If no exporter produces one, it consists of the current trace id and a
    /// new span id.
    fn trace(&self) -> HeaderMap {
        let mut headers = injected_headers();
        if headers.is_empty()
            && let Some(trace) = TraceId::current()
        {
            let (_, span) = self.ids.uuid().as_u64_pair();
            // The trace context format does not allow a span id of 0.
            let context = format!("00-{trace}-{:016x}-01", span | 1);
            headers.extend(context.parse().ok().map(|context| (TRACE, context)));
        }
        headers
    }
}

#[async_trait]
impl HookCaller for RemoteHooks {
    fn has_endpoint(&self, policy: &HookPolicy) -> bool {
        self.endpoints.of(policy).is_some()
    }

    async fn call(&self, request: &HookRequest, timeout: Duration) -> Result<HookDecision, String> {
        let name = name(request.hook());
        let span = tracing::debug_span!(
            target: SPANS, "hook", otel.kind = "client", hook = name, otel.status_code = field::Empty
        );
        let clock = self.sessions.clock();
        let began = clock.now();
        let decision = self.decision(request, timeout);
        let decision = decision.instrument(span.clone()).await;
        let outcome = match &decision {
            Ok(HookDecision::Continue(_)) => "continued",
            Ok(HookDecision::Veto(_)) => "vetoed",
            Err(_) => {
                span.record("otel.status_code", "ERROR");
                "failed"
            }
        };
        let took = Duration::from_millis(clock.now().millis_since(began));
        self.metrics.hook_call(name, outcome, took);
        decision
    }
}

/// Makes one call within its time limit, including the wait for a connection.
async fn call_with_timeout<Q: HookMethod>(
    endpoint: &HookEndpoint,
    trace: HeaderMap,
    time: Duration,
    question: Q,
) -> Result<Q::Answer, String> {
    let until = Instant::now() + time;
    let late = || {
        let time = time.as_millis();
        format!(
            "it did not respond within {time} ms, the time that its rule and the waiting call allow"
        )
    };
    let asked = async {
        let mut ready = endpoint.ready().await?;
        let request = endpoint.request(question, trace, time).await?;
        let answered = Q::call_service(&mut ready.client, request).await;
        answered.map(Response::into_inner).map_err(|status| {
            // The hook receives the deadline too and may report it slightly before the local timer.
            let left = until.saturating_duration_since(Instant::now());
            match status.code() {
                Code::Cancelled | Code::DeadlineExceeded if left <= time / 10 => late(),
                _ => failed(&status),
            }
        })
    };
    // The wait for the hook does not count as work of the call.
    let answered = CurrentCall::pause_while(timeout_at(until, asked)).await;
    answered.unwrap_or_else(|_| Err(late()))
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
