//! A rate limiter: a token bucket that refills over time, stored as one number.
//!
//! The crate `governor` does not fit. It rejects requests larger than the burst forever, and it cannot charge a cost
//! that is known only afterwards. This bucket may go into debt. A request passes if one unit is available, and later
//! requests wait until the debt is paid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: u128 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub(super) struct TokenBucket {
    /// Refill rate in units per second. 0: unlimited.
    rate: u64,
    /// Nanoseconds in which an empty bucket refills completely.
    burst: u64,
    /// Clock time, in nanoseconds, at which the bucket is full again.
    paid: AtomicU64,
}

impl TokenBucket {
    /// Creates a full bucket. A `burst` of 0 means the units of one second.
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

    /// The refill rate in units per second.
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

    /// Returns an error with the wait time unless one unit is available.
    pub(super) fn has_room(&self, now: Duration) -> Result<(), Duration> {
        if self.rate == 0 {
            return Ok(());
        }
        let paid = self.paid.load(Ordering::Relaxed);
        // At least one nanosecond is required, because one unit can be shorter at very high rates.
        let owed = paid
            .saturating_sub(nanos(now))
            .saturating_add(self.nanos(1).max(1));
        match owed.saturating_sub(self.burst) {
            0 => Ok(()),
            wait => Err(Duration::from_nanos(wait)),
        }
    }

    /// Takes units, even if they are not available.
    pub(super) fn take(&self, now: Duration, units: u64) {
        if self.rate == 0 {
            return;
        }
        let cost = self.nanos(units);
        // A full bucket starts from now, so that idle time does not accumulate beyond the burst.
        let later = |paid: u64| Some(paid.max(nanos(now)).saturating_add(cost));
        // The update cannot fail, because `later` always returns a value. One number is the whole state, so no other
        // memory needs ordering.
        let _ = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Returns true if the bucket is full, so that a new bucket would behave the same.
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
    fn after_a_burst_calls_are_admitted_at_the_configured_rate() {
        let bucket = TokenBucket::new(10, 3);
        let start = MS(5_000);
        for _ in 0..3 {
            bucket.has_room(start).unwrap();
            bucket.take(start, 1);
        }
        let wait = bucket.has_room(start).unwrap_err();
        assert_eq!(wait, MS(100));
        // The wait time is exact: one nanosecond less is not enough.
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
    fn a_request_larger_than_the_burst_passes_and_delays_the_next() {
        let bucket = TokenBucket::new(1_000, 0);
        bucket.has_room(MS(0)).unwrap();
        bucket.take(MS(0), 5_000);
        let wait = bucket.has_room(MS(0)).unwrap_err();
        assert_eq!(wait, MS(4_001));
        bucket.has_room(wait).unwrap();
    }

    #[test]
    fn a_rate_of_zero_is_unlimited() {
        let bucket = TokenBucket::new(0, 0);
        bucket.take(MS(0), u64::MAX);
        bucket.has_room(MS(0)).unwrap();
        assert!(bucket.is_full(MS(0)));
    }
}
