//! What the server measures, told in two ways from one registry: Prometheus reads it, OTLP sends it.
//!
//! The registry is the OpenTelemetry SDK's, and `opentelemetry-prometheus` reads it for scrapes. The other way
//! round, `prometheus-client` or `metrics` with a bridge to OTLP, would mean a second model of the data and a bridge
//! that is nobody's; with the SDK, names, units, labels and buckets are the same on both sides by construction.
//!
//! The rest of the server knows functions by their meaning, and none of that. What is counted elsewhere anyway is
//! read when somebody looks (`watched`). Each metric is in the table of `names`, and only what is in it can be made.

mod calls;
mod happened;
mod make;
pub mod names;
mod others;
mod process;
mod sampler;
mod watched;

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

use self::calls::CallMetrics;
pub(crate) use self::calls::{CallEnded, RpcMethod, code_name};
use self::happened::EventMetrics;
use self::make::histogram;
use self::others::Others;
pub(crate) use self::sampler::Sampler;
use palimpsest_engine::tally::{self, EventTally};

/// What the server measures.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    provider: SdkMeterProvider,
    meter: Meter,
    calls: CallMetrics,
    happened: EventMetrics,
    others: Others,
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
        let nobody = None::<opentelemetry_sdk::metrics::ManualReader>;
        Self::new(Resource::builder_empty().build(), nobody)
    }
}

impl Metrics {
    /// Metrics that Prometheus can read, and `reader` too.
    pub(crate) fn new(resource: Resource, reader: Option<impl MetricReader>) -> Self {
        let registry = Registry::new();
        let scrapes = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            // Prometheus knows its target itself, and there is one scope.
            .without_target_info()
            .scope_info_enabled(false)
            .build();
        let mut provider = SdkMeterProvider::builder().with_resource(resource);
        if let Ok(scrapes) = scrapes {
            provider = provider.with_reader(scrapes);
        }
        if let Some(reader) = reader {
            provider = provider.with_reader(reader);
        }
        let provider = provider.build();
        let meter = provider.meter("palimpsest");
        process::watch_process(&meter);
        Self(Arc::new(Inner {
            calls: CallMetrics::new(&meter),
            happened: EventMetrics::new(&meter),
            others: Others::new(&meter),
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

    /// All of them in Prometheus's text format.
    pub fn exposition(&self) -> String {
        let families = self.0.registry.gather();
        // Only a name that is none fails, and a test reads all of them.
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_default()
    }

    /// Sends what was measured since the last time, and nothing more.
    pub(crate) fn shutdown(&self, timeout: Duration) {
        // What could not be sent has been told by the exporter.
        let _ = self.0.provider.shutdown_with_timeout(timeout);
    }

    fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Tells of the runtime that calls run on.
    pub(crate) fn watch_runtime(&self, runtime: RuntimeMetrics) {
        process::watch_runtime(&self.0.meter, runtime);
    }

    /// A call's last byte is sent, or its caller has gone.
    pub(crate) fn call_ended(&self, call: CallEnded<'_>) {
        self.0.calls.ended(call);
    }

    /// A model was asked, retries included.
    pub(crate) fn asked_model(
        &self,
        endpoint: &'static str,
        purpose: &'static str,
        outcome: (&'static str, Option<Usage>),
        took: Duration,
    ) {
        self.0.others.model(endpoint, purpose, outcome, took);
    }

    /// A hook was called.
    pub(crate) fn called_hook(&self, hook: &'static str, outcome: &'static str, took: Duration) {
        self.0.others.hook(hook, outcome, took);
    }
}

impl tally::Observer for Metrics {
    fn committed(&self, tally: &EventTally) {
        self.0.happened.count(tally);
    }
}

impl Observer for Metrics {
    fn waited(&self, time: Duration) {
        self.0.store.wait.record(time.as_secs_f64(), &[]);
    }

    fn synced(&self, changes: usize, time: Duration) {
        self.0.store.group_size.record(make::size(changes), &[]);
        self.0.store.sync.record(time.as_secs_f64(), &[]);
    }
}

#[cfg(test)]
mod tests;
