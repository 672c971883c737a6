//! Metrics of the requests of compression guardrails.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram};
use palimpsest_edge::metrics::instruments::{counter, histogram};
use palimpsest_edge::metrics::{Metrics, names};

use crate::context::Unmanaged;

/// The outcome of a compression request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The caller got its own messages.
    Original,
    /// The caller got its own messages with replacements.
    Replaced,
    /// The caller got the view of a session.
    View,
    /// No session has taken the array.
    Unmanaged,
    /// The request was rejected.
    Rejected,
}

impl Outcome {
    const ALL: [Self; 5] = [
        Self::Original,
        Self::Replaced,
        Self::View,
        Self::Unmanaged,
        Self::Rejected,
    ];

    /// Returns the name in metrics and headers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Replaced => "replaced",
            Self::View => "view",
            Self::Unmanaged => "unmanaged",
            Self::Rejected => "rejected",
        }
    }
}

/// The outcome of a request for an original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retrieval {
    Found,
    NotFound,
    Failed,
}

impl Retrieval {
    const ALL: [Self; 3] = [Self::Found, Self::NotFound, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Failed => "failed",
        }
    }
}

/// The counters of compression requests.
#[derive(Debug)]
pub(crate) struct CompressionMetrics {
    requests: Counter<u64>,
    unmanaged: Counter<u64>,
    tokens: Counter<u64>,
    retrievals: Counter<u64>,
    duration: Histogram<f64>,
}

impl CompressionMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let of = |metric| counter(metrics.meter(), metric);
        let metrics = Self {
            requests: of(&names::GATEWAY_COMPRESSIONS),
            unmanaged: of(&names::GATEWAY_UNMANAGED),
            tokens: of(&names::GATEWAY_COMPRESSION_TOKENS),
            retrievals: of(&names::GATEWAY_RETRIEVALS),
            duration: histogram(metrics.meter(), &names::GATEWAY_COMPRESSION_DURATION),
        };
        // All series exist from the start, so that a rate contains the first request too.
        for outcome in Outcome::ALL {
            metrics.add_request(outcome, 0);
        }
        for outcome in Retrieval::ALL {
            metrics.add_retrieval(outcome, 0);
        }
        metrics.add_tokens(0, 0);
        metrics
    }

    /// Counts an answer with messages.
    pub(super) fn compressed(
        &self,
        outcome: Outcome,
        unmanaged: Option<Unmanaged>,
        (before, after): (u64, u64),
        duration: Duration,
    ) {
        self.add_request(outcome, 1);
        self.add_tokens(before, after);
        if let Some(reason) = unmanaged {
            self.unmanaged
                .add(1, &[KeyValue::new("reason", reason.name())]);
        }
        self.duration.record(duration.as_secs_f64(), &[]);
    }

    /// Counts a rejected request.
    pub(super) fn rejected(&self) {
        self.add_request(Outcome::Rejected, 1);
    }

    /// Counts a request for an original.
    pub(super) fn retrieved(&self, outcome: Retrieval) {
        self.add_retrieval(outcome, 1);
    }

    fn add_request(&self, outcome: Outcome, count: u64) {
        let outcome = KeyValue::new("outcome", outcome.name());
        self.requests.add(count, &[outcome]);
    }

    fn add_retrieval(&self, outcome: Retrieval, count: u64) {
        let outcome = KeyValue::new("outcome", outcome.name());
        self.retrievals.add(count, &[outcome]);
    }

    fn add_tokens(&self, before: u64, after: u64) {
        for (kind, tokens) in [("before", before), ("after", after)] {
            self.tokens.add(tokens, &[KeyValue::new("kind", kind)]);
        }
    }
}
