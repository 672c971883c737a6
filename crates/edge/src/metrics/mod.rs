//! The metrics of the process, from one registry for both exports: Prometheus scrapes and OTLP.
//!
//! The registry is that of the OpenTelemetry SDK, and `opentelemetry-prometheus` reads it for scrapes. The alternative,
//! `prometheus-client` or `metrics` with a bridge to OTLP, would need a second data model and a custom bridge. With the
//! SDK, names, units, labels and buckets are the same on both sides by construction.
//!
//! Most callers use functions by meaning and do not depend on the SDK. A port adds its own metrics with [`Metrics::meter`]
//! and `instruments`. Values that other components count are read at collection time (`observers`). Each metric is
//! defined in the table of `names`.

mod events;
pub mod instruments;
pub mod names;
mod observers;
mod outbound;
mod process;
mod projects;
mod sampler;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Histogram, Meter, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::metrics::reader::MetricReader;
use palimpsest_store::sled::Observer;
use palimpsest_summarize::Usage;
use prometheus::{Registry, TextEncoder};
use tokio::runtime::RuntimeMetrics;

use self::events::EventMetrics;
use self::instruments::histogram;
use self::outbound::OutboundMetrics;
pub use self::projects::ProjectCall;
use self::projects::ProjectMetrics;
pub use self::sampler::Sampler;
use palimpsest_engine::tally::{self, EventTally};

/// The metrics of the server. Clones share the same registry.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    provider: SdkMeterProvider,
    meter: Meter,
    events: EventMetrics,
    outbound: OutboundMetrics,
    projects: ProjectMetrics,
    store: StoreTimes,
}

#[derive(Debug)]
struct StoreTimes {
    group_size: Histogram<f64>,
    sync: Histogram<f64>,
    wait: Histogram<f64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let no_reader = None::<opentelemetry_sdk::metrics::ManualReader>;
        Self::new(Resource::builder_empty().build(), no_reader)
    }
}

impl Metrics {
    /// Creates metrics for Prometheus, and for `reader` if given.
    pub(crate) fn new(resource: Resource, reader: Option<impl MetricReader>) -> Self {
        let registry = Registry::new();
        let scrapes = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            // Prometheus adds its own target labels, and the server has a single scope.
            .without_target_info()
            .scope_info_enabled(false)
            .build();
        let mut provider = SdkMeterProvider::builder().with_resource(resource);
        // The build fails only if the registry has an equal collector, and this registry is new.
        if let Ok(scrapes) = scrapes {
            provider = provider.with_reader(scrapes);
        }
        if let Some(reader) = reader {
            provider = provider.with_reader(reader);
        }
        let provider = provider.build();
        let meter = provider.meter("palimpsest");
        process::observe_process(&meter);
        Self(Arc::new(Inner {
            events: EventMetrics::new(&meter),
            outbound: OutboundMetrics::new(&meter),
            projects: ProjectMetrics::new(&meter),
            store: StoreTimes {
                group_size: histogram(&meter, &names::STORE_GROUP_SIZE),
                sync: histogram(&meter, &names::STORE_SYNC),
                wait: histogram(&meter, &names::STORE_COMMIT_WAIT),
            },
            registry,
            provider,
            meter,
        }))
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn exposition(&self) -> String {
        let families = self.0.registry.gather();
        // Encoding fails only for an invalid metric name, and a test covers all names.
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_default()
    }

    /// Exports the remaining measurements and stops. Waits at most `timeout`.
    pub(crate) fn shutdown(&self, timeout: Duration) {
        // The exporter has already logged a failure.
        let _ = self.0.provider.shutdown_with_timeout(timeout);
    }

    /// Returns the meter that creates instruments in this registry.
    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Registers the metrics of the tokio runtime.
    pub fn observe_runtime(&self, runtime: RuntimeMetrics) {
        process::observe_runtime(&self.0.meter, runtime);
    }

    /// Records a request to a model, including its retries.
    pub fn model_request(
        &self,
        endpoint: &'static str,
        purpose: &'static str,
        outcome: (&'static str, Option<Usage>),
        took: Duration,
    ) {
        self.0.outbound.model(endpoint, purpose, outcome, took);
    }

    /// Records a call of a project. All ports share the labels of projects, whose number is bounded.
    pub fn project_call(&self, call: &ProjectCall<'_>) {
        self.0.projects.ended(call);
    }

    /// Records a call of a hook.
    pub fn hook_call(&self, hook: &'static str, outcome: &'static str, took: Duration) {
        self.0.outbound.hook(hook, outcome, took);
    }
}

impl tally::Observer for Metrics {
    fn committed(&self, tally: &EventTally) {
        self.0.events.count(tally);
    }
}

impl Observer for Metrics {
    fn waited(&self, time: Duration) {
        self.0.store.wait.record(time.as_secs_f64(), &[]);
    }

    fn synced(&self, changes: usize, time: Duration) {
        self.0
            .store
            .group_size
            .record(instruments::size(changes), &[]);
        self.0.store.sync.record(time.as_secs_f64(), &[]);
    }
}

#[cfg(test)]
mod tests;
