//! Accepts connections. Each connection runs in its own task, so that a slow handshake does not delay others.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http::{Request, Response};
use palimpsest_edge::tls::ServerTls;
use palimpsest_http::ApiBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tower::Service;

use super::connection::{self, ConnectionTimeouts, PREFACE_TIMEOUT};
use super::http_version::{HttpVersion, detect};
use super::http1;
use super::response_body::ResponseBody;
use crate::net::{Acceptor, Connection, MonitoredConnection};

/// Accepts connections until `stop`, then waits until all of them are closed.
pub(super) async fn serve<S>(
    door: Acceptor,
    tls: Option<ServerTls>,
    service: S,
    (times, serves_http1): (ConnectionTimeouts, bool),
    stop: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<ApiBody<ResponseBody>>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let serving = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = door.accept() => accepted,
        };
        let io = MonitoredConnection::new(
            accepted.stream,
            times.stall(),
            accepted.slot,
            accepted.handle,
        );
        let (tls, service, stop) = (tls.clone(), service.clone(), stop.clone());
        serving.spawn(async move {
            let limits = (times, serves_http1);
            if let Err(error) = serve_one(io, tls, service, limits, stop).await {
                // Scanners, broken networks and misconfigured callers cause these errors. They are not faults of the
                // server.
                tracing::debug!(%error, "a connection failed");
            }
        });
    }
    // Closes the listening socket, so that no new connection waits in its backlog during the drain.
    drop(door);
    serving.close();
    serving.wait().await;
}

async fn serve_one<S>(
    io: MonitoredConnection<TcpStream>,
    tls: Option<ServerTls>,
    service: S,
    limits: (ConnectionTimeouts, bool),
    stop: CancellationToken,
) -> io::Result<()>
where
    S: Service<Request<Body>, Response = Response<ApiBody<ResponseBody>>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let connection = Arc::clone(io.slot().connection());
    let Some(tls) = tls else {
        return serve_http(io, &connection, service, limits, stop).await;
    };
    let shaken = io.then(async |stream| tls.handshake(stream).await);
    let io = tokio::select! {
        // The handshake runs on the raw stream, so the cut that `MonitoredConnection` normally checks is checked here.
        () = connection.shutdown().cancelled() => return Err(io::ErrorKind::TimedOut.into()),
        io = shaken => io?,
    };
    // From here on, the connection does not count towards `tls.max_handshakes`.
    connection.handshake_done();
    serve_http(io, &connection, service, limits, stop).await
}

/// Serves the version of HTTP that the first bytes show.
async fn serve_http<T, S>(
    io: MonitoredConnection<T>,
    connection: &Connection,
    service: S,
    (times, serves_http1): (ConnectionTimeouts, bool),
    stop: CancellationToken,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Body>, Response = Response<ApiBody<ResponseBody>>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    // Without the HTTP API, every connection is HTTP/2, and no first bytes need to be read.
    if !serves_http1 {
        return connection::serve(io, service, times, stop).await;
    }
    let mut version = HttpVersion::Two;
    let detecting = io.then(async |stream| {
        let detected = timeout(PREFACE_TIMEOUT, detect(stream)).await??;
        version = detected.0;
        Ok::<_, io::Error>(detected.1)
    });
    // The detection runs on the raw stream too, so the cut is checked here, as for the handshake of TLS.
    let io = tokio::select! {
        () = connection.shutdown().cancelled() => return Err(io::ErrorKind::TimedOut.into()),
        io = detecting => io?,
    };
    match version {
        HttpVersion::Two => connection::serve(io, service, times, stop).await,
        HttpVersion::One => http1::serve(io, service, times, stop).await,
    }
}
