//! Metrics of values that the gRPC server counts. They are read at collection time, so calls have no overhead.

use std::sync::Arc;

use opentelemetry::KeyValue;
use palimpsest_edge::metrics::instruments::{number, observable_gauge, observable_value, size};
use palimpsest_edge::metrics::{Metrics, names};
use palimpsest_edge::telemetry::panics;
use palimpsest_engine::clock::Clock;
use palimpsest_worker::WorkerStats;

use crate::grpc::{CallLimits, Health, Mutations};

/// Registers the metrics of the server as a whole.
pub(crate) fn observe_server(
    metrics: &Metrics,
    (health, clock): (&Health, &Arc<dyn Clock>),
    (admission, mutations): (&CallLimits, &Mutations),
    summaries: &WorkerStats,
) {
    let meter = metrics.meter();
    // Each callback outlives this function, so it captures its own clone of a counter handle.
    let labels = vec![KeyValue::new("version", env!("CARGO_PKG_VERSION"))];
    observable_gauge(meter, &names::BUILD, move || vec![(1.0, labels.clone())]);
    let clock = Arc::clone(clock);
    observable_value(meter, &names::UPTIME, move || {
        clock.monotonic().as_secs_f64()
    });
    let health = health.clone();
    observable_value(meter, &names::READY, move || {
        f64::from(u8::from(health.is_ready()))
    });
    observable_value(meter, &names::PANICS, || number(panics()));
    let mutations = mutations.clone();
    observable_value(meter, &names::MUTATIONS, move || size(mutations.count()));
    let kind = |kind: &'static str| vec![KeyValue::new("kind", kind)];
    let of = admission.clone();
    observable_gauge(meter, &names::RPC_IN_FLIGHT, move || {
        let now = of.in_flight();
        vec![
            (size(now.calls), kind("call")),
            (size(now.watches), kind("watch")),
        ]
    });
    let most = admission.max_in_flight();
    observable_gauge(meter, &names::RPC_IN_FLIGHT_MAX, move || {
        vec![
            (size(most.calls), kind("call")),
            (size(most.watches), kind("watch")),
        ]
    });
    observe_admission(metrics, admission);
    observe_memory_updates(metrics, summaries);
}

fn observe_admission(metrics: &Metrics, admission: &CallLimits) {
    let one = |metric, read: fn(&CallLimits) -> f64| {
        let of = admission.clone();
        observable_value(metrics.meter(), metric, move || read(&of));
    };
    one(&names::CONCURRENCY_LIMIT, |now| size(now.limit()));
    one(&names::SHED, |now| number(now.shed_count()));
    one(&names::REQUEST_MEMORY, |now| size(now.request_bytes()));
    one(&names::REPLY_MEMORY, |now| size(now.reply_bytes()));
}

fn observe_memory_updates(metrics: &Metrics, summaries: &WorkerStats) {
    let count = |metric, read: fn(&WorkerStats) -> u64| {
        let of = summaries.clone();
        observable_value(metrics.meter(), metric, move || number(read(&of)));
    };
    count(&names::MEMORY_UPDATES_IN_PROGRESS, WorkerStats::running);
    count(&names::MEMORY_UPDATES, WorkerStats::updates);
    count(&names::MEMORY_UPDATE_FAILURES, WorkerStats::failures);
    count(&names::MEMORY_FILE_FAILURES, WorkerStats::file_failures);
    count(&names::MEMORY_EDITS, WorkerStats::edits);
}
