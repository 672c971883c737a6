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
use palimpsest_engine::quotas::Quotas;
use palimpsest_settings::{Config, GrpcConfig};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::admission::{Admission, Kind};
use super::answer::{Answer, End, Live, Record, Replies, code_of};
use super::bare;
use super::budget::Share;
use super::deadline::asked_for;
use super::gate::Gate;
use super::receive::{Rules, receive};
use super::shape::{Shape, Shapes, TooMuch};
use super::shed::Shed;
use super::size::Limited;
use super::span::CallSpan;
use super::ticket::Ticket;
use crate::access::Place;
use crate::errors::ServiceError;
use crate::metrics::{Method, Metrics};
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
type Party = Arc<net::Party>;

/// What surrounds every call. It is one layer and not one for each step, so that the order of the
/// steps can be read in one function, and a call is boxed once.
#[derive(Debug, Clone)]
pub struct Edge(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    grpc: GrpcConfig,
    max_request_bytes: usize,
    admission: Admission,
    clock: Arc<dyn Clock>,
    ids: Arc<IdSource>,
    gate: Gate,
    quotas: Option<Arc<Quotas>>,
    shapes: Shapes,
    metrics: Metrics,
    shed: Shed,
}

impl Edge {
    /// What surrounds every call.
    pub fn new(
        config: &Config,
        admission: Admission,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
        (gate, quotas): (Gate, Option<Arc<Quotas>>),
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Shared {
            grpc: config.grpc.clone(),
            max_request_bytes: config.limits.max_request_bytes,
            admission,
            clock,
            ids,
            gate,
            quotas,
            shapes: Shapes::new(),
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
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for EdgeService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if self.shared.admission.refuses(Kind::of(path)) {
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

impl Shared {
    async fn answer<S>(&self, inner: S, request: Request<Body>) -> Response<Answer>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let kind = Kind::of(request.uri().path());
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
        let end = matches!(kind, Kind::Watch | Kind::Status).then(|| {
            let draining = self.admission.draining();
            let lapsed = self.gate.clone().lapsed(record.ticket.clone());
            End::new(draining.clone().cancelled_owned(), lapsed)
        });
        response.map(|body| Answer::Live(Live::new(first, body, record, end)))
    }

    /// The handler's answer, within the deadline and whatever the handler does, and its first part.
    ///
    /// What costs least is asked first. A call keeps no place before all of its request is there, and none while its
    /// reply is on its way: how fast either goes is its caller's choice.
    async fn run<S>(
        &self,
        inner: S,
        mut request: Request<Body>,
        kind: Kind,
        record: &mut Record,
    ) -> Result<Begun, ServiceError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let timeout = self.grpc.timeout(asked_for(request.headers()));
        let timeout = if kind == Kind::Probe {
            timeout.min(PROBE)
        } else {
            timeout
        };
        let deadline = Deadline::after(timeout);
        let pass = self.gate.identify(&mut request)?;
        let connection = request.extensions_mut().remove::<Arc<Connection>>();
        let of = connection.as_deref().map(Connection::party);
        let party = self.admission.party(pass.as_ref(), of);
        // A call that anybody may make proves nothing, unless anybody may make all of them.
        let is_open = !self.gate.is_closed() && !matches!(kind, Kind::Probe | Kind::Status);
        if (pass.is_some() || is_open)
            && let Some(connection) = &connection
        {
            connection.prove();
        }
        drop(connection);
        record.present = self.admission.enter(kind, &party)?;
        let is_watch = kind == Kind::Watch;
        let share = self.admission.request_share(&party);
        let shares = (share, Share::new(self.admission.replies(), &party));
        record.ticket = Ticket::new(record.span.clone(), shares, is_watch, deadline);
        if let Some(pass) = pass {
            record.ticket.identify(pass);
        }
        record.replies = Replies::new(self.admission.replies(), &party);
        let mut request = self
            .received(request, kind, (deadline, &party), record)
            .await?;
        record.permit = self.admission.admit(kind)?;
        if is_watch {
            record.present = Share::default();
        }
        let place = self.admission.work(kind, &record.method, deadline).await?;
        record.ticket.set_place(place);
        request.extensions_mut().insert(deadline);
        request.extensions_mut().insert(record.ticket.clone());
        let begun = self.handled(inner, request, (kind, deadline), record).await;
        if !matches!(kind, Kind::Watch | Kind::Status) {
            record.permit = None;
        }
        begun
    }

    /// The request, all of which is there, and which its caller may make.
    async fn received(
        &self,
        request: Request<Body>,
        kind: Kind,
        (deadline, party): (Deadline, &Party),
        record: &Record,
    ) -> Result<Request<Body>, ServiceError> {
        let (limit, seen) = (self.max_request_bytes, &record.request_bytes);
        let stall = Duration::from_millis(self.grpc.stall_timeout_ms);
        let Some(shape) = self.shapes.of(request.uri().path()) else {
            // Whoever asks reflection, or watches, may be silent for as long as it likes.
            let stall = if kind == Kind::Status {
                Duration::MAX
            } else {
                stall
            };
            let share = self.admission.request_share(party);
            let seen = Arc::clone(seen);
            return Ok(request.map(|body| Body::new(Limited::new(body, limit, share, stall, seen))));
        };
        let may = self.gate.may_be_right(&record.ticket);
        let latest = Instant::now() + Duration::from_millis(self.grpc.body_timeout_ms);
        let rules = Rules {
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
    fn check(&self, shape: &Shape, message: &[u8], ticket: &Ticket) -> Result<(), ServiceError> {
        let place = Place::of(shape.name(message));
        self.gate.authorize(ticket, place.as_ref())?;
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
        let decoded = decoded.map_err(|TooMuch| ServiceError::RequestTooComplex { limit })?;
        ticket.share().grow(decoded.saturating_sub(message.len()))
    }

    async fn handled<S>(
        &self,
        mut inner: S,
        request: Request<Body>,
        (kind, deadline): (Kind, Deadline),
        record: &Record,
    ) -> Result<Begun, ServiceError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let is_endless = matches!(kind, Kind::Watch | Kind::Status);
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

    fn record(&self, request: &Request<Body>, kind: Kind) -> Record {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let trace = CallTrace::of(request.headers(), &self.ids);
        let method = Method::of(&path);
        let span = CallSpan::begin(&trace, &path, method);
        Record {
            method: path,
            known: method,
            is_timed: matches!(kind, Kind::Read | Kind::Call),
            ticket: Ticket::default(),
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
            present: Share::default(),
            replies: Replies::default(),
        }
    }
}

/// An answer, and its first part where that was made already.
type Begun = (Response<Body>, Option<Frame<Bytes>>);

/// Makes the first part of an answer.
async fn begin(response: Response<Body>) -> Begun {
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
