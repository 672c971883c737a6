//! The only place that reads the clock and creates ids. All other code receives both as arguments, so tests control
//! time and ids.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use palimpsest_core::ids::{MessageId, Timestamp};
use uuid::{ContextV7, Uuid};

/// A source of time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall-clock time. It may jump when the machine's clock is set.
    fn now(&self) -> Timestamp;

    /// Monotonic time since an arbitrary start, for measuring durations.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one reader of the clock"
    )]
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one reader of the clock"
    )]
    fn now(&self) -> Timestamp {
        // A clock before 1970 is reported as 1970, so no call fails because of a wrong date.
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock for tests that moves only by [`ManualClock::advance`].
#[derive(Debug)]
pub struct ManualClock {
    started: i64,
    millis: AtomicI64,
}

impl ManualClock {
    /// Creates a clock that shows `start`.
    pub fn at(start: Timestamp) -> Self {
        Self {
            started: start.as_millis(),
            millis: AtomicI64::new(start.as_millis()),
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.millis.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        let passed = self.millis.load(Ordering::Relaxed) - self.started;
        Duration::from_millis(passed.unsigned_abs())
    }
}

/// Creates ids: version 7 UUIDs, which sort by creation time.
#[derive(Debug)]
pub struct IdSource {
    clock: Arc<dyn Clock>,
    bits: Bits,
}

/// The bits of an id besides the time.
#[derive(Debug)]
enum Bits {
    /// A counter within each millisecond, so that consecutive ids sort in order, plus random bits.
    Random(Mutex<ContextV7>),
    /// A counter without random bits.
    Counting(AtomicU64),
}

impl IdSource {
    /// Creates ids that cannot be guessed.
    pub fn random(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            bits: Bits::Random(Mutex::new(ContextV7::new())),
        }
    }

    /// Creates ids that are identical in every run, for tests.
    pub fn counting(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            bits: Bits::Counting(AtomicU64::new(0)),
        }
    }

    /// A new id.
    pub fn uuid(&self) -> Uuid {
        // Version 7 ids have no times before 1970.
        let millis = self.clock.now().as_millis().max(0).unsigned_abs();
        match &self.bits {
            Bits::Random(context) => {
                // At most 999 ms remain, so the number of nanoseconds fits 32 bits.
                let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap_or(0);
                Uuid::new_v7(uuid::Timestamp::from_unix(context, millis / 1_000, nanos))
            }
            Bits::Counting(next) => {
                let mut bytes = [0; 10];
                bytes[2..].copy_from_slice(&next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
                uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
            }
        }
    }

    /// Returns a random number for the jitter of retries.
    pub fn jitter(&self) -> u32 {
        // The last four bytes of an id are random, or a counter in tests.
        let [.., a, b, c, d] = self.uuid().into_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the id of a message that arrived without one.
    pub fn message_id(&self) -> MessageId {
        MessageId::new(self.uuid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_123);

    #[test]
    fn a_manual_clock_moves_only_on_advance() {
        let clock = ManualClock::at(START);
        assert_eq!((clock.now(), clock.monotonic()), (START, Duration::ZERO));
        clock.advance(Duration::from_millis(7));
        assert_eq!(clock.now().millis_since(START), 7);
        assert_eq!(clock.monotonic(), Duration::from_millis(7));
    }

    #[test]
    fn ids_of_one_millisecond_sort_by_creation() {
        let ids = IdSource::random(Arc::new(ManualClock::at(START)));
        let made: Vec<Uuid> = (0..1_000).map(|_| ids.uuid()).collect();
        assert!(made.is_sorted());
        assert_eq!(made[0].get_version_num(), 7);
        let (seconds, nanos) = made[0]
            .get_timestamp()
            .expect("the id has no time")
            .to_unix();
        assert_eq!((seconds, nanos), (1_700_000_000, 123_000_000));
    }

    #[test]
    fn counting_ids_are_reproducible() {
        let make = || {
            let ids = IdSource::counting(Arc::new(ManualClock::at(START)));
            [ids.message_id(), ids.message_id()]
        };
        assert_eq!(make(), make());
        assert!(make()[0] < make()[1]);
    }
}
