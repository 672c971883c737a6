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
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use super::connection::{ConnectionTimeouts, MAX_HEADERS};
use super::connection_life::{ConnectionLife, LifeStep};
use super::response_body::ResponseBody;
use crate::net::{self, MonitoredConnection};

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
        let service = service.clone();
        let of_service = Arc::clone(&of_service);
        net::answer(request, async move |request| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(of_service);
            let response = service.oneshot(request).await?;
            Ok::<_, Infallible>(response.map(|body| body.keeping(call)))
        })
    });
    let mut http = Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEADERS as usize)
        .max_headers(MAX_HEADER_COUNT);
    let mut serving = pin!(http.serve_connection(TokioIo::new(io), service));
    let mut life = ConnectionLife::begin();
    loop {
        let next = match life.step(&connection, &times) {
            LifeStep::End => return Ok(()),
            LifeStep::Close => {
                // The next step waits for the end of the grace period.
                serving.as_mut().graceful_shutdown();
                continue;
            }
            LifeStep::Wait(until) => until,
        };
        tokio::select! {
            served = serving.as_mut() => return served.map_err(io::Error::other),
            // A cancelled token is always ready, so without the condition this branch would run in each round.
            () = stop.cancelled(), if !life.is_closing() => {
                serving.as_mut().graceful_shutdown();
                life.close(&times);
            }
            () = sleep_until(next) => {}
        }
    }
}
