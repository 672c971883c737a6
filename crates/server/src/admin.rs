//! The HTTP port for those who run the server: is it alive, is it ready, what does it do.

use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::grpc::Health;
use crate::metrics::Metrics;

/// What the port tells about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whether the server is ready.
    pub health: Health,
    /// What is measured.
    pub metrics: Metrics,
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    subject: Subject,
    stop: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router(subject))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

fn router(subject: Subject) -> Router {
    Router::new()
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(subject)
}

async fn ready(State(subject): State<Subject>) -> impl IntoResponse {
    if subject.health.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(State(subject): State<Subject>) -> impl IntoResponse {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    (
        [(header::CONTENT_TYPE, content_type)],
        subject.metrics.exposition(),
    )
}
