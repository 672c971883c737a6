//! How often, or how much, in the long run: a bucket that fills by the time that passes, as one number.
//!
//! By hand because `governor` refuses for ever what is larger than its burst, and cannot charge what is
//! only known afterwards. Here a bucket may go into debt: whatever comes passes when there is room for
//! its first unit, and what comes next waits until it is paid for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: u128 = 1_000_000_000;

/// A bucket.
#[derive(Debug)]
pub(super) struct TokenBucket {
    /// Units a second; zero for no bound.
    rate: u64,
    /// Nanoseconds that a full burst takes to come back.
    burst: u64,
    /// When, in nanoseconds of the clock, all that was taken will have come back.
    paid: AtomicU64,
}

impl TokenBucket {
    /// A full bucket.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        let burst = if burst == 0 { rate } else { burst };
        let mut bucket = Self {
            rate,
            burst: 0,
            paid: AtomicU64::new(0),
        };
        bucket.burst = bucket.nanos(burst);
        bucket
    }

    /// Units a second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    fn nanos(&self, units: u64) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let nanos = u128::from(units) * SECOND / u128::from(self.rate);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Whether there is room for one unit; otherwise how long it takes until there is.
    pub(super) fn has_room(&self, now: Duration) -> Result<(), Duration> {
        if self.rate == 0 {
            return Ok(());
        }
        let paid = self.paid.load(Ordering::Relaxed);
        let owed = paid
            .saturating_sub(nanos(now))
            .saturating_add(self.nanos(1).max(1));
        match owed.saturating_sub(self.burst) {
            0 => Ok(()),
            wait => Err(Duration::from_nanos(wait)),
        }
    }

    /// Takes so many units, whether or not there is room for them.
    pub(super) fn take(&self, now: Duration, units: u64) {
        if self.rate == 0 {
            return;
        }
        let cost = self.nanos(units);
        let later = |paid: u64| Some(paid.max(nanos(now)).saturating_add(cost));
        let _ = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Whether nothing is owed: to forget it changes nothing.
    pub(super) fn is_full(&self, now: Duration) -> bool {
        self.paid.load(Ordering::Relaxed) <= nanos(now)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let bucket = TokenBucket::new(10, 3);
        let start = MS(5_000);
        for _ in 0..3 {
            bucket.has_room(start).unwrap();
            bucket.take(start, 1);
        }
        let wait = bucket.has_room(start).unwrap_err();
        assert_eq!(wait, MS(100));
        // What it says is true, and not more than true.
        assert!(
            bucket
                .has_room(start + wait.saturating_sub(Duration::from_nanos(1)))
                .is_err()
        );
        bucket.has_room(start + wait).unwrap();
        bucket.take(start + wait, 1);
        assert_eq!(bucket.has_room(start + wait).unwrap_err(), MS(100));
        assert!(!bucket.is_full(start + MS(399)));
        assert!(bucket.is_full(start + MS(400)));
    }

    #[test]
    fn what_is_larger_than_a_burst_passes_and_is_owed() {
        let bucket = TokenBucket::new(1_000, 0);
        bucket.has_room(MS(0)).unwrap();
        bucket.take(MS(0), 5_000);
        let wait = bucket.has_room(MS(0)).unwrap_err();
        assert_eq!(wait, MS(4_001));
        bucket.has_room(wait).unwrap();
    }

    #[test]
    fn no_rate_is_no_bound() {
        let bucket = TokenBucket::new(0, 0);
        bucket.take(MS(0), u64::MAX);
        bucket.has_room(MS(0)).unwrap();
        assert!(bucket.is_full(MS(0)));
    }
}
