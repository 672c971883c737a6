//! The place of one call among those that are worked on, given back when it is dropped.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{AdmissionControl, Lane};

/// A call that is worked on; it is not any more when this is dropped.
#[derive(Debug)]
pub(in crate::grpc) struct WorkPermit {
    pace: Arc<AdmissionControl>,
    lane: Lane,
    slot: usize,
    time: Mutex<WorkTime>,
}

#[derive(Debug)]
struct WorkTime {
    /// Since when it is worked on, or else since when it waits for somebody else.
    since: Result<Instant, Instant>,
    done: Duration,
    counts: bool,
}

impl WorkPermit {
    pub(super) fn new(pace: &Arc<AdmissionControl>, lane: Lane, slot: usize) -> Self {
        Self {
            pace: Arc::clone(pace),
            lane,
            slot,
            time: Mutex::new(WorkTime {
                since: Ok(Instant::now()),
                done: Duration::ZERO,
                counts: false,
            }),
        }
    }

    /// Gives the place to other calls while this one waits. Returns false if it waits already.
    pub(in crate::grpc) fn pause(&self) -> bool {
        let mut time = self.lock();
        let Ok(since) = time.since else {
            return false;
        };
        let now = Instant::now();
        time.done += now - since;
        time.since = Err(now);
        drop(time);
        self.pace.leave(self.lane);
        true
    }

    /// Takes the place again after `pause`. The call was admitted before, so it does not wait for a place.
    pub(in crate::grpc) fn resume(&self) {
        self.lock().since = Ok(Instant::now());
        self.pace.work(self.lane).working.fetch_add(1, SeqCst);
    }

    /// The call was answered: what it took says how busy the server is.
    pub(in crate::grpc) fn succeeded(&self) {
        self.lock().counts = true;
    }

    /// The call is over for the server, whoever still holds the place.
    pub(in crate::grpc) fn finish(&self) {
        let mut time = self.lock();
        let Ok(since) = time.since else {
            return;
        };
        let now = Instant::now();
        time.since = Err(now);
        let took = time.done + (now - since);
        let counts = time.counts;
        drop(time);
        self.pace.work(self.lane).working.fetch_sub(1, SeqCst);
        if counts {
            self.pace.learn(self.lane, self.slot, took, now);
        }
        self.pace.call_up(self.lane);
    }

    fn lock(&self) -> MutexGuard<'_, WorkTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A place that is given to a call which may have gone meanwhile; then it is given back.
#[derive(Debug)]
pub(super) struct ReservedPermit(Option<(Arc<AdmissionControl>, Lane)>);

impl ReservedPermit {
    pub(super) fn new(pace: &Arc<AdmissionControl>, lane: Lane) -> Self {
        Self(Some((Arc::clone(pace), lane)))
    }

    pub(super) fn into_place(mut self, slot: usize) -> WorkPermit {
        let (pace, lane) = self.0.take().expect("it is given once");
        WorkPermit::new(&pace, lane, slot)
    }

    pub(super) fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for ReservedPermit {
    fn drop(&mut self) {
        if let Some((pace, lane)) = self.0.take() {
            pace.leave(lane);
        }
    }
}
