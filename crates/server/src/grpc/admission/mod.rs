//! Admission control: the decision to run, queue or reject a call.
//!
//! The module `limit` computes the number of concurrent calls that keeps the machine busy. More calls would only wait
//! for a core or the disk. Time in which a call waits for another system is not counted.
//!
//! A call without a permit waits a short time (`wait_queue`), so that a burst does not cause rejections. When the cores
//! are so busy that calls wait before they are read (`scheduling_delay`), a share of them is rejected at minimal cost.
//! Both mechanisms share their findings through `overload_state`.
//!
//! Reads and changes have separate lanes, so that neither starves the other.

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
pub(super) use permit::WorkPermit;
use scheduling_delay::SchedulingDelay;
use wait_queue::{Flow, JoinOutcome, WaitQueue};

/// The number of slots for latency statistics of methods. A method's slot is a hash of its name.
const SLOTS: usize = 64;
/// The number of measured calls of a method before calls with a short deadline are rejected.
const KNOWN: u64 = 64;
/// At or above this value of `max_slowdown_percent`, adaptive limiting is off.
const ANY: u32 = 10_000;
/// The divisor of the limit. With fewer calls in progress, the calls are not the cause of a scheduling delay.
const MANY: usize = 4;
/// The assumed latency of a call before the first measurement.
const UNKNOWN: Duration = Duration::from_millis(2);

/// The class of a call. Each class has a separate concurrency limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Read,
    Change,
}

/// The admission state of the server, with one limit per lane.
#[derive(Debug)]
pub(super) struct AdmissionControl {
    reads: LaneState,
    changes: LaneState,
    refused: AtomicU64,
    scheduling_delay: Arc<SchedulingDelay>,
    methods: [MethodStats; SLOTS],
}

/// The admission state of one lane.
#[derive(Debug)]
struct LaneState {
    /// The number of calls in progress.
    working: Arc<AtomicUsize>,
    /// The maximum number of calls in progress.
    limit: AtomicUsize,
    /// The measured latency of a call, in microseconds.
    takes: AtomicU64,
    /// True if a call found no permit since the last finished call.
    was_short: AtomicBool,
    wait_queue: WaitQueue<ReservedPermit>,
    /// True if the limit adapts to the latency of calls.
    is_kept: bool,
    mind: Mutex<ConcurrencyLimit>,
}

impl LaneState {
    fn new(
        most: usize,
        max_slowdown_percent: u32,
        calm: &Arc<OverloadState>,
        working: Arc<AtomicUsize>,
    ) -> Self {
        let mind = ConcurrencyLimit::new(most, max_slowdown_percent, Instant::now());
        let is_kept = max_slowdown_percent < ANY;
        Self {
            working,
            limit: AtomicUsize::new(if is_kept { mind.get() } else { most }),
            takes: AtomicU64::new(micros(UNKNOWN)),
            was_short: AtomicBool::new(false),
            wait_queue: WaitQueue::new(calm),
            is_kept,
            mind: Mutex::new(mind),
        }
    }

    /// Takes a permit, or fails if the lane is at its limit.
    fn take(&self) -> Result<(), AdmissionError> {
        let limit = self.limit.load(Relaxed);
        let more = |n| (n < limit).then_some(n + 1);
        match self.working.fetch_update(SeqCst, SeqCst, more) {
            Ok(_before) => Ok(()),
            Err(_full) => {
                self.was_short.store(true, Relaxed);
                Err(AdmissionError::Saturated)
            }
        }
    }

    fn flow(&self) -> Flow {
        Flow {
            takes: Duration::from_micros(self.takes.load(Relaxed)),
            places: self.limit.load(Relaxed),
        }
    }

    /// Records the latency of a finished call. Returns the tolerated additional latency.
    fn learn(&self, took: Duration, now: Instant) -> Option<Duration> {
        let done = CallSample {
            took,
            working: self.working.load(Acquire),
            was_short: self.was_short.swap(false, Relaxed),
        };
        let mut mind = self.mind();
        mind.learn(done, now);
        if self.is_kept {
            self.limit.store(mind.get(), Relaxed);
        }
        if let Some(takes) = mind.takes() {
            self.takes.store(micros(takes), Relaxed);
        }
        mind.longer()
    }

    fn mind(&self) -> MutexGuard<'_, ConcurrencyLimit> {
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latency statistics of a method.
#[derive(Debug, Default)]
struct MethodStats {
    micros: AtomicU64,
    seen: AtomicU64,
}

impl MethodStats {
    fn learn(&self, took: Duration) {
        // An exponential moving average with a weight of 1/32 for the new value.
        let took = micros(took).max(1);
        let usual = match self.micros.load(Relaxed) {
            0 => took,
            usual => usual - usual / 32 + took / 32,
        };
        self.micros.store(usual.max(1), Relaxed);
        self.seen.fetch_add(1, Relaxed);
    }

    /// Returns the usual latency of the method, once [`KNOWN`] calls were measured.
    fn takes(&self) -> Option<Duration> {
        let known = self.seen.load(Relaxed) >= KNOWN;
        known.then(|| Duration::from_micros(self.micros.load(Relaxed)))
    }
}

impl AdmissionControl {
    /// Creates the admission state.
    ///
    /// Each lane runs at most `most` calls, and at most `max_slowdown_percent` of the calls that saturate the machine.
    /// `changes` counts the changes in progress.
    pub(super) fn new(
        most: usize,
        max_slowdown_percent: u32,
        changes: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let calm = Arc::new(OverloadState::new(Instant::now()));
        Arc::new(Self {
            reads: LaneState::new(most, max_slowdown_percent, &calm, Arc::default()),
            changes: LaneState::new(most, max_slowdown_percent, &calm, changes),
            refused: AtomicU64::new(0),
            scheduling_delay: SchedulingDelay::new(&calm),
            methods: std::array::from_fn(|_| MethodStats::default()),
        })
    }

    /// Returns the current limit of concurrent changes.
    pub(super) fn limit(&self) -> usize {
        self.changes.limit.load(Relaxed)
    }

    /// Returns the number of calls that were rejected since the start.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn work(&self, lane: Lane) -> &LaneState {
        match lane {
            Lane::Read => &self.reads,
            Lane::Change => &self.changes,
        }
    }

    /// Returns true if this call must be shed because of a high scheduling delay. The check is very cheap.
    ///
    /// Few calls in progress cannot be the cause of the delay, so nothing is shed then.
    pub(super) fn refuses(&self, lane: Lane) -> bool {
        let work = self.work(lane);
        let are_many = work.working.load(Relaxed) > work.limit.load(Relaxed) / MANY;
        let refuses = work.is_kept && are_many && self.scheduling_delay.refuses();
        if refuses {
            self.refused.fetch_add(1, Relaxed);
        }
        refuses
    }

    /// Returns a permit, after a short wait if necessary.
    pub(super) async fn enter(
        self: &Arc<Self>,
        lane: Lane,
        method: &str,
        patience: Duration,
    ) -> Result<WorkPermit, AdmissionError> {
        match self.place(lane, method, patience) {
            Err(AdmissionError::Saturated) => {}
            placed => return placed,
        }
        let work = self.work(lane);
        // Taking a permit failed once, so the call joins the queue. `join` tries again under the lock, because a permit
        // released before the queue was visible would otherwise be lost.
        let joined = (work.wait_queue).join(Instant::now(), work.flow(), || self.hold(lane));
        let held = match joined {
            JoinOutcome::Admitted(held) => Some(held),
            JoinOutcome::TooLong => None,
            JoinOutcome::Queued(mut place, wait) => {
                match timeout(wait.min(patience), &mut place).await {
                    Ok(held) => held.ok(),
                    // The permit may have arrived at the same moment as the timeout.
                    Err(_elapsed) => {
                        let held = place.try_recv().ok();
                        if held.is_none() {
                            drop(place);
                            work.wait_queue.gave_up(Instant::now());
                        }
                        held
                    }
                }
            }
        };
        let Some(held) = held else {
            self.refused.fetch_add(1, Relaxed);
            if work.is_kept {
                self.scheduling_delay.press(Instant::now());
            }
            return Err(AdmissionError::Saturated);
        };
        Ok(held.into_place(slot(method)))
    }

    /// Reserves a permit for the next waiting call.
    fn hold(self: &Arc<Self>, lane: Lane) -> Option<ReservedPermit> {
        self.work(lane).take().ok()?;
        Some(ReservedPermit::new(self, lane))
    }

    /// Releases a permit and hands it to the next waiting call.
    fn leave(self: &Arc<Self>, lane: Lane) {
        self.work(lane).working.fetch_sub(1, SeqCst);
        self.call_up(lane);
    }

    /// Hands free permits to waiting calls.
    fn call_up(self: &Arc<Self>, lane: Lane) {
        let work = self.work(lane);
        if work.wait_queue.is_waited_in() {
            work.wait_queue.give(
                Instant::now(),
                || self.hold(lane),
                |unused| {
                    work.working.fetch_sub(1, SeqCst);
                    unused.defuse();
                },
            );
        }
    }

    /// Returns a permit if one is free and if `patience` is likely to cover the latency of the method.
    pub(super) fn place(
        self: &Arc<Self>,
        lane: Lane,
        method: &str,
        patience: Duration,
    ) -> Result<WorkPermit, AdmissionError> {
        let work = self.work(lane);
        let slot = slot(method);
        let is_busy = work.working.load(Relaxed) > work.limit.load(Relaxed) / 2;
        // A call with a too short deadline would only take time from others. An idle server runs it anyway.
        let takes = self.methods[slot].takes();
        if is_busy && takes.is_some_and(|takes| patience < takes / 2) {
            return Err(AdmissionError::TooLate);
        }
        // Waiting calls come first.
        if work.wait_queue.is_waited_in() {
            return Err(AdmissionError::Saturated);
        }
        work.take()?;
        Ok(WorkPermit::new(self, lane, slot))
    }

    /// Records the latency of a finished call.
    fn learn(&self, lane: Lane, slot: usize, took: Duration, now: Instant) {
        self.methods[slot].learn(took);
        let longer = self.work(lane).learn(took, now);
        // Changes determine the allowed delay, because they are the slowest and the most frequent calls.
        if lane == Lane::Change
            && let Some(longer) = longer
        {
            self.scheduling_delay.allow(longer / 2);
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
    usize::try_from(hash % SLOTS as u64).unwrap_or(0)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The reason for denying a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionError {
    /// The lane is at its limit.
    Saturated,
    /// The call cannot finish before its deadline.
    TooLate,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn waiting_for_somebody_else_takes_no_place() {
        let pace = AdmissionControl::new(8, 200, Arc::default());
        let places: Vec<_> = (0..8)
            .map(|_| pace.place(Lane::Change, "m", LONG).unwrap())
            .collect();
        assert_eq!(
            pace.place(Lane::Change, "m", LONG).unwrap_err(),
            AdmissionError::Saturated
        );
        assert!(places[0].pause());
        let other = pace.place(Lane::Change, "m", LONG).unwrap();
        places[0].resume();
        drop((other, places));
        assert_eq!(pace.changes.working.load(Relaxed), 0);
    }

    #[test]
    fn reads_have_a_lane_of_their_own() {
        let pace = AdmissionControl::new(100, 200, Arc::default());
        let changes: Vec<_> =
            std::iter::from_fn(|| pace.place(Lane::Change, "m", LONG).ok()).collect();
        assert_eq!(changes.len(), pace.limit());
        assert!(pace.place(Lane::Read, "r", LONG).is_ok());
    }

    #[test]
    fn what_cannot_be_done_in_time_is_not_begun() {
        let pace = AdmissionControl::new(10, 200, Arc::default());
        for _ in 0..KNOWN {
            pace.methods[slot("m")].learn(Duration::from_millis(100));
        }
        let soon = Duration::from_millis(40);
        assert!(pace.place(Lane::Change, "m", soon).is_ok(), "it is idle");
        let _busy: Vec<_> = (0..6)
            .map(|_| pace.place(Lane::Change, "m", LONG).unwrap())
            .collect();
        let refused = pace.place(Lane::Change, "m", soon);
        assert_eq!(refused.unwrap_err(), AdmissionError::TooLate);
        assert!(pace.place(Lane::Change, "m", LONG).is_ok());
    }

    #[tokio::test]
    async fn a_call_of_a_burst_gets_the_place_of_another() {
        let pace = AdmissionControl::new(8, 200, Arc::default());
        let mut places: Vec<_> =
            std::iter::from_fn(|| pace.place(Lane::Change, "m", LONG).ok()).collect();
        let waiting = pace.enter(Lane::Change, "m", LONG);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        // No call overtakes the waiting one, and an abandoned wait does not leak its permit.
        drop(places.pop());
        assert!(pace.place(Lane::Change, "m", LONG).is_err());
        places.push(waiting.await.unwrap());
        let mut gone = Box::pin(pace.enter(Lane::Change, "m", LONG));
        assert!(futures::poll!(&mut gone).is_pending());
        drop(places.pop());
        drop(gone);
        places.push(pace.place(Lane::Change, "m", LONG).unwrap());
        // No permit is released, so the call is rejected soon.
        let refused = pace.enter(Lane::Change, "m", LONG).await;
        assert_eq!(refused.unwrap_err(), AdmissionError::Saturated);
        assert_eq!(pace.refused(), 1);
        drop(places);
        assert_eq!(pace.changes.working.load(Relaxed), 0);
    }
}
