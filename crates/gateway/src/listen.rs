//! Serves HTTP on the connections of agents.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use palimpsest_edge::net::{self, AcceptedConnection, Acceptor, Connection, MonitoredConnection};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{AgentConnection, ConnectionEnd};
use super::forward::Forwarder;

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_HEAD_BYTES_HTTP2: u32 = 64 * 1024;
/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 128;
/// The maximum number of concurrent streams of one HTTP/2 connection.
const MAX_HTTP2_STREAMS: u32 = 256;
/// The maximum time of a write without progress: an agent can pause, and a response must not wait forever.
const MAX_WRITE_STALL: Duration = Duration::from_mins(10);

/// Accepts connections until `stop`, then waits until all of them are closed.
pub(crate) async fn serve(
    acceptor: Acceptor,
    forwarder: Arc<Forwarder>,
    idle_timeout: Duration,
    stop: CancellationToken,
) {
    let http = builder(idle_timeout);
    let serving = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = acceptor.accept() => accepted,
        };
        let (http, forwarder, stop) = (http.clone(), Arc::clone(&forwarder), stop.clone());
        serving.spawn(serve_one(http, accepted, forwarder, idle_timeout, stop));
    }
    // A connection in the backlog would wait for the whole drain without an answer.
    drop(acceptor);
    serving.close();
    serving.wait().await;
}

fn builder(idle_timeout: Duration) -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        // The timer also runs while a connection waits for its next request.
        .header_read_timeout(idle_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .preserve_header_case(true)
        // Upstream sends a date, and a second one would change the response.
        .auto_date_header(false);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES_HTTP2)
        // An idle connection of HTTP/2 is usual. A ping finds those whose agent is gone.
        .keep_alive_interval(idle_timeout)
        .auto_date_header(false);
    http
}

async fn serve_one(
    http: Builder<TokioExecutor>,
    accepted: AcceptedConnection,
    forwarder: Arc<Forwarder>,
    idle_timeout: Duration,
    stop: CancellationToken,
) {
    let AcceptedConnection {
        stream,
        slot,
        handle,
    } = accepted;
    let connection = Arc::clone(slot.connection());
    let end = Arc::new(ConnectionEnd::default());
    let io = MonitoredConnection::new(stream, MAX_WRITE_STALL, slot, handle);
    let io = TokioIo::new(AgentConnection::new(io, Arc::clone(&end)));
    let of_service = Arc::clone(&connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let (forwarder, connection) = (Arc::clone(&forwarder), Arc::clone(&of_service));
        let end = Arc::clone(&end);
        net::answer(request, async move |request| {
            forwarder.answer(request, &connection, &end).await
        })
    });
    let mut serving = pin!(http.serve_connection(io, service));
    let mut is_closing = false;
    loop {
        tokio::select! {
            served = serving.as_mut() => {
                if let Err(error) = served {
                    // Agents that disconnect and upstreams that break a response cause these errors.
                    tracing::debug!(%error, "a connection failed");
                }
                return;
            }
            // The timer of hyper starts with the first byte, because hyper first detects the HTTP version.
            () = unused(&connection, idle_timeout) => return,
            () = stop.cancelled(), if !is_closing => {
                // A cancelled token is always ready, so without the flag this branch would run in each round.
                is_closing = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Returns when a connection had no request for `idle_timeout` since it was opened.
async fn unused(connection: &Connection, idle_timeout: Duration) {
    while let Some(idle) = connection.unused_for(Instant::now()) {
        let Some(left) = idle_timeout
            .checked_sub(idle)
            .filter(|left| !left.is_zero())
        else {
            return;
        };
        sleep(left).await;
    }
    // The connection had a request, so the timers of hyper apply from here on.
    std::future::pending::<()>().await;
}
