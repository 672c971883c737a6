//! The way of every call, from the connection to the handler and back.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::admission::{Admission, Kind};
use super::answer::{Answer, End, Live, Record, code_of};
use super::bare;
use super::deadline::{Deadline, asked_for};
use super::gate::Gate;
use super::shed::Shed;
use super::size::Limited;
use super::span::CallSpan;
use super::ticket::Ticket;
use super::trace::Caller;
use crate::clock::{Clock, IdSource};
use crate::config::{Config, GrpcConfig};
use crate::errors::ServiceError;
use crate::metrics::{Method, Metrics};

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
        gate: Gate,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Shared {
            grpc: config.grpc.clone(),
            max_request_bytes: config.limits.max_request_bytes,
            admission,
            clock,
            ids,
            gate,
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

        let deadline = Deadline::after(self.grpc.timeout(asked_for(request.headers())));
        let outcome = match self.let_in(kind, deadline, &mut record).await {
            Ok(()) => {
                self.run(inner, request, deadline, &record)
                    .instrument(span)
                    .await
            }
            Err(refused) => Err(refused),
        };
        let response = outcome.unwrap_or_else(|error| {
            let _entered = record.span.span().enter();
            trace.within(|| Status::from(error)).into_http()
        });

        record.note(response.headers());
        let draining = self.admission.draining();
        let end = (kind == Kind::Watch).then(|| {
            let lapsed = self.gate.clone().lapsed(record.ticket.clone());
            End::new(draining.clone().cancelled_owned(), lapsed)
        });
        response.map(|body| Answer::Live(Live::new(body, record, end)))
    }

    /// Gives a call its permit and its ticket.
    async fn let_in(
        &self,
        kind: Kind,
        deadline: Deadline,
        record: &mut Record,
    ) -> Result<(), ServiceError> {
        record.permit = self.admission.admit(kind)?;
        let place = (kind, record.method.as_str(), deadline);
        record.ticket = self.admission.ticket(place, record.span.clone()).await?;
        Ok(())
    }

    /// The handler's answer, within the deadline and whatever the handler does.
    async fn run<S>(
        &self,
        mut inner: S,
        mut request: Request<Body>,
        deadline: Deadline,
        record: &Record,
    ) -> Result<Response<Body>, ServiceError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        self.gate.identify(&mut request, &record.ticket)?;
        let (limit, seen) = (self.max_request_bytes, Arc::clone(&record.request_bytes));
        // Whoever watches, or asks reflection, may be silent for as long as it likes.
        let stall = if record.ticket.need().watch {
            Duration::MAX
        } else {
            Duration::from_millis(self.grpc.stall_timeout_ms)
        };
        let ticket = record.ticket.clone();
        let mut request =
            request.map(|body| Body::new(Limited::new(body, limit, ticket.clone(), stall, seen)));
        request.extensions_mut().insert(deadline);
        request.extensions_mut().insert(record.ticket.clone());

        let handled = AssertUnwindSafe(
            record.trace.scope(
                deadline.scope(
                    record
                        .ticket
                        .clone()
                        .scope(async { inner.call(request).await }),
                ),
            ),
        );
        let answered = tokio::time::timeout_at(deadline.instant(), handled.catch_unwind()).await;
        if let Some(place) = record.ticket.place() {
            if let Ok(Ok(Ok(response))) = &answered
                && code_of(response.headers()).is_none_or(|code| code == Code::Ok)
            {
                place.succeeded();
            }
            place.finish();
        }
        match answered {
            Ok(Ok(Ok(response))) => Ok(bare::explained(response, &record.method)),
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
        let caller = Caller::of(request.headers(), &self.ids);
        let method = Method::of(&path);
        let span = CallSpan::begin(&caller, &path, method);
        Record {
            method: path,
            known: method,
            is_timed: matches!(kind, Kind::Read | Kind::Call),
            ticket: Ticket::default(),
            span,
            trace: caller.trace,
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.clone(),
            started: self.clock.monotonic(),
            code: None,
            reason: None,
            request_bytes: Arc::default(),
            response_bytes: 0,
            permit: None,
        }
    }
}
