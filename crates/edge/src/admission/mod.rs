//! Admission control: the decision to run, queue or reject a call.
//!
//! The module `limit` computes the number of concurrent calls that keeps the machine busy. More calls would only wait
//! for a core or the disk. Time in which a call waits for another system is not counted.
//!
//! A call without a permit waits a short time (`wait_queue`), so that a burst does not cause rejections. When the cores
//! are so busy that calls wait before they are read (`scheduling_delay`), a share of them is rejected at minimal cost.
//! Both mechanisms share their findings through `overload_state`.
//!
//! Reads and changes have separate classes, so that neither starves the other.

mod limit;
mod overload_state;
mod permit;
mod scheduling_delay;
mod wait_queue;

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use limit::{CallSample, ConcurrencyLimit};
use overload_state::OverloadState;
use permit::ReservedPermit;
pub use permit::WorkPermit;
use scheduling_delay::SchedulingDelay;
use wait_queue::{DrainRate, JoinOutcome, WaitQueue};

/// The number of slots for latency statistics of methods. A method's slot is a hash of its name.
const METHOD_SLOTS: usize = 64;
/// The number of measured calls of a method before calls with a short deadline are rejected.
const MIN_METHOD_SAMPLES: u64 = 64;
/// At or above this value of `max_slowdown_percent`, adaptive limiting is off.
const UNLIMITED_PERCENT: u32 = 10_000;
/// The divisor of the limit. With fewer calls in progress, the calls are not the cause of a scheduling delay.
const BUSY_DIVISOR: usize = 4;
/// The assumed latency of a call before the first measurement.
const DEFAULT_LATENCY: Duration = Duration::from_millis(2);

/// The class of a call. Each class has a separate concurrency limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkClass {
    /// Calls that only read.
    Read,
    /// Calls that change sessions.
    Change,
}

/// The admission state of the server, with one limit per class.
#[derive(Debug)]
pub struct AdmissionControl {
    reads: ClassState,
    changes: ClassState,
    shed_count: AtomicU64,
    scheduling_delay: Arc<SchedulingDelay>,
    methods: [MethodStats; METHOD_SLOTS],
}

/// The admission state of one class.
#[derive(Debug)]
struct ClassState {
    /// The number of calls in progress.
    in_flight: Arc<AtomicUsize>,
    /// The maximum number of calls in progress.
    limit: AtomicUsize,
    /// The measured latency of a call, in microseconds.
    latency: AtomicU64,
    /// True if a call found no permit since the last finished call.
    was_saturated: AtomicBool,
    wait_queue: WaitQueue<ReservedPermit>,
    /// True if the limit adapts to the latency of calls.
    is_limited: bool,
    limiter: Mutex<ConcurrencyLimit>,
}

impl ClassState {
    fn new(
        most: usize,
        max_slowdown_percent: u32,
        overload_state: &Arc<OverloadState>,
        in_flight: Arc<AtomicUsize>,
    ) -> Self {
        let limiter = ConcurrencyLimit::new(most, max_slowdown_percent, Instant::now());
        let is_limited = max_slowdown_percent < UNLIMITED_PERCENT;
        Self {
            in_flight,
            limit: AtomicUsize::new(if is_limited { limiter.get() } else { most }),
            latency: AtomicU64::new(micros(DEFAULT_LATENCY)),
            was_saturated: AtomicBool::new(false),
            wait_queue: WaitQueue::new(overload_state),
            is_limited,
            limiter: Mutex::new(limiter),
        }
    }

    /// Takes a permit, or fails if the class is at its limit.
    fn try_take(&self) -> Result<(), AdmissionError> {
        let limit = self.limit.load(Relaxed);
        let more = |n| (n < limit).then_some(n + 1);
        match self.in_flight.fetch_update(SeqCst, SeqCst, more) {
            Ok(_before) => Ok(()),
            Err(_full) => {
                self.was_saturated.store(true, Relaxed);
                Err(AdmissionError::Saturated)
            }
        }
    }

    fn drain_rate(&self) -> DrainRate {
        DrainRate {
            latency: Duration::from_micros(self.latency.load(Relaxed)),
            permits: self.limit.load(Relaxed),
        }
    }

    /// Records the latency of a finished call. Returns the tolerated additional latency.
    fn record(&self, took: Duration, now: Instant) -> Option<Duration> {
        let done = CallSample {
            latency: took,
            in_flight: self.in_flight.load(Acquire),
            was_saturated: self.was_saturated.swap(false, Relaxed),
        };
        let mut limiter = self.limiter();
        // The calls are measured even if the limit is fixed, because the wait queue needs their latency.
        limiter.record(done, now);
        if self.is_limited {
            self.limit.store(limiter.get(), Relaxed);
        }
        if let Some(takes) = limiter.typical_latency() {
            self.latency.store(micros(takes), Relaxed);
        }
        limiter.allowed_slowdown()
    }

    fn limiter(&self) -> MutexGuard<'_, ConcurrencyLimit> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latency statistics of a method.
#[derive(Debug, Default)]
struct MethodStats {
    micros: AtomicU64,
    sample_count: AtomicU64,
}

impl MethodStats {
    fn record(&self, took: Duration) {
        // An exponential moving average with a weight of 1/32 for the new value.
        let took = micros(took).max(1);
        let usual = match self.micros.load(Relaxed) {
            0 => took,
            usual => usual - usual / 32 + took / 32,
        };
        self.micros.store(usual.max(1), Relaxed);
        self.sample_count.fetch_add(1, Relaxed);
    }

    /// Returns the usual latency of the method, once [`MIN_METHOD_SAMPLES`] calls were measured.
    fn usual_latency(&self) -> Option<Duration> {
        let known = self.sample_count.load(Relaxed) >= MIN_METHOD_SAMPLES;
        known.then(|| Duration::from_micros(self.micros.load(Relaxed)))
    }
}

impl AdmissionControl {
    /// Creates the admission state.
    ///
    /// Each class runs at most `most` calls, and at most `max_slowdown_percent` of the calls that saturate the machine.
    /// `changes` counts the changes in progress.
    pub fn new(most: usize, max_slowdown_percent: u32, changes: Arc<AtomicUsize>) -> Arc<Self> {
        let overload_state = Arc::new(OverloadState::new(Instant::now()));
        Arc::new(Self {
            reads: ClassState::new(most, max_slowdown_percent, &overload_state, Arc::default()),
            changes: ClassState::new(most, max_slowdown_percent, &overload_state, changes),
            shed_count: AtomicU64::new(0),
            scheduling_delay: SchedulingDelay::new(&overload_state),
            methods: std::array::from_fn(|_| MethodStats::default()),
        })
    }

    /// Returns the current limit of concurrent changes.
    pub fn limit(&self) -> usize {
        self.changes.limit.load(Relaxed)
    }

    /// Returns the number of calls that were rejected since the start.
    pub fn shed_count(&self) -> u64 {
        self.shed_count.load(Relaxed)
    }

    fn class_state(&self, class: WorkClass) -> &ClassState {
        match class {
            WorkClass::Read => &self.reads,
            WorkClass::Change => &self.changes,
        }
    }

    /// Returns true if this call must be shed because of a high scheduling delay. The check is very cheap.
    ///
    /// Few calls in progress cannot be the cause of the delay, so nothing is shed then.
    pub fn should_shed(&self, class: WorkClass) -> bool {
        let state = self.class_state(class);
        let are_many = state.in_flight.load(Relaxed) > state.limit.load(Relaxed) / BUSY_DIVISOR;
        let refuses = state.is_limited && are_many && self.scheduling_delay.should_shed();
        if refuses {
            self.shed_count.fetch_add(1, Relaxed);
        }
        refuses
    }

    /// Returns a permit, after a short wait if necessary.
    pub async fn acquire(
        self: &Arc<Self>,
        class: WorkClass,
        method: &str,
        max_wait: Duration,
    ) -> Result<WorkPermit, AdmissionError> {
        match self.try_acquire(class, method, max_wait) {
            Err(AdmissionError::Saturated) => {}
            placed => return placed,
        }
        let state = self.class_state(class);
        // Taking a permit failed once, so the call joins the queue. `join` tries again under the lock, because a permit
        // released before the queue was visible would otherwise be lost.
        let joined =
            (state.wait_queue).join(Instant::now(), state.drain_rate(), || self.reserve(class));
        let reserved = match joined {
            JoinOutcome::Admitted(reserved) => Some(reserved),
            JoinOutcome::QueueFull => None,
            JoinOutcome::Queued(mut receiver, wait) => {
                match timeout(wait.min(max_wait), &mut receiver).await {
                    Ok(reserved) => reserved.ok(),
                    // The permit may have arrived at the same moment as the timeout.
                    Err(_elapsed) => {
                        let reserved = receiver.try_recv().ok();
                        if reserved.is_none() {
                            // The receiver is dropped first, because `record_timeout` removes only calls whose receiver
                            // is gone.
                            drop(receiver);
                            state.wait_queue.record_timeout(Instant::now());
                        }
                        reserved
                    }
                }
            }
        };
        let Some(reserved) = reserved else {
            self.shed_count.fetch_add(1, Relaxed);
            // `should_shed` rejects nothing in a class with a fixed limit, so its rejections must not raise the share.
            if state.is_limited {
                self.scheduling_delay.record_rejection(Instant::now());
            }
            return Err(AdmissionError::Saturated);
        };
        Ok(reserved.into_permit(slot(method)))
    }

    /// Reserves a permit for the next waiting call.
    fn reserve(self: &Arc<Self>, class: WorkClass) -> Option<ReservedPermit> {
        self.class_state(class).try_take().ok()?;
        Some(ReservedPermit::new(self, class))
    }

    /// Releases a permit and hands it to the next waiting call.
    fn release(self: &Arc<Self>, class: WorkClass) {
        self.class_state(class).in_flight.fetch_sub(1, SeqCst);
        self.admit_waiting(class);
    }

    /// Hands free permits to waiting calls.
    fn admit_waiting(self: &Arc<Self>, class: WorkClass) {
        let state = self.class_state(class);
        if state.wait_queue.is_not_empty() {
            state.wait_queue.admit_waiting(
                Instant::now(),
                || self.reserve(class),
                // The drop of `ReservedPermit` would call `admit_waiting` again, which deadlocks on the lock of the
                // queue.
                |unused| {
                    state.in_flight.fetch_sub(1, SeqCst);
                    unused.forget();
                },
            );
        }
    }

    /// Returns a permit if one is free and if `max_wait` is likely to cover the latency of the method.
    pub fn try_acquire(
        self: &Arc<Self>,
        class: WorkClass,
        method: &str,
        max_wait: Duration,
    ) -> Result<WorkPermit, AdmissionError> {
        let state = self.class_state(class);
        let slot = slot(method);
        let is_busy = state.in_flight.load(Relaxed) > state.limit.load(Relaxed) / 2;
        // A call with a too short deadline would only take time from others. An idle server runs it anyway.
        let takes = self.methods[slot].usual_latency();
        if is_busy && takes.is_some_and(|takes| max_wait < takes / 2) {
            return Err(AdmissionError::DeadlineTooShort);
        }
        // Waiting calls come first.
        if state.wait_queue.is_not_empty() {
            return Err(AdmissionError::Saturated);
        }
        state.try_take()?;
        Ok(WorkPermit::new(self, class, slot))
    }

    /// Records the latency of a finished call.
    fn record(&self, class: WorkClass, slot: usize, took: Duration, now: Instant) {
        self.methods[slot].record(took);
        let longer = self.class_state(class).record(took, now);
        // Changes determine the allowed delay, because they are the slowest and the most frequent calls.
        if class == WorkClass::Change
            && let Some(longer) = longer
        {
            self.scheduling_delay.set_max_delay(longer / 2);
        }
    }
}

fn slot(method: &str) -> usize {
    // FNV-1a. Methods in the same slot share their statistics.
    let hash = method
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    usize::try_from(hash % METHOD_SLOTS as u64).unwrap_or(0)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The reason for denying a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionError {
    /// The class is at its limit.
    Saturated,
    /// The call cannot finish before its deadline.
    DeadlineTooShort,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LATENCY: Duration = Duration::from_mins(1);

    #[test]
    fn a_paused_call_holds_no_permit() {
        let pace = AdmissionControl::new(8, 200, Arc::default());
        let places: Vec<_> = (0..8)
            .map(|_| {
                pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY)
                    .unwrap()
            })
            .collect();
        assert_eq!(
            pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY)
                .unwrap_err(),
            AdmissionError::Saturated
        );
        assert!(places[0].pause());
        let other = pace
            .try_acquire(WorkClass::Change, "m", MAX_LATENCY)
            .unwrap();
        places[0].resume();
        drop((other, places));
        assert_eq!(pace.changes.in_flight.load(Relaxed), 0);
    }

    #[test]
    fn reads_and_changes_have_separate_lanes() {
        let pace = AdmissionControl::new(100, 200, Arc::default());
        let changes: Vec<_> =
            std::iter::from_fn(|| pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY).ok())
                .collect();
        assert_eq!(changes.len(), pace.limit());
        assert!(pace.try_acquire(WorkClass::Read, "r", MAX_LATENCY).is_ok());
    }

    #[test]
    fn a_call_with_a_too_short_deadline_is_rejected() {
        let pace = AdmissionControl::new(10, 200, Arc::default());
        for _ in 0..MIN_METHOD_SAMPLES {
            pace.methods[slot("m")].record(Duration::from_millis(100));
        }
        // Less than half of the usual latency of 100 ms.
        let soon = Duration::from_millis(40);
        assert!(
            pace.try_acquire(WorkClass::Change, "m", soon).is_ok(),
            "an idle server must admit the call"
        );
        // Six of ten permits are more than half, so the server counts as busy.
        let _busy: Vec<_> = (0..6)
            .map(|_| {
                pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY)
                    .unwrap()
            })
            .collect();
        let refused = pace.try_acquire(WorkClass::Change, "m", soon);
        assert_eq!(refused.unwrap_err(), AdmissionError::DeadlineTooShort);
        assert!(
            pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY)
                .is_ok()
        );
    }

    #[tokio::test]
    async fn a_queued_call_gets_a_released_permit() {
        let pace = AdmissionControl::new(8, 200, Arc::default());
        let mut places: Vec<_> =
            std::iter::from_fn(|| pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY).ok())
                .collect();
        let waiting = pace.acquire(WorkClass::Change, "m", MAX_LATENCY);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        // No call overtakes the waiting one, and an abandoned wait does not leak its permit.
        drop(places.pop());
        assert!(
            pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY)
                .is_err()
        );
        places.push(waiting.await.unwrap());
        let mut gone = Box::pin(pace.acquire(WorkClass::Change, "m", MAX_LATENCY));
        assert!(futures::poll!(&mut gone).is_pending());
        drop(places.pop());
        drop(gone);
        places.push(
            pace.try_acquire(WorkClass::Change, "m", MAX_LATENCY)
                .unwrap(),
        );
        // No permit is released, so the call is rejected soon.
        let refused = pace.acquire(WorkClass::Change, "m", MAX_LATENCY).await;
        assert_eq!(refused.unwrap_err(), AdmissionError::Saturated);
        assert_eq!(pace.shed_count(), 1);
        drop(places);
        assert_eq!(pace.changes.in_flight.load(Relaxed), 0);
    }
}
