//! The queue of calls that wait for a permit.
//!
//! In a burst, a short wait serves callers better than a rejection. A queue that did not become empty for a while is
//! standing: it only delays every response. Then only as many calls wait as are needed to use released permits.
//! Other calls are rejected immediately, as are calls that would not get a permit in time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::overload_state::{BURST_DURATION, OverloadState};

/// The maximum wait in a standing queue, and the divisor of the latency of a call for that wait.
const MAX_STANDING_WAIT: Duration = Duration::from_millis(20);
const STANDING_DIVISOR: u32 = 4;

/// The waiting calls, in the order of arrival.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    /// The number of waiting calls. It is read without the lock, because the queue usually is empty.
    waiting: AtomicUsize,
    inner: Mutex<Inner<T>>,
    /// The shared overload state. Outside of calm times every queue counts as standing.
    overload_state: Arc<OverloadState>,
}

#[derive(Debug)]
struct Inner<T> {
    calls: VecDeque<oneshot::Sender<T>>,
    /// The last time at which the queue was empty.
    was_empty: Option<Instant>,
}

/// The speed of the queue: the latency of a call and the number of permits.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainRate {
    pub(super) latency: Duration,
    pub(super) permits: usize,
}

impl DrainRate {
    /// Returns the expected wait of a call behind `others` waiting calls.
    fn expected_wait(self, others: usize) -> Duration {
        // The call gets the permit after those of all others. In the latency of one call, every permit is released
        // once.
        let others = u32::try_from(others + 1).unwrap_or(u32::MAX);
        let places = u32::try_from(self.permits.max(1)).unwrap_or(u32::MAX);
        self.latency.saturating_mul(others) / places
    }
}

/// The result of joining the queue.
pub(super) enum JoinOutcome<T> {
    /// A permit was free after all.
    Admitted(T),
    /// The receiver of the permit, and the maximum time to wait for it.
    Queued(oneshot::Receiver<T>, Duration),
    /// The expected wait is too long.
    QueueFull,
}

impl<T> WaitQueue<T> {
    pub(super) fn new(overload_state: &Arc<OverloadState>) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                calls: VecDeque::new(),
                was_empty: None,
            }),
            overload_state: Arc::clone(overload_state),
        }
    }

    /// Joins the queue, unless `acquire` returns a permit. `acquire` runs after the call is visible as waiting.
    pub(super) fn join(
        &self,
        now: Instant,
        drain_rate: DrainRate,
        acquire: impl FnOnce() -> Option<T>,
    ) -> JoinOutcome<T> {
        let mut inner = self.lock();
        self.drop_cancelled(&mut inner, now);
        // The counter grows before `acquire` runs: a call that releases a permit afterwards sees the waiting call.
        self.waiting.fetch_add(1, SeqCst);
        // Waiting calls come first.
        if inner.calls.is_empty()
            && let Some(permit) = acquire()
        {
            self.waiting.fetch_sub(1, SeqCst);
            return JoinOutcome::Admitted(permit);
        }
        let stands = self.is_standing(&inner, now);
        let max_wait = if stands {
            (drain_rate.latency / STANDING_DIVISOR).min(MAX_STANDING_WAIT)
        } else {
            BURST_DURATION
        };
        // The first call may always wait, so that a released permit does not stay unused.
        if !inner.calls.is_empty() && drain_rate.expected_wait(inner.calls.len()) > max_wait {
            self.waiting.fetch_sub(1, SeqCst);
            if stands {
                self.overload_state.record_overload(now);
            }
            return JoinOutcome::QueueFull;
        }
        let (sender, receiver) = oneshot::channel();
        inner.calls.push_back(sender);
        JoinOutcome::Queued(receiver, max_wait)
    }

    /// Records a call whose wait timed out.
    pub(super) fn record_timeout(&self, now: Instant) {
        let mut inner = self.lock();
        if self.is_standing(&inner, now) {
            self.overload_state.record_overload(now);
        }
        self.drop_cancelled(&mut inner, now);
    }

    /// Returns true if calls are waiting.
    pub(super) fn is_not_empty(&self) -> bool {
        // `join` writes this counter and then reads `in_flight`, and a release does the reverse. With a weaker order
        // both could miss the other's write, and the call would wait beside a free permit.
        self.waiting.load(SeqCst) > 0
    }

    /// Hands permits from `acquire` to waiting calls until either runs out.
    ///
    /// `unused` takes back a permit whose call disappeared at the same moment.
    pub(super) fn admit_waiting(
        &self,
        now: Instant,
        acquire: impl Fn() -> Option<T>,
        unused: impl Fn(T),
    ) {
        if !self.is_not_empty() {
            return;
        }
        let mut inner = self.lock();
        self.drop_cancelled(&mut inner, now);
        while !inner.calls.is_empty() {
            let Some(permit) = acquire() else { break };
            // The queue is locked and was not empty, so the acquired permit always has a call.
            let Some(next) = inner.calls.pop_front() else {
                break;
            };
            self.waiting.fetch_sub(1, SeqCst);
            // The call was dropped between the pop and the send.
            if let Err(permit) = next.send(permit) {
                unused(permit);
            }
        }
        // The queue can be empty at this point, and `was_empty` must record the time.
        self.drop_cancelled(&mut inner, now);
    }

    fn is_standing(&self, inner: &Inner<T>, now: Instant) -> bool {
        let long = |at| now.saturating_duration_since(at) > BURST_DURATION;
        inner.was_empty.is_some_and(long) || !self.overload_state.is_calm(now)
    }

    /// Removes abandoned calls at the front.
    fn drop_cancelled(&self, inner: &mut Inner<T>, now: Instant) {
        while inner.calls.front().is_some_and(oneshot::Sender::is_closed) {
            inner.calls.pop_front();
            self.waiting.fetch_sub(1, SeqCst);
        }
        if inner.calls.is_empty() {
            inner.was_empty = Some(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: DrainRate = DrainRate {
        latency: Duration::from_millis(8),
        permits: 8,
    };

    fn max_wait(joined: &JoinOutcome<()>) -> Option<Duration> {
        match joined {
            JoinOutcome::Queued(_, max_wait) => Some(*max_wait),
            JoinOutcome::Admitted(()) | JoinOutcome::QueueFull => None,
        }
    }

    #[test]
    fn a_burst_may_wait_longer_than_a_standing_queue() {
        let mut now = Instant::now();
        let line = WaitQueue::new(&Arc::new(OverloadState::new(now)));
        let first = line.join(now, FLOW, || None);
        assert_eq!(max_wait(&first), Some(BURST_DURATION));
        let second = line.join(now, FLOW, || panic!("no call may overtake the queue"));
        now += BURST_DURATION * 2;
        drop(first);
        let late = line.join(now, FLOW, || None);
        assert_eq!(max_wait(&late), Some(FLOW.latency / STANDING_DIVISOR));
        // The next call would wait 3 ms, which is more than a quarter of 8 ms.
        let later = line.join(now, FLOW, || None);
        assert!(matches!(later, JoinOutcome::QueueFull));
        // The queue is empty, but the last rejection is too recent for a burst.
        drop((second, late));
        let next = line.join(now, FLOW, || None);
        assert_eq!(max_wait(&next), Some(FLOW.latency / STANDING_DIVISOR));
        drop(next);
        line.record_timeout(now);
        now += Duration::from_secs(1);
        let next = line.join(now, FLOW, || None);
        assert_eq!(max_wait(&next), Some(BURST_DURATION));
        drop(next);
        line.admit_waiting(now, || Some(()), |()| panic!("the queue must be empty"));
        assert!(!line.is_not_empty());
    }

    #[test]
    fn queued_calls_get_permits_in_order() {
        let now = Instant::now();
        let line = WaitQueue::new(&Arc::new(OverloadState::new(now)));
        let joined = [(); 3].map(|()| line.join(now, FLOW, || None));
        // Two permits go to the first two calls. The third call gets none.
        let places = std::cell::Cell::new(2);
        let acquire = || {
            let left = places.get();
            (left > 0).then(|| places.set(left - 1))
        };
        line.admit_waiting(now, acquire, |()| panic!("no call may be shed"));
        assert!(line.is_not_empty());
        for (joined, has) in joined.into_iter().zip([true, true, false]) {
            let JoinOutcome::Queued(mut receiver, _) = joined else {
                panic!("the call was not queued")
            };
            assert_eq!(receiver.try_recv().is_ok(), has);
        }
    }

    #[test]
    fn a_queue_is_full_if_its_expected_wait_is_too_long() {
        let now = Instant::now();
        let line = WaitQueue::new(&Arc::new(OverloadState::new(now)));
        let waiting: Vec<_> = std::iter::from_fn(|| match line.join(now, FLOW, || None) {
            JoinOutcome::Queued(receiver, _) => Some(receiver),
            JoinOutcome::Admitted(()) | JoinOutcome::QueueFull => None,
        })
        .collect();
        // One permit is released every millisecond.
        assert_eq!(waiting.len(), 100);
    }
}
