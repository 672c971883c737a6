//! The options of the worker: concurrency, intervals and time limits.

use std::time::Duration;

/// The options of a running worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Name of the owner of the leases. It must be unique among running workers.
    pub owner: String,
    /// Maximum number of sessions in progress. Default: 8.
    pub concurrency: usize,
    /// Interval between polls of the work queue without a notification. Default: 1 s.
    pub poll: Duration,
    /// Duration of a lease. It is renewed three times within this duration. Default: 30 s.
    pub lease: Duration,
    /// Maximum delay after a first failure. Each further failure in a row doubles the delay. Default: 2 s.
    pub backoff: Duration,
    /// Upper limit of the delay after a failure. Default: 5 minutes.
    pub max_backoff: Duration,
    /// Minimum age of an edit before the file is imported, because an editor may still be writing. Default: 2 s.
    pub settle: Duration,
    /// Maximum time for passes in progress to finish at shutdown. Default: 5 s.
    pub grace: Duration,
    /// Approximate bytes of messages that are read at once. Default: 8 MiB.
    pub page_bytes: usize,
}

impl WorkerOptions {
    /// The default options for an owner name.
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

/// The settings of the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// True if `serve` runs the worker. Default: true.
    pub enabled: bool,
    /// Maximum number of sessions in progress. Default: 8.
    pub concurrency: usize,
    /// Interval between polls of the work queue, in milliseconds. Default: 1,000.
    pub poll_ms: u64,
    /// Duration of a lease in milliseconds. The worker renews it while it works. Default: 30,000.
    pub lease_ms: u64,
    /// Maximum delay after a failed update, in milliseconds. Default: 300,000.
    pub max_backoff_ms: u64,
    /// Minimum age of an edit before the file is imported, in milliseconds. Default: 2,000.
    pub edit_debounce_ms: u64,
    /// Maximum time for passes in progress to finish at shutdown, in milliseconds. Default: 5,000.
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
    pub fn options(&self, owner: impl Into<String>) -> WorkerOptions {
        WorkerOptions {
            concurrency: self.concurrency,
            poll: Duration::from_millis(self.poll_ms),
            lease: Duration::from_millis(self.lease_ms),
            max_backoff: Duration::from_millis(self.max_backoff_ms),
            settle: Duration::from_millis(self.edit_debounce_ms),
            grace: Duration::from_millis(self.shutdown_grace_ms),
            ..WorkerOptions::new(owner)
        }
    }
}
