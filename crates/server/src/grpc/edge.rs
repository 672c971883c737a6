//! The path of every call from the connection to the handler and back.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use palimpsest_edge::budget::BudgetShare;
use palimpsest_edge::metrics::Metrics;
use palimpsest_engine::call::Deadline;
use palimpsest_engine::clock::{Clock, IdSource};
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_http::BodyDecoder;
use palimpsest_settings::{Config, GrpcConfig};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::authn::Authn;
use super::call_context::CallContext;
use super::call_limits::{CallKind, CallLimits};
use super::deadline::requested_timeout;
use super::decode::decode;
use super::limited_body::LimitedBody;
use super::load_shed::ShedResponse;
use super::receive::{BodyLimits, receive};
use super::request_size::{RequestShape, RequestShapes, RequestTooComplex};
use super::response_body::{CallRecord, LiveBody, ReplyBudget, ResponseBody, StreamEnd, code_of};
use super::span::CallSpan;
use super::status_details;
use crate::access::ResourceScope;
use crate::errors::ServiceError;
use crate::metrics::{CallMetrics, RpcMethod};
use crate::net::{self, Connection};
use crate::telemetry::CallTrace;

/// The number of bytes read from a request that its caller may not make in any project. They contain the project for
/// the error.
const NAME_PREFIX_BYTES: usize = 64 * 1024;
/// The maximum duration of a health check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The memory limit of a decoded request: this multiple of the maximum request size, and at least [`MIN_DECODED`].
const MAX_DECODED_FACTOR: usize = 2;
const MIN_DECODED: usize = 8 << 20;

/// The fair-share group of a call.
type ShareGroupSource = Arc<net::ShareGroup>;

/// The layer around every call.
///
/// A single layer instead of one per step keeps the order of the steps in one function, and boxes each call only once.
#[derive(Debug, Clone)]
pub struct Edge(Arc<EdgeState>);

#[derive(Debug)]
struct EdgeState {
    grpc: GrpcConfig,
    max_request_bytes: usize,
    admission: CallLimits,
    clock: Arc<dyn Clock>,
    ids: Arc<IdSource>,
    authn: Authn,
    quotas: Option<Arc<QuotaTracker>>,
    shapes: RequestShapes,
    metrics: Arc<CallMetrics>,
    shed: ShedResponse,
}

impl Edge {
    /// Creates the layer.
    pub fn new(
        config: &Config,
        admission: CallLimits,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
        (gate, quotas): (Authn, Option<Arc<QuotaTracker>>),
        metrics: &Metrics,
    ) -> Self {
        Self(Arc::new(EdgeState {
            grpc: config.grpc.clone(),
            max_request_bytes: config.limits.max_request_bytes,
            admission,
            clock,
            ids,
            authn: gate,
            quotas,
            shapes: RequestShapes::new(),
            metrics: Arc::new(CallMetrics::new(metrics)),
            shed: ShedResponse::new(),
        }))
    }
}

impl<S> Layer<S> for Edge {
    type Service = EdgeService<S>;

    fn layer(&self, inner: S) -> EdgeService<S> {
        EdgeService {
            inner,
            shared: Arc::clone(&self.0),
        }
    }
}

/// A service inside the layer.
#[derive(Debug, Clone)]
pub struct EdgeService<S> {
    inner: S,
    shared: Arc<EdgeState>,
}

impl<S> Service<Request<Body>> for EdgeService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        // Shed before the request is examined: under overload a rejection must cost next to nothing.
        if self.shared.admission.should_shed(CallKind::of(path)) {
            let refusal = self.shared.shed.answer(path, &self.shared.metrics);
            return Box::pin(std::future::ready(Ok(refusal)));
        }
        // The clone serves the next call. The instance that reported readiness serves this one.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.answer(ready, request).await) })
    }
}

impl EdgeState {
    async fn answer<S>(&self, inner: S, request: Request<Body>) -> Response<ResponseBody>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let kind = CallKind::of(request.uri().path());
        let mut record = self.record(&request, kind);
        let (trace, span) = (record.trace, record.span.span().clone());
        let outcome = self.run(inner, request, kind, &mut record);
        let outcome = outcome.instrument(span).await;
        let (response, first) = outcome.unwrap_or_else(|error| {
            // A fault is logged when its status is made, so the span and the trace id must be current.
            let _entered = record.span.span().enter();
            let refused = trace.within(|| Status::from(error)).into_http();
            (refused, None)
        });
        record.record_outcome(response.headers());
        // Endless streams have no deadline. The drain or the end of the credential ends them.
        let end = matches!(kind, CallKind::Watch | CallKind::Status).then(|| {
            let draining = self.admission.draining();
            let lapsed = self.authn.clone().expired(record.context.clone());
            StreamEnd::new(draining.clone().cancelled_owned(), lapsed)
        });
        response.map(|body| ResponseBody::Live(LiveBody::new(first, body, record, end)))
    }

    /// Returns the response of the handler with its first frame, within the deadline and even if the handler panics.
    ///
    /// Cheap checks come first. A call has no permit while its request is received or its response is sent, because the
    /// caller determines the speed of both.
    async fn run<S>(
        &self,
        inner: S,
        mut request: Request<Body>,
        kind: CallKind,
        record: &mut CallRecord,
    ) -> Result<StartedResponse, ServiceError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let timeout = self.grpc.timeout(requested_timeout(request.headers()));
        let timeout = if kind == CallKind::Probe {
            timeout.min(PROBE_TIMEOUT)
        } else {
            timeout
        };
        let deadline = Deadline::after(timeout);
        let authentication = self.authn.authenticate(&mut request)?;
        let connection = request.extensions_mut().remove::<Arc<Connection>>();
        let of = connection.as_deref().map(Connection::share_group);
        let share_group = self.admission.share_group(authentication.as_ref(), of);
        // A call that needs no credential does not mark the connection as used, unless authentication is off.
        let is_open =
            !self.authn.is_required() && !matches!(kind, CallKind::Probe | CallKind::Status);
        if (authentication.is_some() || is_open)
            && let Some(connection) = &connection
        {
            // Unused connections are evicted first, so peers without a credential cannot displace callers.
            connection.mark_used();
        }
        drop(connection);
        // Counted from here on, so that slow uploads are limited before any of their bytes is stored.
        record.call_share = self.admission.reserve_call(kind, &share_group)?;
        let is_watch = kind == CallKind::Watch;
        let share = self.admission.request_share(&share_group);
        let shares = (
            share,
            BudgetShare::new(self.admission.replies(), &share_group),
        );
        record.context = CallContext::new(record.span.clone(), shares, is_watch, deadline);
        if let Some(authentication) = authentication {
            record.context.set_authentication(authentication);
        }
        record.replies = ReplyBudget::new(self.admission.replies(), &share_group);
        let mut request = self
            .receive_request(request, kind, (deadline, &share_group), record)
            .await?;
        record.permit = self.admission.admit(kind)?;
        // A watch is limited by its own permit, so its share of the calls in flight is released.
        if is_watch {
            record.call_share = BudgetShare::default();
        }
        let permit = self
            .admission
            .acquire_worker_slot(kind, &record.method, deadline)
            .await?;
        record.context.set_permit(permit);
        request.extensions_mut().insert(deadline);
        request.extensions_mut().insert(record.context.clone());
        let begun = self
            .call_handler(inner, request, (kind, deadline), record)
            .await;
        // The reply is complete or streaming from here on, and its memory is limited by the reply budget.
        if !matches!(kind, CallKind::Watch | CallKind::Status) {
            record.permit = None;
        }
        begun
    }

    /// Receives the complete request and authorizes it.
    async fn receive_request(
        &self,
        mut request: Request<Body>,
        kind: CallKind,
        (deadline, share_group): (Deadline, &ShareGroupSource),
        record: &CallRecord,
    ) -> Result<Request<Body>, ServiceError> {
        let decoder = request.extensions_mut().remove::<BodyDecoder>();
        let (limit, seen) = (self.max_request_bytes, &record.request_bytes);
        let stall = Duration::from_millis(self.grpc.stall_timeout_ms);
        let Some(shape) = self.shapes.of(request.uri().path()) else {
            // Reflection and health streams may be silent for any time.
            let stall = if kind == CallKind::Status {
                Duration::MAX
            } else {
                stall
            };
            let share = self.admission.request_share(share_group);
            let seen = Arc::clone(seen);
            return Ok(
                request.map(|body| Body::new(LimitedBody::new(body, limit, share, stall, seen)))
            );
        };
        let may = self.authn.may_have_right(&record.context);
        let latest = Instant::now() + Duration::from_millis(self.grpc.body_timeout_ms);
        let rules = BodyLimits {
            limit,
            stall,
            deadline: deadline.instant().min(latest),
            stop_after: (!may).then_some(NAME_PREFIX_BYTES),
        };
        let (head, body) = request.into_parts();
        let memory = record.context.share();
        let received = match decoder {
            None => receive(body, rules, memory, seen).await?,
            Some(decoder) => decode(decoder, body, rules, (memory, seen)).await?,
        };
        // The decoder rejects a compressed or incomplete message, so no handler runs without these checks.
        if let Some(message) = received.message() {
            self.check_request(shape, message, &record.context)?;
        }
        Ok(Request::from_parts(head, received.into_body()))
    }

    /// Authorizes a received request, takes its quota and estimates its decoded size, in this order.
    fn check_request(
        &self,
        shape: &RequestShape,
        message: &[u8],
        context: &CallContext,
    ) -> Result<(), ServiceError> {
        let scope = ResourceScope::of(shape.resource_name(message));
        // Authorization comes first: a rejected call must not use the quota of the project.
        self.authn
            .authorize(context, scope.as_ref())
            .inspect_err(|_| context.set_denied())?;
        if let Some(scope) = scope {
            // The body used up the deadline, so nobody waits for the response.
            if context.is_past_deadline() {
                return Err(ServiceError::deadline_exceeded());
            }
            let project = scope.into_project();
            if let Some(quotas) = &self.quotas {
                let permit = quotas.admit(&project, context.quota_demand());
                context.set_quota_permit(permit?);
            }
            context.set_project(project);
        }
        let limit = self
            .max_request_bytes
            .saturating_mul(MAX_DECODED_FACTOR)
            .max(MIN_DECODED);
        let decoded = self.shapes.decoded_size(shape, message, limit);
        let decoded =
            decoded.map_err(|RequestTooComplex| ServiceError::request_too_complex(limit))?;
        // The bytes of the message were counted when they arrived.
        Ok(context
            .share()
            .grow(decoded.saturating_sub(message.len()))?)
    }

    async fn call_handler<S>(
        &self,
        mut inner: S,
        request: Request<Body>,
        (kind, deadline): (CallKind, Deadline),
        record: &CallRecord,
    ) -> Result<StartedResponse, ServiceError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let is_endless = matches!(kind, CallKind::Watch | CallKind::Status);
        let context = record.context.clone();
        let handled = context.scope(async move {
            let response = inner.call(request).await?;
            // The size of a reply is known, and counted, after its encoding. An endless stream has no first frame yet.
            Ok::<_, Infallible>(if is_endless {
                (response, None)
            } else {
                first_frame(response).await
            })
        });
        // A panic is caught here, so that the caller gets an INTERNAL status and not a reset stream.
        let handled = AssertUnwindSafe(record.trace.scope(deadline.scope(handled)));
        let answered = tokio::time::timeout_at(deadline.instant(), handled.catch_unwind()).await;
        // The permit ends here, not at the last byte: the caller determines the speed of sending. Only
        // successful calls adjust the limit.
        if let Some(permit) = record.context.permit() {
            if let Ok(Ok(Ok((response, _)))) = &answered
                && code_of(response.headers()).is_none_or(|code| code == Code::Ok)
            {
                permit.succeeded();
            }
            permit.finish();
        }
        match answered {
            Ok(Ok(Ok((response, first)))) => {
                let first = first.map(|frame| record.replies.count(frame)).transpose()?;
                Ok((
                    status_details::with_details(response, &record.method),
                    first,
                ))
            }
            Ok(Ok(Err(impossible))) => match impossible {},
            Ok(Err(_panic)) => Err(ServiceError::fault("answer the call: its code panicked")),
            Err(_elapsed) => Err(ServiceError::deadline_exceeded()),
        }
    }

    fn record(&self, request: &Request<Body>, kind: CallKind) -> CallRecord {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let trace = CallTrace::of(request.headers(), &self.ids);
        let method = RpcMethod::of(&path);
        let span = CallSpan::begin(&trace, &path, method);
        CallRecord {
            method: path,
            known: method,
            // The duration of a stream depends on its caller and is not measured.
            is_timed: matches!(kind, CallKind::Read | CallKind::Call),
            context: CallContext::default(),
            span,
            trace: trace.id,
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            started: self.clock.monotonic(),
            code: None,
            reason: None,
            request_bytes: Arc::default(),
            response_bytes: 0,
            permit: None,
            call_share: BudgetShare::default(),
            replies: ReplyBudget::default(),
        }
    }
}

/// A response with its first frame, if the frame was already read.
type StartedResponse = (Response<Body>, Option<Frame<Bytes>>);

/// Reads the first frame of a response.
async fn first_frame(response: Response<Body>) -> StartedResponse {
    let (head, mut body) = response.into_parts();
    if body.is_end_stream() {
        return (Response::from_parts(head, body), None);
    }
    match body.frame().await {
        Some(Ok(frame)) => (Response::from_parts(head, body), Some(frame)),
        // No byte was sent yet, so the error can be the status of the whole response.
        Some(Err(status)) => (status.into_http(), None),
        None => (Response::from_parts(head, Body::empty()), None),
    }
}
