//! Limits the rate of warnings per call site. A caller that triggers a warning could otherwise do so thousands of times
//! per second.
//!
//! Existing rate-limiting layers use a timer and a map by message, and callers can influence messages.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The maximum number of lines of one call site per `INTERVAL`.
const MAX_LINES: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(10);

/// Limits warnings and errors per call site.
#[derive(Debug, Default)]
pub(super) struct LogRateLimit(Mutex<HashMap<Identifier, CallsiteState>>);

/// The recent lines of one call site.
#[derive(Debug)]
struct CallsiteState {
    since: Instant,
    lines: u32,
    left_out: u64,
    of: &'static Metadata<'static>,
}

/// The number of suppressed lines of one call site.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DroppedLines {
    pub(super) file: &'static str,
    pub(super) line: u32,
    pub(super) count: u64,
}

impl LogRateLimit {
    fn admit(&self, meta: &'static Metadata<'static>, now: Instant) -> bool {
        // Greater levels are more verbose. Only warnings and errors are limited.
        if *meta.level() > Level::WARN {
            return true;
        }
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map is bounded by the number of call sites in the code.
        let place = places.entry(meta.callsite()).or_insert(CallsiteState {
            since: now,
            lines: 0,
            left_out: 0,
            of: meta,
        });
        // `left_out` is not reset here, because the report thread takes it.
        if now.saturating_duration_since(place.since) >= INTERVAL {
            place.since = now;
            place.lines = 0;
        }
        place.lines = place.lines.saturating_add(1);
        if place.lines > MAX_LINES {
            place.left_out += 1;
            return false;
        }
        true
    }

    /// Returns and resets the numbers of suppressed lines.
    pub(super) fn take_dropped(&self) -> Vec<DroppedLines> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = places.values_mut().filter(|place| place.left_out > 0);
        counted
            .map(|place| DroppedLines {
                file: place.of.file().unwrap_or_default(),
                line: place.of.line().unwrap_or_default(),
                count: std::mem::take(&mut place.left_out),
            })
            .collect()
    }
}

/// A layer that passes on only the events that the rate limit allows.
///
/// It is not a filter, because a filter that decides per event would conflict with filters that cache their decision
/// per call site.
pub(super) struct RateLimitedLayer<S> {
    inner: Box<dyn Layer<S> + Send + Sync>,
    limit: &'static LogRateLimit,
}

impl<S> RateLimitedLayer<S> {
    pub(super) fn new(
        inner: Box<dyn Layer<S> + Send + Sync>,
        limit: &'static LogRateLimit,
    ) -> Self {
        Self { inner, limit }
    }
}

impl<S: Subscriber> Layer<S> for RateLimitedLayer<S> {
    fn on_layer(&mut self, subscriber: &mut S) {
        self.inner.on_layer(subscriber);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.inner.on_new_span(attributes, id, context);
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.inner.on_record(span, values, context);
    }

    #[expect(clippy::disallowed_methods, reason = "bounds the log, decides nothing")]
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if self.limit.admit(event.metadata(), Instant::now()) {
            self.inner.on_event(event, context);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.inner.on_enter(id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.inner.on_exit(id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.inner.on_close(id, context);
    }
}

/// Starts a thread that reports suppressed lines for the lifetime of the process.
pub(super) fn report(limit: &'static LogRateLimit) {
    let reports = move || loop {
        std::thread::sleep(INTERVAL);
        for DroppedLines { file, line, count } in limit.take_dropped() {
            tracing::info!(file, line, count, "suppressed repeated warnings");
        }
    };
    let thread = std::thread::Builder::new().name("log-flood".into());
    if let Err(error) = thread.spawn(reports) {
        tracing::debug!(%error, "failed to start the thread that reports suppressed warnings");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Count(Arc<AtomicU32>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn repeated_warnings_are_rate_limited_and_counted() {
        let limit: &'static LogRateLimit = Box::leak(Box::default());
        let count = Count::default();
        let bounded = RateLimitedLayer::new(count.clone().boxed(), limit);
        let subscriber = Registry::default().with(bounded);
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..1_000 {
                tracing::warn!("a stream was reset");
                tracing::info!("other lines are not bounded");
            }
            tracing::warn!("another place");
        });
        // The limited warnings, all other lines, and the warning of another call site.
        assert_eq!(count.0.load(Ordering::Relaxed), MAX_LINES + 1_000 + 1);
        let left_out = limit.take_dropped();
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert_eq!(left_out[0].count, u64::from(1_000 - MAX_LINES));
        assert_eq!(limit.take_dropped(), []);
    }
}
