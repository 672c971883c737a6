//! A change on its way to disk, as whoever watches the engine sees it: how long it waited, how long its sync took.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Span;

use super::job::WriteJob;

/// Told how long things take, by the thread that does them: it must be quick.
pub trait Observer: Send + Sync + 'static {
    /// A change waited this long for the commit thread.
    fn waited(&self, time: Duration);

    /// One sync made this many changes durable.
    fn synced(&self, changes: usize, time: Duration);
}

/// Who watches, if anybody does.
#[derive(Clone, Default)]
pub struct Observers(Option<Arc<dyn Observer>>);

impl Observers {
    /// One that watches.
    pub fn new(observer: impl Observer) -> Self {
        Self(Some(Arc::new(observer)))
    }

    pub(super) fn synced(&self, changes: usize, time: Duration) {
        if let Some(observer) = &self.0 {
            observer.synced(changes, time);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", u8::from(self.0.is_some()))
    }
}

/// A change in the queue.
pub(super) struct QueuedJob {
    pub(super) job: WriteJob,
    since: Instant,
    /// What asked for it.
    asked: Span,
    /// The wait; it ends when this is dropped.
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
            since: Instant::now(),
            asked: Span::current(),
            wait: tracing::debug_span!(target: "palimpsest::span", "store.wait"),
        }
    }

    /// Ends the wait and begins the work, of which the span is to live until the answer.
    pub(super) fn take(self, observers: &Observers) -> (WriteJob, Span) {
        drop(self.wait);
        if let Some(observer) = &observers.0 {
            observer.waited(self.since.elapsed());
        }
        let work = || tracing::debug_span!(target: "palimpsest::span", "store.sync");
        let work = self.asked.in_scope(work);
        (self.job, work)
    }
}
