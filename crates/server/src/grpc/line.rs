//! Calls that wait for a place: those of a burst may, a queue that stands may not.
//!
//! A burst is over soon, and whoever waited for it was served better than by a refusal. A queue that has not
//! been empty for a while only makes every answer late: then a call waits about as long as it takes, and is
//! refused.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long a call of a burst waits, and how long a queue may stand until it is none.
const BURST: Duration = Duration::from_millis(100);
/// The least and the most that a call waits in a queue that stands.
const STANDING: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Those who wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Line<T> {
    /// How many there are; looked at without the lock, which nobody takes while nobody waits.
    waiting: AtomicUsize,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    calls: VecDeque<oneshot::Sender<T>>,
    /// When nobody was waiting the last time.
    was_empty: Option<Instant>,
}

/// What became of somebody who came to the line.
pub(super) enum Joined<T> {
    /// There was a place after all.
    Placed(T),
    /// It comes here, if it comes in this time.
    Waits(oneshot::Receiver<T>, Duration),
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                calls: VecDeque::new(),
                was_empty: None,
            }),
        }
    }

    /// Joins, unless `place` finds a place now that those who leave would see somebody waiting. `takes` is
    /// what a call of its kind takes.
    pub(super) fn join(
        &self,
        now: Instant,
        takes: Duration,
        place: impl FnOnce() -> Option<T>,
    ) -> Joined<T> {
        let mut inner = self.lock();
        self.tidy(&mut inner, now);
        self.waiting.fetch_add(1, SeqCst);
        // Nobody goes ahead of those who wait.
        if inner.calls.is_empty()
            && let Some(place) = place()
        {
            self.waiting.fetch_sub(1, SeqCst);
            return Joined::Placed(place);
        }
        let stands = inner
            .was_empty
            .is_some_and(|at| now.saturating_duration_since(at) > BURST);
        let patience = if stands {
            takes.clamp(STANDING[0], STANDING[1])
        } else {
            BURST
        };
        let (sender, place) = oneshot::channel();
        inner.calls.push_back(sender);
        Joined::Waits(place, patience)
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

    fn patience(joined: &Joined<()>) -> Duration {
        match joined {
            Joined::Waits(_, patience) => *patience,
            Joined::Placed(()) => Duration::ZERO,
        }
    }

    #[test]
    fn a_burst_waits_and_a_queue_that_stands_hardly_does() {
        let line = Line::new();
        let takes = Duration::from_millis(3);
        let mut now = Instant::now();
        let first = line.join(now, takes, || None);
        assert_eq!(patience(&first), BURST);
        let second = line.join(now, takes, || panic!("nobody goes ahead"));
        now += BURST * 2;
        let late = line.join(now, takes, || None);
        assert_eq!(patience(&late), takes);
        // Two places are given, to those who came first; the third finds none.
        let places = std::cell::Cell::new(2);
        let place = || {
            let left = places.get();
            (left > 0).then(|| places.set(left - 1))
        };
        line.give(now, place, |()| panic!("all of them wait"));
        assert!(line.is_waited_in());
        for (joined, has) in [(first, true), (second, true), (late, false)] {
            let Joined::Waits(mut receiver, _) = joined else {
                panic!("it waits")
            };
            assert_eq!(receiver.try_recv().is_ok(), has);
        }
        // The third has gone, so that the next is no part of a queue.
        let next = line.join(now, takes, || None);
        assert_eq!(patience(&next), BURST);
        drop(next);
        line.give(now, || Some(()), |()| panic!("nobody is there"));
        assert!(!line.is_waited_in());
    }
}
