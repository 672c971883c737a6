//! One HTTP/1.1 connection and the requests on it, one after the other.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use palimpsest_http::ApiBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use super::connection::{CLOSE_TIMEOUT, ConnectionTimeouts, MAX_HEADERS};
use super::response_body::ResponseBody;
use crate::net::MonitoredConnection;

/// The maximum time for the head of a request, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum number of headers of a request.
const MAX_HEADER_COUNT: usize = 100;

/// Serves a connection until it closes or reaches a time limit.
pub(super) async fn serve<T, S>(
    io: MonitoredConnection<T>,
    service: S,
    times: ConnectionTimeouts,
    stop: CancellationToken,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Body>, Response = Response<ApiBody<ResponseBody>>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let connection = Arc::clone(io.slot().connection());
    let of_service = Arc::clone(&connection);
    let service = service_fn(move |request: Request<Incoming>| {
        // Counted until the end of the response, so that the connection is not closed as idle.
        let call = of_service.call();
        let (head, body) = request.into_parts();
        let (body, rest) = palimpsest_http::track(body);
        let mut request = Request::from_parts(head, Body::new(body));
        request.extensions_mut().insert(Arc::clone(&of_service));
        let service = service.clone();
        async move {
            let response = service.oneshot(request).await?;
            rest.read().await;
            Ok::<_, Infallible>(response.map(|body| body.keeping(call)))
        }
    });
    let mut http = Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEADERS as usize)
        .max_headers(MAX_HEADER_COUNT);
    let mut serving = pin!(http.serve_connection(TokioIo::new(io), service));
    let began = Instant::now();
    let mut closing: Option<Instant> = None;
    // As for HTTP/2, closing has two steps: the request in flight is answered, and a second limit ends the connection.
    loop {
        let now = Instant::now();
        let idle = connection.unused_for(now);
        let begins_to_close = if closing.is_some() {
            None
        } else if idle.is_some_and(|idle| idle >= times.first_call) {
            Some(now + CLOSE_TIMEOUT)
        } else if now >= began + times.age {
            Some(now + times.grace)
        } else {
            None
        };
        if let Some(until) = begins_to_close {
            serving.as_mut().graceful_shutdown();
            closing = Some(until);
        }
        if closing.is_some_and(|until| now >= until) {
            return Ok(());
        }
        let left = times.first_call.saturating_sub(idle.unwrap_or_default());
        let next = closing.unwrap_or_else(|| (began + times.age).min(now + left));
        tokio::select! {
            served = serving.as_mut() => return served.map_err(io::Error::other),
            () = stop.cancelled(), if closing.is_none() => {
                serving.as_mut().graceful_shutdown();
                // The drain has a deadline of its own, so the age limit here is only a safeguard.
                closing = Some(now + times.age);
            }
            () = sleep_until(next) => {}
        }
    }
}
