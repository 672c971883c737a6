//! Metrics of external services: models and hooks.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use palimpsest_summarize::Usage;

use super::instruments::{counter, histogram};
use super::names;

#[derive(Debug)]
pub(super) struct OutboundMetrics {
    model: Histogram<f64>,
    tokens: Counter<u64>,
    hook: Histogram<f64>,
}

impl OutboundMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        Self {
            model: histogram(meter, &names::PROVIDER_DURATION),
            tokens: counter(meter, &names::PROVIDER_TOKENS),
            hook: histogram(meter, &names::HOOK_DURATION),
        }
    }

    pub(super) fn model(
        &self,
        endpoint: &'static str,
        purpose: &'static str,
        (outcome, usage): (&'static str, Option<Usage>),
        took: Duration,
    ) {
        let endpoint = KeyValue::new("endpoint", endpoint);
        let labels = [
            endpoint.clone(),
            KeyValue::new("purpose", purpose),
            KeyValue::new("outcome", outcome),
        ];
        self.model.record(took.as_secs_f64(), &labels);
        // A failed request adds zeros, so that its series exist from the first request on.
        let usage = usage.unwrap_or_default();
        for (kind, tokens) in [
            ("input", usage.input),
            ("output", usage.output),
            ("cache_read", usage.cache_read),
            ("cache_write", usage.cache_write),
        ] {
            self.tokens
                .add(tokens, &[endpoint.clone(), KeyValue::new("kind", kind)]);
        }
    }

    pub(super) fn hook(&self, hook: &'static str, outcome: &'static str, took: Duration) {
        let labels = [
            KeyValue::new("hook", hook),
            KeyValue::new("outcome", outcome),
        ];
        self.hook.record(took.as_secs_f64(), &labels);
    }
}
