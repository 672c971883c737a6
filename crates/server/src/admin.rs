//! The HTTP port for those who run the server: is it alive, is it ready, what does it do.
//!
//! The metrics are three lines of text written by hand: a metrics crate comes in together with the
//! OTLP exporter, which brings its own registry.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::grpc::{Admission, Health, Mutations};

/// What the port tells about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whether the server is ready.
    pub health: Health,
    /// How many calls there are.
    pub admission: Admission,
    /// How many changes are under way.
    pub mutations: Mutations,
    /// How long it has been up: the time since the clock was made.
    pub clock: Arc<dyn Clock>,
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
    ([(header::CONTENT_TYPE, content_type)], exposition(&subject))
}

/// The metrics in Prometheus's text format.
fn exposition(subject: &Subject) -> String {
    let in_flight = subject.admission.in_flight();
    let version = env!("CARGO_PKG_VERSION");
    let mut out = String::new();
    let mut gauge = |name: &str, labels: &str, help: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "# HELP palimpsest_{name} {help}");
        let _ = writeln!(out, "# TYPE palimpsest_{name} gauge");
        let _ = writeln!(out, "palimpsest_{name}{labels} {value}");
    };
    gauge(
        "build_info",
        &format!("{{version=\"{version}\"}}"),
        "Always 1; the label says what runs.",
        &1,
    );
    gauge(
        "uptime_seconds",
        "",
        "Seconds since the start.",
        &subject.clock.monotonic().as_secs_f64(),
    );
    gauge(
        "ready",
        "",
        "1 while calls can be served.",
        &u8::from(subject.health.is_ready()),
    );
    gauge(
        "grpc_calls_in_flight",
        "",
        "Calls that are being answered.",
        &in_flight.calls,
    );
    gauge(
        "grpc_watches_in_flight",
        "",
        "Streams without an end that are open.",
        &in_flight.watches,
    );
    gauge(
        "mutations_in_flight",
        "",
        "Changes that go on whether or not their caller waits.",
        &subject.mutations.count(),
    );
    out
}

#[cfg(test)]
#[expect(
    clippy::needless_raw_string_hashes,
    reason = "as expect-test writes them"
)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use palimpsest_core::ids::Timestamp;

    use super::*;
    use crate::clock::ManualClock;
    use crate::config::GrpcConfig;

    #[tokio::test]
    async fn the_metrics_are_prometheus_text() {
        let clock = ManualClock::at(Timestamp::default());
        clock.advance(Duration::from_millis(1_500));
        let subject = Subject {
            health: Health::new().await,
            admission: Admission::new(&GrpcConfig::default(), CancellationToken::new()),
            mutations: Mutations::default(),
            clock: Arc::new(clock),
        };
        expect![[r##"
            # HELP palimpsest_build_info Always 1; the label says what runs.
            # TYPE palimpsest_build_info gauge
            palimpsest_build_info{version="0.1.0-dev"} 1
            # HELP palimpsest_uptime_seconds Seconds since the start.
            # TYPE palimpsest_uptime_seconds gauge
            palimpsest_uptime_seconds 1.5
            # HELP palimpsest_ready 1 while calls can be served.
            # TYPE palimpsest_ready gauge
            palimpsest_ready 0
            # HELP palimpsest_grpc_calls_in_flight Calls that are being answered.
            # TYPE palimpsest_grpc_calls_in_flight gauge
            palimpsest_grpc_calls_in_flight 0
            # HELP palimpsest_grpc_watches_in_flight Streams without an end that are open.
            # TYPE palimpsest_grpc_watches_in_flight gauge
            palimpsest_grpc_watches_in_flight 0
            # HELP palimpsest_mutations_in_flight Changes that go on whether or not their caller waits.
            # TYPE palimpsest_mutations_in_flight gauge
            palimpsest_mutations_in_flight 0
        "##]].assert_eq(&exposition(&subject));
    }
}
