//! The permit of a running call. It is released on drop.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{AdmissionControl, WorkClass};

/// The permit of a running call. Dropping it releases the permit.
#[derive(Debug)]
pub struct WorkPermit {
    admission: Arc<AdmissionControl>,
    class: WorkClass,
    slot: usize,
    time: Mutex<WorkTime>,
}

#[derive(Debug)]
struct WorkTime {
    /// `Ok` with the start of the current work, or `Err` with the start of the current pause.
    since: Result<Instant, Instant>,
    done: Duration,
    counts: bool,
}

impl WorkPermit {
    pub(super) fn new(admission: &Arc<AdmissionControl>, class: WorkClass, slot: usize) -> Self {
        Self {
            admission: Arc::clone(admission),
            class,
            slot,
            time: Mutex::new(WorkTime {
                since: Ok(Instant::now()),
                done: Duration::ZERO,
                counts: false,
            }),
        }
    }

    /// Releases the permit to other calls while this call waits for another system. Returns false if already paused.
    pub fn pause(&self) -> bool {
        let mut time = self.lock();
        let Ok(since) = time.since else {
            return false;
        };
        let now = Instant::now();
        time.done += now - since;
        time.since = Err(now);
        // Unlocked before the hand-over, which locks the wait queue.
        drop(time);
        self.admission.release(self.class);
        true
    }

    /// Takes the permit back after `pause`. An admitted call does not queue again, even above the limit.
    pub fn resume(&self) {
        self.lock().since = Ok(Instant::now());
        self.admission
            .class_state(self.class)
            .in_flight
            .fetch_add(1, SeqCst);
    }

    /// Marks the call as successful, so that its latency counts for the limit.
    pub fn succeeded(&self) {
        self.lock().counts = true;
    }

    /// Releases the permit before the drop, when the call is over for the server.
    pub fn finish(&self) {
        let mut time = self.lock();
        // A paused call has already released its permit.
        let Ok(since) = time.since else {
            return;
        };
        let now = Instant::now();
        // The permit counts as paused from here on, so the drop does not release it again.
        time.since = Err(now);
        let took = time.done + (now - since);
        let counts = time.counts;
        drop(time);
        // The counter is decremented before the limit adapts and before the next waiting call is admitted.
        self.admission
            .class_state(self.class)
            .in_flight
            .fetch_sub(1, SeqCst);
        if counts {
            self.admission.record(self.class, self.slot, took, now);
        }
        self.admission.admit_waiting(self.class);
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

/// A permit on the way to a waiting call. If that call is gone, dropping this value releases the permit.
#[derive(Debug)]
pub(super) struct ReservedPermit(Option<(Arc<AdmissionControl>, WorkClass)>);

impl ReservedPermit {
    pub(super) fn new(admission: &Arc<AdmissionControl>, class: WorkClass) -> Self {
        Self(Some((Arc::clone(admission), class)))
    }

    pub(super) fn into_permit(mut self, slot: usize) -> WorkPermit {
        // `into_permit` and `forget` consume the value, so nothing else has taken the content.
        let (admission, class) = self.0.take().expect("it is given once");
        WorkPermit::new(&admission, class, slot)
    }

    pub(super) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for ReservedPermit {
    fn drop(&mut self) {
        if let Some((admission, class)) = self.0.take() {
            admission.release(class);
        }
    }
}
