//! The shared memory of recent overload, written by both overload detectors.
//!
//! Calls wait either before they are read (`scheduling_delay`) or in the `wait_queue`. Rejecting calls at one place
//! empties the other for a moment. The state is shared, because each detector would otherwise mistake the backlog
//! left by the other for a burst, again and again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::micros;

/// The maximum wait of a call in a burst. A longer backlog is not a burst but overload.
pub(super) const BURST_DURATION: Duration = Duration::from_millis(100);
/// The time after the last rejection during which a new backlog counts as overload.
const CALM_AFTER: Duration = Duration::from_secs(1);

/// The end of the current overload.
#[derive(Debug)]
pub(super) struct OverloadState {
    started: Instant,
    /// The end of the overload, in microseconds since `started`.
    calm_after: AtomicU64,
}

impl OverloadState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            calm_after: AtomicU64::new(0),
        }
    }

    /// Records a rejection because of overload.
    pub(super) fn record_overload(&self, now: Instant) {
        self.calm_after.store(self.at(now + CALM_AFTER), Relaxed);
    }

    /// Returns true if no rejection was recorded for [`CALM_AFTER`].
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        self.at(now) >= self.calm_after.load(Relaxed)
    }

    fn at(&self, now: Instant) -> u64 {
        micros(now.saturating_duration_since(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_ends_some_time_after_the_last_rejection() {
        let now = Instant::now();
        let calm = OverloadState::new(now);
        assert!(calm.is_calm(now));
        calm.record_overload(now);
        assert!(!calm.is_calm(now + CALM_AFTER / 2));
        calm.record_overload(now + CALM_AFTER / 2);
        assert!(!calm.is_calm(now + CALM_AFTER));
        assert!(calm.is_calm(now + CALM_AFTER * 3 / 2));
    }
}
