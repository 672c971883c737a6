//! Whether there was too much to do of late, in whichever way that was seen.
//!
//! Calls wait where nobody counts them (`lag`) or in the `line`, and refusing them in one place empties the
//! other for a moment. What is known in one is known in both: otherwise each would take what the other left
//! over for a burst, again and again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::micros;

/// How long a call of a burst waits, and how long calls may wait until they are none.
pub(super) const BURST: Duration = Duration::from_millis(100);
/// For how long after somebody was refused, because that was no burst, it still is none.
const CALM: Duration = Duration::from_secs(1);

/// Until when calls that wait are no burst.
#[derive(Debug)]
pub(super) struct OverloadState {
    began: Instant,
    /// In microseconds since it began.
    not_until: AtomicU64,
}

impl OverloadState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            not_until: AtomicU64::new(0),
        }
    }

    /// Somebody is refused, and it is no burst.
    pub(super) fn disturb(&self, now: Instant) {
        self.not_until.store(self.at(now + CALM), Relaxed);
    }

    /// Whether nobody was for a while.
    pub(super) fn is(&self, now: Instant) -> bool {
        self.at(now) >= self.not_until.load(Relaxed)
    }

    fn at(&self, now: Instant) -> u64 {
        micros(now.saturating_duration_since(self.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_calm_a_while_after_the_last_refusal() {
        let now = Instant::now();
        let calm = OverloadState::new(now);
        assert!(calm.is(now));
        calm.disturb(now);
        assert!(!calm.is(now + CALM / 2));
        calm.disturb(now + CALM / 2);
        assert!(!calm.is(now + CALM));
        assert!(calm.is(now + CALM * 3 / 2));
    }
}
