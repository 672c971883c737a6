//! Creates instruments from the table in `names`.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

use super::names::{Metric, MetricKind};

/// An observed value with its labels.
pub type Observation = (f64, Vec<KeyValue>);

/// Creates a histogram.
///
/// # Panics
///
/// Panics for a metric of another kind.
pub fn histogram(meter: &Meter, metric: &Metric) -> Histogram<f64> {
    let MetricKind::Histogram(bounds) = metric.kind else {
        unreachable!("{} is no histogram", metric.name);
    };
    meter
        .f64_histogram(metric.name)
        .with_unit(metric.unit)
        .with_description(metric.help)
        .with_boundaries(bounds.to_vec())
        .build()
}

/// Creates a counter.
pub fn counter(meter: &Meter, metric: &Metric) -> Counter<u64> {
    debug_assert_eq!(metric.kind, MetricKind::Counter, "{}", metric.name);
    meter
        .u64_counter(metric.name)
        .with_unit(metric.unit)
        .with_description(metric.help)
        .build()
}

/// Creates an instrument for a value that another component counts. It is read at collection time and costs nothing in
/// between.
///
/// # Panics
///
/// Panics for a histogram, which cannot be observed.
pub fn observable_gauge(
    meter: &Meter,
    metric: &Metric,
    look: impl Fn() -> Vec<Observation> + Send + Sync + 'static,
) {
    let tell = move |to: &dyn opentelemetry::metrics::AsyncInstrument<f64>| {
        for (value, labels) in look() {
            to.observe(value, &labels);
        }
    };
    match metric.kind {
        // The SDK keeps the callback registered after the instrument is dropped.
        MetricKind::Counter => drop(
            meter
                .f64_observable_counter(metric.name)
                .with_unit(metric.unit)
                .with_description(metric.help)
                .with_callback(tell)
                .build(),
        ),
        MetricKind::Gauge => drop(
            meter
                .f64_observable_gauge(metric.name)
                .with_unit(metric.unit)
                .with_description(metric.help)
                .with_callback(tell)
                .build(),
        ),
        MetricKind::Histogram(_) => unreachable!("{} cannot be watched", metric.name),
    }
}

/// Creates an instrument for a single value without labels.
pub fn observable_value(
    meter: &Meter,
    metric: &Metric,
    look: impl Fn() -> f64 + Send + Sync + 'static,
) {
    observable_gauge(meter, metric, move || vec![(look(), Vec::new())]);
}

/// Creates an instrument for a single value without labels. An unknown value is not reported.
pub fn observable_option(
    meter: &Meter,
    metric: &Metric,
    look: impl Fn() -> Option<f64> + Send + Sync + 'static,
) {
    observable_gauge(meter, metric, move || {
        look()
            .map(|value| (value, Vec::new()))
            .into_iter()
            .collect()
    });
}

/// Converts a count to a measurement. Values above 2^53 are rounded, which is negligible.
#[expect(clippy::cast_precision_loss, reason = "said above")]
pub fn number(count: u64) -> f64 {
    count as f64
}

/// Converts a size to a measurement, as [`number`].
pub fn size(count: usize) -> f64 {
    number(u64::try_from(count).unwrap_or(u64::MAX))
}
