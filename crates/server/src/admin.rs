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
use palimpsest_worker::Stats;
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
    /// What the worker has done.
    pub summaries: Stats,
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
    let summaries = &subject.summaries;
    gauge(
        "summaries_in_work",
        "",
        "Sessions whose summaries are looked at.",
        &summaries.running(),
    );
    let mut counter = |name: &str, help: &str, value: u64| {
        let _ = writeln!(out, "# HELP palimpsest_{name} {help}");
        let _ = writeln!(out, "# TYPE palimpsest_{name} counter");
        let _ = writeln!(out, "palimpsest_{name} {value}");
    };
    counter(
        "summary_updates_total",
        "Versions of summaries that were written.",
        summaries.updates(),
    );
    counter(
        "summary_failures_total",
        "Updates of summaries that came to nothing, and models that did not write one.",
        summaries.failures(),
    );
    counter(
        "summary_file_failures_total",
        "Times that a summary.md could not be written.",
        summaries.file_failures(),
    );
    counter(
        "summary_edits_total",
        "Summaries edited by hand that were taken in.",
        summaries.edits(),
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
            summaries: Stats::default(),
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
            # HELP palimpsest_summaries_in_work Sessions whose summaries are looked at.
            # TYPE palimpsest_summaries_in_work gauge
            palimpsest_summaries_in_work 0
            # HELP palimpsest_summary_updates_total Versions of summaries that were written.
            # TYPE palimpsest_summary_updates_total counter
            palimpsest_summary_updates_total 0
            # HELP palimpsest_summary_failures_total Updates of summaries that came to nothing, and models that did not write one.
            # TYPE palimpsest_summary_failures_total counter
            palimpsest_summary_failures_total 0
            # HELP palimpsest_summary_file_failures_total Times that a summary.md could not be written.
            # TYPE palimpsest_summary_file_failures_total counter
            palimpsest_summary_file_failures_total 0
            # HELP palimpsest_summary_edits_total Summaries edited by hand that were taken in.
            # TYPE palimpsest_summary_edits_total counter
            palimpsest_summary_edits_total 0
        "##]].assert_eq(&exposition(&subject));
    }
}
