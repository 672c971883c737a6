//! Metrics of the requests that sessions take, and of the responses that the gateway reads.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram};
use palimpsest_core::message::Usage;
use palimpsest_edge::metrics::instruments::{counter, histogram, observable_value, size};
use palimpsest_edge::metrics::{Metrics, names};
use tokio::sync::Semaphore;

use super::context::{EditKind, EditReport, ToolCounts, Unmanaged};
use super::manage::BODIES;
use super::reading::{ResponseApi, Unread};

/// The outcome of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The response is complete.
    Complete,
    /// The provider reported an error, by its status or inside the response.
    Failed,
    /// The provider ended its connection before the end of the response.
    Cut,
    /// The agent disconnected before the end of the response.
    Cancelled,
    /// The response was forwarded and not read.
    Unread,
}

impl Outcome {
    const ALL: [Self; 5] = [
        Self::Complete,
        Self::Failed,
        Self::Cut,
        Self::Cancelled,
        Self::Unread,
    ];

    /// Returns the name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Cut => "cut",
            Self::Cancelled => "cancelled",
            Self::Unread => "unread",
        }
    }
}

/// The counters of responses.
#[derive(Debug)]
pub(crate) struct ResponseMetrics {
    responses: Counter<u64>,
    unread: Counter<u64>,
    tokens: Counter<u64>,
    record_failures: Counter<u64>,
    tool_calls: Counter<u64>,
}

impl ResponseMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let of = |metric| counter(metrics.meter(), metric);
        let metrics = Self {
            responses: of(&names::GATEWAY_RESPONSES),
            unread: of(&names::GATEWAY_UNREAD),
            tokens: of(&names::GATEWAY_TOKENS),
            record_failures: of(&names::GATEWAY_RECORD_FAILURES),
            tool_calls: of(&names::GATEWAY_TOOL_CALLS),
        };
        // All series exist from the start, so that a rate contains the first response too.
        for api in ResponseApi::ALL {
            for outcome in Outcome::ALL {
                metrics.add_response(api, outcome, 0);
            }
            metrics.add_usage(api, Usage::default());
        }
        for reason in Unread::ALL {
            metrics.add_unread(reason, 0);
        }
        metrics.record_failures.add(0, &[]);
        metrics.tools_ran(ToolCounts::default());
        metrics
    }

    /// Counts a response that ended.
    pub(crate) fn ended(&self, api: ResponseApi, outcome: Outcome, usage: Option<Usage>) {
        self.add_response(api, outcome, 1);
        self.add_usage(api, usage.unwrap_or_default());
    }

    /// Counts a response that cannot be recorded.
    pub(crate) fn record_failed(&self) {
        self.record_failures.add(1, &[]);
    }

    /// Counts calls of the service's tools.
    pub(crate) fn tools_ran(&self, counts: ToolCounts) {
        for (outcome, count) in [
            ("ok", counts.ok),
            ("failed", counts.failed),
            ("exhausted", counts.exhausted),
        ] {
            self.tool_calls
                .add(count, &[KeyValue::new("outcome", outcome)]);
        }
    }

    /// Counts a response that is not read.
    pub(crate) fn unread(&self, api: ResponseApi, reason: Unread) {
        self.add_response(api, Outcome::Unread, 1);
        self.add_unread(reason, 1);
    }

    fn add_response(&self, api: ResponseApi, outcome: Outcome, count: u64) {
        let labels = [
            KeyValue::new("api", api.name()),
            KeyValue::new("outcome", outcome.name()),
        ];
        self.responses.add(count, &labels);
    }

    fn add_unread(&self, reason: Unread, count: u64) {
        self.unread
            .add(count, &[KeyValue::new("reason", reason.name())]);
    }

    fn add_usage(&self, api: ResponseApi, usage: Usage) {
        for (kind, tokens) in [
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("uncached", usage.input_tokens),
            ("output", usage.output_tokens),
        ] {
            let labels = [
                KeyValue::new("api", api.name()),
                KeyValue::new("kind", kind),
            ];
            self.tokens.add(tokens, &labels);
        }
    }
}

/// Reports the requests in flight below their maximum.
pub(crate) fn observe_in_flight(metrics: &Metrics, streams: &Arc<Semaphore>, max: usize) {
    let (meter, streams) = (metrics.meter(), Arc::clone(streams));
    observable_value(meter, &names::GATEWAY_IN_FLIGHT, move || {
        size(max.saturating_sub(streams.available_permits()))
    });
    observable_value(meter, &names::GATEWAY_IN_FLIGHT_MAX, move || size(max));
}

/// The metrics of requests with a conversation.
#[derive(Debug)]
pub(crate) struct ContextMetrics {
    requests: Counter<u64>,
    unmanaged: Counter<u64>,
    edits: Counter<u64>,
    duration: Histogram<f64>,
}

impl ContextMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let of = |metric| counter(metrics.meter(), metric);
        let metrics = Self {
            requests: of(&names::GATEWAY_REQUESTS),
            unmanaged: of(&names::GATEWAY_UNMANAGED),
            edits: of(&names::GATEWAY_EDITS),
            duration: histogram(metrics.meter(), &names::GATEWAY_PREPARE_DURATION),
        };
        // All series exist from the start, so that a rate contains the first request too.
        for api in ResponseApi::ALL {
            for body in BODIES {
                metrics.add_request(api, body, 0);
            }
        }
        for kind in EditKind::ALL {
            metrics.add_edit(kind, false, 0);
            metrics.add_edit(kind, true, 0);
        }
        for reason in Unmanaged::ALL {
            let reason = KeyValue::new("reason", reason.name());
            metrics.unmanaged.add(0, &[reason]);
        }
        metrics
    }

    /// Counts a request. `body` is the kind of the body that upstream gets.
    pub(crate) fn prepared(
        &self,
        api: ResponseApi,
        body: &'static str,
        unmanaged: Option<Unmanaged>,
        duration: Duration,
    ) {
        self.add_request(api, body, 1);
        if let Some(reason) = unmanaged {
            let reason = KeyValue::new("reason", reason.name());
            self.unmanaged.add(1, &[reason]);
        }
        self.duration.record(duration.as_secs_f64(), &[]);
    }

    /// Counts the edits of the context that a session has served for a request.
    pub(crate) fn served(&self, edits: &EditReport) {
        for kind in &edits.kinds {
            self.add_edit(*kind, edits.is_applied(*kind), 1);
        }
    }

    fn add_edit(&self, kind: EditKind, is_applied: bool, count: u64) {
        let outcome = if is_applied { "applied" } else { "unchanged" };
        let labels = [
            KeyValue::new("edit", kind.name()),
            KeyValue::new("outcome", outcome),
        ];
        self.edits.add(count, &labels);
    }

    fn add_request(&self, api: ResponseApi, body: &'static str, count: u64) {
        let labels = [
            KeyValue::new("api", api.name()),
            KeyValue::new("body", body),
        ];
        self.requests.add(count, &labels);
    }
}
