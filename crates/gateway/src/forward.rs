//! The steps of one request.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use http::response::Parts;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use palimpsest_edge::net::Connection;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::answer::Reason;
use super::caller::{self, Callers};
use super::client::UpstreamClient;
use super::connection::ConnectionEnd;
use super::exchange::{Exchange, Readings};
use super::headers;
use super::in_flight::InFlight;
use super::reading::ResponseApi;
use super::request_body::RequestBody;
use super::response_body::{ForwardedBody, ResponseBody};
use super::route::{Api, Route};
use super::tee::TeeBody;
use super::upstream::{Upstreams, io_kind, is_reset};

/// Forwards requests to upstreams.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) client: UpstreamClient,
    pub(crate) upstreams: Upstreams,
    /// The permits of requests in flight.
    pub(crate) streams: Arc<Semaphore>,
    /// The requests in flight, for the drain.
    pub(crate) requests: TaskTracker,
    /// The maximum time without progress in the body of a request.
    pub(crate) stall: Duration,
    /// The reading of responses.
    pub(crate) readings: Arc<Readings>,
    /// The authentication and the quotas.
    pub(crate) callers: Callers,
}

/// Upstream closed the connection without a response. The agent's connection is closed in the same way.
#[derive(Debug, thiserror::Error)]
#[error("upstream closed the connection without a response")]
pub(crate) struct NoResponse(#[source] ClientError);

impl Forwarder {
    /// Returns the response to a request: that of upstream, or an answer of the gateway if upstream received no
    /// complete request.
    pub(crate) async fn answer(
        &self,
        mut request: Request<Incoming>,
        connection: &Arc<Connection>,
        end: &Arc<ConnectionEnd>,
    ) -> Result<Response<ResponseBody>, NoResponse> {
        let project = caller::take_project(request.uri_mut());
        let route = Route::of(request.method(), request.uri().path(), request.headers());
        let api = match route {
            Route::Forward(api) => api,
            Route::WebSocket(api) => return Ok(Reason::WebSocket.answer(api)),
            Route::Tunnel => return Ok(Reason::Tunnel.answer(Api::OpenAi)),
        };
        let path = request.uri().path();
        let authorized = project.and_then(|project| {
            let (method, headers) = (request.method(), request.headers());
            self.callers.authorize(method, path, project, headers)
        });
        let caller = match authorized {
            Ok(caller) => caller,
            Err(rejection) => return Ok(Reason::Caller(rejection).answer(api)),
        };
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            tracing::warn!("rejected a request: gateway.max_streams requests are in flight");
            return Ok(Reason::Overloaded.answer(api));
        };
        let quota = match self.callers.take_quota(&caller, request.headers()) {
            Ok(quota) => quota,
            Err(rejection) => return Ok(Reason::Caller(rejection).answer(api)),
        };
        // From here on, the connection is not the first one to be evicted for a new one.
        connection.mark_used();
        let in_flight = InFlight {
            _permit: permit,
            _quota: quota,
            _call: connection.call(),
            _request: self.requests.token(),
        };
        let version = request.version();
        let read_as = ResponseApi::of(request.method(), request.uri().path());
        let has_stalled = Arc::new(AtomicBool::new(false));
        let Ok(request) = self.to_upstream(request, api, &has_stalled) else {
            return Ok(Reason::Target.answer(api));
        };
        // hyper drops this future if the agent disconnects, and the client then ends the request to upstream.
        match self.client.request(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let exchange = read_as.and_then(|api| Exchange::begin(&self.readings, api, &head));
                let body = TeeBody::new(body, exchange);
                Ok(to_agent((head, body), version, end, in_flight))
            }
            Err(error) if error.is_connect() => Ok(unreachable(&error, api)),
            Err(_) if has_stalled.load(SeqCst) => Ok(Reason::Stalled.answer(api)),
            Err(error) => {
                // An answer of the gateway would hide that upstream may have processed the request.
                if version < Version::HTTP_2 && is_reset(&error) {
                    end.reset();
                }
                Err(NoResponse(error))
            }
        }
    }

    /// Addresses a request to the upstream of its API. Fails if its target cannot follow the base URL.
    fn to_upstream(
        &self,
        request: Request<Incoming>,
        api: Api,
        has_stalled: &Arc<AtomicBool>,
    ) -> Result<Request<RequestBody>, http::Error> {
        let upstream = self.upstreams.get(api);
        // The extensions of the head contain the case of the headers, so the head is reused.
        let (mut head, body) = request.into_parts();
        head.uri = upstream.uri(&head.uri)?;
        head.headers = headers::of_request(&head.headers, head.version, &upstream.host);
        head.version = head.version.min(Version::HTTP_11);
        let body = RequestBody::new(body, self.stall, Arc::clone(has_stalled));
        Ok(Request::from_parts(head, body))
    }
}

/// Returns the response of upstream for an agent that uses the HTTP version.
fn to_agent(
    (mut head, body): (Parts, TeeBody),
    version: Version,
    end: &Arc<ConnectionEnd>,
    in_flight: InFlight,
) -> Response<ResponseBody> {
    // The extensions of the head contain the case of the headers and the reason phrase, so the head is reused.
    head.headers = headers::of_response(&head.headers, version);
    head.version = version;
    let end = (version < Version::HTTP_2).then(|| Arc::clone(end));
    let body = ForwardedBody::new(body, end, in_flight);
    Response::from_parts(head, ResponseBody::Forwarded(Box::new(body)))
}

/// Returns the answer for a request without a connection to upstream.
fn unreachable(error: &ClientError, api: Api) -> Response<ResponseBody> {
    let cause = root_cause(error);
    tracing::warn!(upstream = api.name(), %cause, "cannot connect to an upstream");
    let reason = match io_kind(error) {
        Some(io::ErrorKind::TimedOut) => Reason::ConnectTimeout,
        _ => Reason::Unreachable(cause),
    };
    reason.answer(api)
}

/// Returns the text of the innermost error, which names the failure.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
