//! Calls that wait for a place: those of a burst may, a queue that stands may not.
//!
//! A burst is over soon, and whoever waited for it was served better than by a refusal. A queue that has not
//! been empty for a while only makes every answer late: then just so many calls wait as fill the places that
//! become free, and the others are refused at once. So is whoever would not get a place in time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::overload_state::{BURST, OverloadState};

/// The most that a call waits in a queue that stands, and the part of what calls take that it waits.
const STANDING: Duration = Duration::from_millis(20);
const PART: u32 = 4;

/// Those who wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    /// How many there are; looked at without the lock, which nobody takes while nobody waits.
    waiting: AtomicUsize,
    inner: Mutex<Inner<T>>,
    /// Otherwise it stands, whoever waits in it.
    calm: Arc<OverloadState>,
}

#[derive(Debug)]
struct Inner<T> {
    calls: VecDeque<oneshot::Sender<T>>,
    /// When nobody was waiting the last time.
    was_empty: Option<Instant>,
}

/// How fast the line moves: what a call takes, and how many are worked on at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) takes: Duration,
    pub(super) places: usize,
}

impl Flow {
    /// When whoever comes after so many others would find a place.
    fn after(self, others: usize) -> Duration {
        let others = u32::try_from(others + 1).unwrap_or(u32::MAX);
        let places = u32::try_from(self.places.max(1)).unwrap_or(u32::MAX);
        self.takes.saturating_mul(others) / places
    }
}

/// What became of somebody who came to the line.
pub(super) enum JoinOutcome<T> {
    /// There was a place after all.
    Admitted(T),
    /// It comes here, if it comes in this time.
    Queued(oneshot::Receiver<T>, Duration),
    /// It would not come in time.
    TooLong,
}

impl<T> WaitQueue<T> {
    pub(super) fn new(calm: &Arc<OverloadState>) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                calls: VecDeque::new(),
                was_empty: None,
            }),
            calm: Arc::clone(calm),
        }
    }

    /// Joins, unless `place` finds a place now that those who leave would see somebody waiting.
    pub(super) fn join(
        &self,
        now: Instant,
        flow: Flow,
        place: impl FnOnce() -> Option<T>,
    ) -> JoinOutcome<T> {
        let mut inner = self.lock();
        self.tidy(&mut inner, now);
        self.waiting.fetch_add(1, SeqCst);
        // Nobody goes ahead of those who wait.
        if inner.calls.is_empty()
            && let Some(place) = place()
        {
            self.waiting.fetch_sub(1, SeqCst);
            return JoinOutcome::Admitted(place);
        }
        let stands = self.stands(&inner, now);
        let patience = if stands {
            (flow.takes / PART).min(STANDING)
        } else {
            BURST
        };
        // The first may wait whatever calls take: a place that becomes free is not to stay so.
        if !inner.calls.is_empty() && flow.after(inner.calls.len()) > patience {
            self.waiting.fetch_sub(1, SeqCst);
            if stands {
                self.calm.disturb(now);
            }
            return JoinOutcome::TooLong;
        }
        let (sender, place) = oneshot::channel();
        inner.calls.push_back(sender);
        JoinOutcome::Queued(place, patience)
    }

    /// Somebody waited in vain.
    pub(super) fn gave_up(&self, now: Instant) {
        let mut inner = self.lock();
        if self.stands(&inner, now) {
            self.calm.disturb(now);
        }
        self.tidy(&mut inner, now);
    }

    /// Whether somebody waits.
    pub(super) fn is_waited_in(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Gives places to those who wait, as long as there are any; `unused` takes one back whose call has gone
    /// in this very moment.
    pub(super) fn give(&self, now: Instant, place: impl Fn() -> Option<T>, unused: impl Fn(T)) {
        if !self.is_waited_in() {
            return;
        }
        let mut inner = self.lock();
        self.tidy(&mut inner, now);
        while !inner.calls.is_empty() {
            let Some(place) = place() else { break };
            let Some(next) = inner.calls.pop_front() else {
                break;
            };
            self.waiting.fetch_sub(1, SeqCst);
            if let Err(place) = next.send(place) {
                unused(place);
            }
        }
        self.tidy(&mut inner, now);
    }

    fn stands(&self, inner: &Inner<T>, now: Instant) -> bool {
        let long = |at| now.saturating_duration_since(at) > BURST;
        inner.was_empty.is_some_and(long) || !self.calm.is(now)
    }

    /// Forgets those at the front who have gone.
    fn tidy(&self, inner: &mut Inner<T>, now: Instant) {
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

    const FLOW: Flow = Flow {
        takes: Duration::from_millis(8),
        places: 8,
    };

    fn patience(joined: &JoinOutcome<()>) -> Option<Duration> {
        match joined {
            JoinOutcome::Queued(_, patience) => Some(*patience),
            JoinOutcome::Admitted(()) | JoinOutcome::TooLong => None,
        }
    }

    #[test]
    fn a_burst_waits_and_a_queue_that_stands_hardly_does() {
        let mut now = Instant::now();
        let line = WaitQueue::new(&Arc::new(OverloadState::new(now)));
        let first = line.join(now, FLOW, || None);
        assert_eq!(patience(&first), Some(BURST));
        let second = line.join(now, FLOW, || panic!("nobody goes ahead"));
        now += BURST * 2;
        drop(first);
        let late = line.join(now, FLOW, || None);
        assert_eq!(patience(&late), Some(FLOW.takes / PART));
        // The next would wait for three milliseconds, which is more than a part of eight.
        let later = line.join(now, FLOW, || None);
        assert!(matches!(later, JoinOutcome::TooLong));
        // Nobody waits, but it was only now that somebody was refused.
        drop((second, late));
        let next = line.join(now, FLOW, || None);
        assert_eq!(patience(&next), Some(FLOW.takes / PART));
        drop(next);
        line.gave_up(now);
        now += Duration::from_secs(1);
        let next = line.join(now, FLOW, || None);
        assert_eq!(patience(&next), Some(BURST));
        drop(next);
        line.give(now, || Some(()), |()| panic!("nobody is there"));
        assert!(!line.is_waited_in());
    }

    #[test]
    fn places_are_given_in_order() {
        let now = Instant::now();
        let line = WaitQueue::new(&Arc::new(OverloadState::new(now)));
        let joined = [(); 3].map(|()| line.join(now, FLOW, || None));
        // Two places are given, to those who came first; the third finds none.
        let places = std::cell::Cell::new(2);
        let place = || {
            let left = places.get();
            (left > 0).then(|| places.set(left - 1))
        };
        line.give(now, place, |()| panic!("all of them wait"));
        assert!(line.is_waited_in());
        for (joined, has) in joined.into_iter().zip([true, true, false]) {
            let JoinOutcome::Queued(mut receiver, _) = joined else {
                panic!("it waits")
            };
            assert_eq!(receiver.try_recv().is_ok(), has);
        }
    }

    #[test]
    fn a_burst_is_no_longer_than_it_can_be_served() {
        let now = Instant::now();
        let line = WaitQueue::new(&Arc::new(OverloadState::new(now)));
        let waiting: Vec<_> = std::iter::from_fn(|| match line.join(now, FLOW, || None) {
            JoinOutcome::Queued(place, _) => Some(place),
            JoinOutcome::Admitted(()) | JoinOutcome::TooLong => None,
        })
        .collect();
        // One place becomes free every millisecond.
        assert_eq!(waiting.len(), 100);
    }
}
