//! Tracks exports to the collector: counts and time limits. A failure is logged once at its begin and once at its end,
//! because a collector that is down would otherwise fill the log.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

/// The maximum number of queued spans. Further spans are dropped. A call creates about ten spans.
pub(super) const QUEUE_SPANS: usize = 8_192;

#[derive(Debug, Default)]
pub(crate) struct ExportStats {
    spans_ended: AtomicU64,
    /// Spans that were added to the queue, and spans that left it.
    spans_queued: AtomicU64,
    spans_sent: AtomicU64,
    spans_taken: AtomicU64,
    dropped_full: AtomicU64,
    dropped_failed: AtomicU64,
    traces: Signal,
    metrics: Signal,
}

#[derive(Debug, Default)]
struct Signal {
    ok: AtomicU64,
    failed: AtomicU64,
    is_failing: AtomicBool,
}

impl ExportStats {
    pub(crate) fn spans_ended(&self) -> u64 {
        self.spans_ended.load(Relaxed)
    }

    pub(crate) fn spans_exported(&self) -> u64 {
        self.spans_taken.load(Relaxed)
    }

    /// Returns the number of lost spans by reason: the queue was full, or the export failed.
    pub(crate) fn spans_dropped(&self) -> [(&'static str, u64); 2] {
        [
            ("queue_full", self.dropped_full.load(Relaxed)),
            ("export_failed", self.dropped_failed.load(Relaxed)),
        ]
    }

    /// Reserves a place in the queue. Returns false, and counts a lost span, if the queue is full.
    ///
    /// The queue of the SDK does not report the spans that it drops, so none may reach it while it is full.
    fn reserve_queue_slot(&self) -> bool {
        // The count grows before the comparison, so concurrent spans cannot both take the last place.
        let queued = self.spans_queued.fetch_add(1, Relaxed);
        // Other spans can enter and leave the queue between the two reads, so the difference can be negative.
        let waiting = queued.saturating_sub(self.spans_sent.load(Relaxed));
        let has_room = waiting < QUEUE_SPANS as u64;
        if !has_room {
            self.spans_queued.fetch_sub(1, Relaxed);
            self.dropped_full.fetch_add(1, Relaxed);
        }
        has_room
    }

    /// Returns the number of exports by signal and outcome.
    pub(crate) fn outcomes(&self) -> [(&'static str, &'static str, u64); 4] {
        [
            ("traces", "ok", self.traces.ok.load(Relaxed)),
            ("traces", "failed", self.traces.failed.load(Relaxed)),
            ("metrics", "ok", self.metrics.ok.load(Relaxed)),
            ("metrics", "failed", self.metrics.failed.load(Relaxed)),
        ]
    }
}

impl Signal {
    fn ended(&self, name: &'static str, result: &OTelSdkResult) {
        match result {
            Ok(()) => {
                self.ok.fetch_add(1, Relaxed);
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!(signal = name, "the collector accepts telemetry again");
                }
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                // The swap logs only the change of state, not each failure.
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::warn!(
                        signal = name,
                        error = drop_reason(error),
                        "the collector at otlp.endpoint does not accept the telemetry; only the first failure is \
                         logged, and palimpsest_telemetry_exports_total counts all"
                    );
                }
            }
        }
    }
}

/// Returns the reason of a failure. The collector's own text is dropped, because it may quote sent data or a header.
fn drop_reason(error: &OTelSdkError) -> &'static str {
    match error {
        OTelSdkError::Timeout(_) => "no answer within otlp.timeout_ms",
        OTelSdkError::AlreadyShutdown => "it is shut down",
        // The SDK reports failures only as text. `Unauth` matches `Unauthenticated` and `Unauthorized`.
        OTelSdkError::InternalFailure(text) if text.contains("Unauth") => {
            "it refused the headers (otlp.headers_env, otlp.headers_file)"
        }
        OTelSdkError::InternalFailure(_) => "it is out of reach or refused the export",
    }
}

/// An exporter with counts and a time limit. It runs in its own runtime, because the SDK's threads have none.
pub(super) struct TrackedExporter<E> {
    inner: E,
    exported: Arc<ExportStats>,
    runtime: Handle,
    timeout: Duration,
}

impl<E> TrackedExporter<E> {
    pub(super) fn new(
        inner: E,
        exported: &Arc<ExportStats>,
        runtime: &Handle,
        timeout: Duration,
    ) -> Self {
        Self {
            inner,
            exported: Arc::clone(exported),
            runtime: runtime.clone(),
            timeout,
        }
    }

    async fn within(&self, export: impl Future<Output = OTelSdkResult> + Send) -> OTelSdkResult {
        let timeout = self.timeout;
        let bounded = async move {
            let late = |_| Err(OTelSdkError::Timeout(timeout));
            tokio::time::timeout(timeout, export)
                .await
                .unwrap_or_else(late)
        };
        // The SDK polls exporters on plain threads. Timers and transports need the context of the runtime.
        TokioContext::new(bounded, self.runtime.clone()).await
    }
}

impl<E> fmt::Debug for TrackedExporter<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl<E: SpanExporter> SpanExporter for TrackedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        // The batch has left the queue, so its places are free even if the export fails.
        self.exported.spans_sent.fetch_add(spans, Relaxed);
        let result = self.within(self.inner.export(batch)).await;
        let became = match &result {
            Ok(()) => &self.exported.spans_taken,
            Err(_) => &self.exported.dropped_failed,
        };
        became.fetch_add(spans, Relaxed);
        self.exported.traces.ended("traces", &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        // The SDK shuts down on a plain thread, and the transport needs a runtime.
        let _entered = self.runtime.enter();
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for TrackedExporter<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let result = self.within(self.inner.export(metrics)).await;
        self.exported.metrics.ended("metrics", &result);
        result
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let _entered = self.runtime.enter();
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}

/// Counts the spans that end, and those that do not fit into the queue.
#[derive(Debug)]
pub(super) struct CountingProcessor {
    pub(super) queue: BatchSpanProcessor,
    pub(super) exported: Arc<ExportStats>,
}

impl SpanProcessor for CountingProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.queue.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        // Unsampled spans are not exported, so they must not use a place in the queue.
        if !span.span_context.is_sampled() {
            return;
        }
        self.exported.spans_ended.fetch_add(1, Relaxed);
        if self.exported.reserve_queue_slot() {
            self.queue.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_dropped_by_a_full_queue_are_counted() {
        let exported = ExportStats::default();
        assert!((0..QUEUE_SPANS).all(|_| exported.reserve_queue_slot()));
        assert!(!exported.reserve_queue_slot() && !exported.reserve_queue_slot());
        assert_eq!(exported.spans_dropped()[0], ("queue_full", 2));
        exported.spans_sent.fetch_add(1, Relaxed);
        assert!(exported.reserve_queue_slot() && !exported.reserve_queue_slot());
        assert_eq!(exported.spans_dropped()[0], ("queue_full", 3));
    }

    #[test]
    fn a_span_is_queued_while_others_are_queued_and_sent() {
        let exported = ExportStats::default();
        // Between the two reads of `reserve_queue_slot`, another span can enter the queue and leave it.
        exported.spans_sent.fetch_add(1, Relaxed);
        assert!(exported.reserve_queue_slot());
        assert_eq!(exported.spans_dropped()[0], ("queue_full", 0));
    }
}
