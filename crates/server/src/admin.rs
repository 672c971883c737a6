//! The HTTP admin port: liveness, readiness and metrics.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use palimpsest_edge::metrics::Metrics;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::grpc::Health;
use crate::net::{AcceptedConnection, Acceptor, MonitoredConnection};

/// The maximum silence of an admin connection, and the maximum time of a write without progress.
const ADMIN_IDLE: Duration = Duration::from_secs(30);

/// The state that the admin port reports.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// The health of the server.
    pub health: Health,
    /// The metrics registry of the server.
    pub metrics: Metrics,
}

/// Serves until `stop`, then finishes open requests.
pub(crate) async fn serve(
    listener: AdminListener,
    subject: AdminState,
    stop: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router(subject))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

fn router(subject: AdminState) -> Router {
    Router::new()
        .route("/healthz", get(liveness))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .with_state(subject)
}

/// Returns 503 only if the process needs a restart, so that a supervisor restarts it.
async fn liveness(State(subject): State<AdminState>) -> impl IntoResponse {
    if subject.health.is_alive() {
        (StatusCode::OK, "alive\n")
    } else {
        let why = "the store has ended and must be restarted\n";
        (StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

async fn readiness(State(subject): State<AdminState>) -> impl IntoResponse {
    if subject.health.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(State(subject): State<AdminState>) -> impl IntoResponse {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    (
        [(header::CONTENT_TYPE, content_type)],
        subject.metrics.exposition(),
    )
}

/// The listener of the admin port, for `axum`.
#[derive(Debug)]
pub(crate) struct AdminListener(Acceptor);

impl AdminListener {
    pub(crate) fn new(door: Acceptor) -> Self {
        Self(door)
    }
}

impl axum::serve::Listener for AdminListener {
    type Io = MonitoredConnection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let accepted = self.0.accept().await;
        let from = accepted.stream.peer_addr();
        // axum requires an address, and no handler of this port uses it.
        let from = from.unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        let AcceptedConnection {
            stream,
            slot,
            handle,
        } = accepted;
        let io = MonitoredConnection::new(stream, ADMIN_IDLE, slot, handle).with_idle(ADMIN_IDLE);
        (io, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
