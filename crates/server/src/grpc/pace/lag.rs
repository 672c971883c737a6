//! How far behind the runtime is: how long a task that could go on waits for its turn.
//!
//! When every core is busy, calls wait before anybody has seen them: in the sockets, which are read by tasks
//! that wait for their turn like all others. No count of calls shows that, and only refusing some helps. As in
//! the line of those who were seen, a moment of it is a burst, and is waited for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::line::{BURST, CALM};
use super::micros;

/// How long a call may wait to be seen, at least and as long as nothing is known.
const LEAST: Duration = Duration::from_millis(1);
const UNKNOWN: Duration = Duration::from_millis(10);
/// How often it is looked at, at most.
const EVERY: Duration = Duration::from_millis(1);

/// What is known of it.
#[derive(Debug)]
pub(super) struct Lag {
    began: Instant,
    is_measured: AtomicBool,
    /// When it is looked at again, and until when calls are refused, in microseconds since it began.
    next: AtomicU64,
    refuses_until: AtomicU64,
    /// How long a call may wait, in microseconds.
    may: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Since when it is too long.
    since: Option<Instant>,
    /// Until when that is no burst, even if it was short meanwhile.
    stands_until: Option<Instant>,
}

impl Lag {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            is_measured: AtomicBool::new(false),
            next: AtomicU64::new(0),
            refuses_until: AtomicU64::new(0),
            may: AtomicU64::new(micros(UNKNOWN)),
            seen: Mutex::default(),
        })
    }

    /// Says how long a call may wait to be seen: as much as makes it slow, and that follows what calls take.
    pub(super) fn allow(&self, may: Duration) {
        self.may.store(micros(may.max(LEAST)), Relaxed);
    }

    /// Whether a call that comes now is to be refused; has it looked at, now and then, when there is a runtime.
    pub(super) fn refuses(self: &Arc<Self>) -> bool {
        let now = Instant::now();
        let at = micros(now - self.began);
        if at >= self.next.load(Relaxed)
            && let Ok(runtime) = Handle::try_current()
            && !self.is_measured.swap(true, Relaxed)
        {
            let this = Arc::clone(self);
            runtime.spawn(async move {
                // Once to the end of the queue, and once round it with the sockets looked at.
                tokio::task::yield_now().await;
                let done = Instant::now();
                this.learn((done - now) / 2, done);
                this.is_measured.store(false, Relaxed);
            });
        }
        at < self.refuses_until.load(Relaxed)
    }

    fn learn(&self, lag: Duration, now: Instant) {
        let at = micros(now - self.began);
        self.next.store(at + micros(EVERY), Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if micros(lag) <= self.may.load(Relaxed) {
            seen.since = None;
            self.refuses_until.store(0, Relaxed);
            return;
        }
        let since = *seen.since.get_or_insert(now);
        if now - since > BURST || seen.stands_until.is_some_and(|until| now < until) {
            seen.stands_until = Some(now + CALM);
            // It is looked at again before that, if anybody comes.
            self.refuses_until.store(at + micros(lag * 2), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_waited_for_and_overload_is_not() {
        let lag = Lag::new();
        lag.allow(Duration::from_millis(2));
        let mut now = lag.began;
        let mut see = |millis: u64, lag_millis: u64| {
            now += Duration::from_millis(millis);
            lag.learn(Duration::from_millis(lag_millis), now);
            let at = micros(now - lag.began);
            at < lag.refuses_until.load(Relaxed)
        };
        assert!(!see(10, 50));
        assert!(!see(90, 50));
        assert!(!see(10, 1), "it was a burst");
        assert!(!see(10, 50));
        assert!(see(101, 50));
        assert!(!see(10, 1), "there is room");
        assert!(see(10, 5), "and none again");
        assert!(!see(10, 1));
        assert!(!see(1_001, 5), "long after, it is a burst");
    }

    #[tokio::test]
    async fn a_runtime_that_is_busy_for_long_refuses() {
        let lag = Lag::new();
        lag.allow(Duration::ZERO);
        let began = Instant::now();
        let mut refused = false;
        while began.elapsed() < Duration::from_secs(2) && !refused {
            refused = lag.refuses();
            // Who does not let others go on makes them late.
            let turn = Instant::now();
            while turn.elapsed() < Duration::from_millis(10) {}
            tokio::task::yield_now().await;
        }
        assert!(refused);
        assert!(began.elapsed() > BURST);
    }
}
