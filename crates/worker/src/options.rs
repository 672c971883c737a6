//! What whoever runs the worker decides: how much at a time, how long things may take, what time it is.

use std::time::Duration;

use palimpsest_core::ids::Timestamp;

/// How the worker works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name under which it holds leases. No two workers that live at one time may share one.
    pub owner: String,
    /// Sessions at one time.
    pub parallel: usize,
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
            parallel: 8,
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

/// What time it is.
pub trait Clock: Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;

    /// Time that only moves forward, for durations.
    fn monotonic(&self) -> Duration;
}

/// Randomness, to spread retries.
pub trait Random: Send + Sync + 'static {
    /// Any number.
    fn next(&self) -> u64;
}
