//! The options of the worker: concurrency, intervals and time limits.

use std::time::Duration;

/// How the worker works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name under which it holds leases. No two workers that live at one time may share one.
    pub owner: String,
    /// Sessions at one time.
    pub concurrency: usize,
    /// How often it looks at the queue when nobody wakes it.
    pub poll: Duration,
    /// How long a lease holds that is not renewed; it is renewed three times in that time.
    pub lease: Duration,
    /// What a first failure waits at most; each further one in a row doubles it.
    pub backoff: Duration,
    /// The most that any failure waits.
    pub max_backoff: Duration,
    /// How long a file that somebody has just written is left alone: they may still be at it.
    pub settle: Duration,
    /// How long updates under way may take to finish when the worker stops.
    pub grace: Duration,
    /// How many bytes of messages are read at a time.
    pub page_bytes: usize,
}

impl Options {
    /// The defaults for a worker of this name.
    pub fn new(owner: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            concurrency: 8,
            poll: Duration::from_secs(1),
            lease: Duration::from_secs(30),
            backoff: Duration::from_secs(2),
            max_backoff: Duration::from_mins(5),
            settle: Duration::from_secs(2),
            grace: Duration::from_secs(5),
            page_bytes: 8 * 1024 * 1024,
        }
    }
}

/// The worker that keeps every session's `summary.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Whether `serve` runs it.
    pub enabled: bool,
    /// Sessions at one time.
    pub concurrency: usize,
    /// How often it looks for work when nobody wakes it.
    pub poll_ms: u64,
    /// How long a session is its own; it renews that while it works.
    pub lease_ms: u64,
    /// The most that a failed update waits.
    pub max_backoff_ms: u64,
    /// How long a file that was edited a moment ago is left alone.
    pub edit_debounce_ms: u64,
    /// How long updates under way may take when it stops.
    pub shutdown_grace_ms: u64,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            concurrency: 8,
            poll_ms: 1_000,
            lease_ms: 30_000,
            max_backoff_ms: 300_000,
            edit_debounce_ms: 2_000,
            shutdown_grace_ms: 5_000,
        }
    }
}

impl WorkerConfig {
    /// The options of a worker that holds leases under the name `owner`.
    pub fn options(&self, owner: impl Into<String>) -> Options {
        Options {
            concurrency: self.concurrency,
            poll: Duration::from_millis(self.poll_ms),
            lease: Duration::from_millis(self.lease_ms),
            max_backoff: Duration::from_millis(self.max_backoff_ms),
            settle: Duration::from_millis(self.edit_debounce_ms),
            grace: Duration::from_millis(self.shutdown_grace_ms),
            ..Options::new(owner)
        }
    }
}
