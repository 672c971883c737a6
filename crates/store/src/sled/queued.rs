//! Queued changes, and the measurement of their queue and sync times.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Span;

use super::job::WriteJob;

/// Receives latency measurements. It is called on the commit thread and must not block.
pub trait Observer: Send + Sync + 'static {
    /// Reports the time that a change waited for the commit thread.
    fn waited(&self, time: Duration);

    /// Reports a sync, the number of changes that it made durable, and its duration.
    fn synced(&self, changes: usize, time: Duration);
}

/// An optional [`Observer`].
#[derive(Clone, Default)]
pub struct OptionalObserver(Option<Arc<dyn Observer>>);

impl OptionalObserver {
    /// Uses an observer.
    pub fn new(observer: impl Observer) -> Self {
        Self(Some(Arc::new(observer)))
    }

    pub(super) fn synced(&self, changes: usize, time: Duration) {
        if let Some(observer) = &self.0 {
            observer.synced(changes, time);
        }
    }
}

impl fmt::Debug for OptionalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", u8::from(self.0.is_some()))
    }
}

pub(super) struct QueuedJob {
    pub(super) job: WriteJob,
    queued_at: Instant,
    /// The span of the caller.
    caller_span: Span,
    /// The span of the wait, which ends on drop.
    wait: Span,
}

impl QueuedJob {
    #[expect(
        clippy::disallowed_methods,
        reason = "measures the queue for metrics, decides nothing"
    )]
    pub(super) fn new(job: WriteJob) -> Self {
        Self {
            job,
            queued_at: Instant::now(),
            // Captured here, because the commit thread has no current span of the caller.
            caller_span: Span::current(),
            wait: tracing::debug_span!(target: "palimpsest::span", "store.wait"),
        }
    }

    /// Ends the wait. Returns the change and the span of its sync, which must live until the reply is sent.
    pub(super) fn take(self, observers: &OptionalObserver) -> (WriteJob, Span) {
        drop(self.wait);
        if let Some(observer) = &observers.0 {
            observer.waited(self.queued_at.elapsed());
        }
        let work = || tracing::debug_span!(target: "palimpsest::span", "store.sync");
        let work = self.caller_span.in_scope(work);
        (self.job, work)
    }
}
