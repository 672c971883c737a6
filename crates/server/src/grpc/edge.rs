//! The way of every call, from the connection to the handler and back.

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
use palimpsest_engine::call::Deadline;
use palimpsest_engine::clock::{Clock, IdSource};
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_settings::{Config, GrpcConfig};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::authn::Authn;
use super::bare;
use super::budget::BudgetShare;
use super::call_context::CallContext;
use super::call_limits::{CallKind, CallLimits};
use super::deadline::asked_for;
use super::receive::{BodyLimits, receive};
use super::response_body::{CallRecord, Live, ReplyBudget, ResponseBody, StreamEnd, code_of};
use super::shape::{RequestShape, RequestShapes, RequestTooComplex};
use super::shed::Shed;
use super::size::Limited;
use super::span::CallSpan;
use crate::access::ResourceScope;
use crate::errors::ServiceError;
use crate::metrics::{Metrics, RpcMethod};
use crate::net::{self, Connection};
use crate::telemetry::CallTrace;

/// How much is read of a call whose caller may do nothing of the kind: enough to say so about the right project.
const ENOUGH: usize = 64 * 1024;
/// How long a probe may take.
const PROBE: Duration = Duration::from_secs(10);
/// A request may take so many times its largest size once it is decoded, and at least so much.
const DECODED: usize = 2;
const MIN_DECODED: usize = 8 << 20;

/// Whom a call is from, as far as shares go.
type ShareGroupSource = Arc<net::ShareGroup>;

/// What surrounds every call. It is one layer and not one for each step, so that the order of the
/// steps can be read in one function, and a call is boxed once.
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
    metrics: Metrics,
    shed: Shed,
}

impl Edge {
    /// What surrounds every call.
    pub fn new(
        config: &Config,
        admission: CallLimits,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
        (gate, quotas): (Authn, Option<Arc<QuotaTracker>>),
        metrics: Metrics,
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
            metrics,
            shed: Shed::new(),
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

/// A service with the edge around it.
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
        if self.shared.admission.refuses(CallKind::of(path)) {
            let refusal = self.shared.shed.answer(path, &self.shared.metrics);
            return Box::pin(std::future::ready(Ok(refusal)));
        }
        // The clone takes the next call; the one that said it was ready takes this.
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
            let _entered = record.span.span().enter();
            let refused = trace.within(|| Status::from(error)).into_http();
            (refused, None)
        });
        record.note(response.headers());
        let end = matches!(kind, CallKind::Watch | CallKind::Status).then(|| {
            let draining = self.admission.draining();
            let lapsed = self.authn.clone().lapsed(record.ticket.clone());
            StreamEnd::new(draining.clone().cancelled_owned(), lapsed)
        });
        response.map(|body| ResponseBody::Live(Live::new(first, body, record, end)))
    }

    /// The handler's answer, within the deadline and whatever the handler does, and its first part.
    ///
    /// What costs least is asked first. A call keeps no place before all of its request is there, and none while its
    /// reply is on its way: how fast either goes is its caller's choice.
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
        let timeout = self.grpc.timeout(asked_for(request.headers()));
        let timeout = if kind == CallKind::Probe {
            timeout.min(PROBE)
        } else {
            timeout
        };
        let deadline = Deadline::after(timeout);
        let pass = self.authn.identify(&mut request)?;
        let connection = request.extensions_mut().remove::<Arc<Connection>>();
        let of = connection.as_deref().map(Connection::party);
        let party = self.admission.party(pass.as_ref(), of);
        // A call that anybody may make proves nothing, unless anybody may make all of them.
        let is_open =
            !self.authn.is_closed() && !matches!(kind, CallKind::Probe | CallKind::Status);
        if (pass.is_some() || is_open)
            && let Some(connection) = &connection
        {
            connection.prove();
        }
        drop(connection);
        record.present = self.admission.enter(kind, &party)?;
        let is_watch = kind == CallKind::Watch;
        let share = self.admission.request_share(&party);
        let shares = (share, BudgetShare::new(self.admission.replies(), &party));
        record.ticket = CallContext::new(record.span.clone(), shares, is_watch, deadline);
        if let Some(pass) = pass {
            record.ticket.identify(pass);
        }
        record.replies = ReplyBudget::new(self.admission.replies(), &party);
        let mut request = self
            .received(request, kind, (deadline, &party), record)
            .await?;
        record.permit = self.admission.admit(kind)?;
        if is_watch {
            record.present = BudgetShare::default();
        }
        let place = self.admission.work(kind, &record.method, deadline).await?;
        record.ticket.set_place(place);
        request.extensions_mut().insert(deadline);
        request.extensions_mut().insert(record.ticket.clone());
        let begun = self.handled(inner, request, (kind, deadline), record).await;
        if !matches!(kind, CallKind::Watch | CallKind::Status) {
            record.permit = None;
        }
        begun
    }

    /// The request, all of which is there, and which its caller may make.
    async fn received(
        &self,
        request: Request<Body>,
        kind: CallKind,
        (deadline, party): (Deadline, &ShareGroupSource),
        record: &CallRecord,
    ) -> Result<Request<Body>, ServiceError> {
        let (limit, seen) = (self.max_request_bytes, &record.request_bytes);
        let stall = Duration::from_millis(self.grpc.stall_timeout_ms);
        let Some(shape) = self.shapes.of(request.uri().path()) else {
            // Whoever asks reflection, or watches, may be silent for as long as it likes.
            let stall = if kind == CallKind::Status {
                Duration::MAX
            } else {
                stall
            };
            let share = self.admission.request_share(party);
            let seen = Arc::clone(seen);
            return Ok(request.map(|body| Body::new(Limited::new(body, limit, share, stall, seen))));
        };
        let may = self.authn.may_be_right(&record.ticket);
        let latest = Instant::now() + Duration::from_millis(self.grpc.body_timeout_ms);
        let rules = BodyLimits {
            limit,
            stall,
            until: deadline.instant().min(latest),
            enough: (!may).then_some(ENOUGH),
        };
        let (head, body) = request.into_parts();
        let received = receive(body, rules, record.ticket.share(), seen).await?;
        if let Some(message) = received.message() {
            self.check(shape, message, &record.ticket)?;
        }
        Ok(Request::from_parts(head, received.into_body()))
    }

    /// Refuses what its caller may not do, what their project may not do now, and what would be too much once it is
    /// decoded, in this order.
    fn check(
        &self,
        shape: &RequestShape,
        message: &[u8],
        ticket: &CallContext,
    ) -> Result<(), ServiceError> {
        let place = ResourceScope::of(shape.name(message));
        self.authn.authorize(ticket, place.as_ref())?;
        if let Some(place) = place {
            // Its body took all of its time: nobody waits for the answer any more.
            if ticket.is_late() {
                return Err(ServiceError::DeadlineExceeded);
            }
            let project = place.into_project();
            if let Some(quotas) = &self.quotas {
                let held = quotas.enter(&project, ticket.need());
                ticket.hold(held.map_err(ServiceError::QuotaExceeded)?);
            }
            ticket.enter(project);
        }
        let limit = self
            .max_request_bytes
            .saturating_mul(DECODED)
            .max(MIN_DECODED);
        let decoded = self.shapes.decoded(shape, message, limit);
        let decoded =
            decoded.map_err(|RequestTooComplex| ServiceError::RequestTooComplex { limit })?;
        ticket.share().grow(decoded.saturating_sub(message.len()))
    }

    async fn handled<S>(
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
        let ticket = record.ticket.clone();
        let handled = ticket.scope(async move {
            let response = inner.call(request).await?;
            // What a reply takes is known, and counted, when it is encoded. A stream without an end has no part yet.
            Ok::<_, Infallible>(if is_endless {
                (response, None)
            } else {
                begin(response).await
            })
        });
        let handled = AssertUnwindSafe(record.trace.scope(deadline.scope(handled)));
        let answered = tokio::time::timeout_at(deadline.instant(), handled.catch_unwind()).await;
        if let Some(place) = record.ticket.place() {
            if let Ok(Ok(Ok((response, _)))) = &answered
                && code_of(response.headers()).is_none_or(|code| code == Code::Ok)
            {
                place.succeeded();
            }
            place.finish();
        }
        match answered {
            Ok(Ok(Ok((response, first)))) => {
                let first = first.map(|frame| record.replies.count(frame)).transpose()?;
                Ok((bare::explained(response, &record.method), first))
            }
            Ok(Ok(Err(impossible))) => match impossible {},
            Ok(Err(_panic)) => Err(ServiceError::Internal {
                doing: "answer the call: its code panicked",
                source: None,
            }),
            Err(_elapsed) => Err(ServiceError::DeadlineExceeded),
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
            is_timed: matches!(kind, CallKind::Read | CallKind::Call),
            ticket: CallContext::default(),
            span,
            trace: trace.id,
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.clone(),
            started: self.clock.monotonic(),
            code: None,
            reason: None,
            request_bytes: Arc::default(),
            response_bytes: 0,
            permit: None,
            present: BudgetShare::default(),
            replies: ReplyBudget::default(),
        }
    }
}

/// An answer, and its first part where that was made already.
type StartedResponse = (Response<Body>, Option<Frame<Bytes>>);

/// Makes the first part of an answer.
async fn begin(response: Response<Body>) -> StartedResponse {
    let (head, mut body) = response.into_parts();
    if body.is_end_stream() {
        return (Response::from_parts(head, body), None);
    }
    match body.frame().await {
        Some(Ok(frame)) => (Response::from_parts(head, body), Some(frame)),
        Some(Err(status)) => (status.into_http(), None),
        None => (Response::from_parts(head, Body::empty()), None),
    }
}
