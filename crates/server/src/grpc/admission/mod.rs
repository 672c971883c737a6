//! How many calls are worked on at one time: as many as keep the machine busy (`limit`).
//!
//! More of them would not be done sooner, they would only wait: for a core, for the disk. Time in which a
//! call waits for somebody else is not counted.
//!
//! A call that finds no place waits a little (`wait_queue`), so that a burst is no overload. When the cores are so
//! busy that calls wait before they are seen (`scheduling_delay`), a share of them is refused as cheaply as can be. Either
//! knows what the other saw (`overload_state`).
//!
//! Reads have a lane of their own beside changes, so that neither starves the other.

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

/// Where methods keep what they take, by a hash of their names.
const SLOTS: usize = 64;
/// How many calls of a method must have been seen before one is refused for a short deadline.
const KNOWN: u64 = 64;
/// From this percentage on calls may take as long as they do.
const ANY: u32 = 10_000;
/// The part of the limit from which on it is the calls that keep the cores busy.
const MANY: usize = 4;
/// What a call takes as long as nothing is known.
const UNKNOWN: Duration = Duration::from_millis(2);

/// What kind of work a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Read,
    Change,
}

/// How fast calls are taken on.
#[derive(Debug)]
pub(super) struct AdmissionControl {
    reads: LaneState,
    changes: LaneState,
    refused: AtomicU64,
    scheduling_delay: Arc<SchedulingDelay>,
    methods: [MethodStats; SLOTS],
}

/// What is worked on in one lane.
#[derive(Debug)]
struct LaneState {
    /// How many calls.
    working: Arc<AtomicUsize>,
    /// How many there may be.
    limit: AtomicUsize,
    /// Microseconds that one takes.
    takes: AtomicU64,
    /// Whether one found no place since the last was done.
    was_short: AtomicBool,
    wait_queue: WaitQueue<ReservedPermit>,
    /// Whether the limit follows what calls take.
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

    /// One more, if there is a place.
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

    /// Learns what a call took that is over; how much longer one may take.
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

/// What a method takes.
#[derive(Debug, Default)]
struct MethodStats {
    micros: AtomicU64,
    seen: AtomicU64,
}

impl MethodStats {
    fn learn(&self, took: Duration) {
        let took = micros(took).max(1);
        let usual = match self.micros.load(Relaxed) {
            0 => took,
            usual => usual - usual / 32 + took / 32,
        };
        self.micros.store(usual.max(1), Relaxed);
        self.seen.fetch_add(1, Relaxed);
    }

    /// What it takes at present, once that is known.
    fn takes(&self) -> Option<Duration> {
        let known = self.seen.load(Relaxed) >= KNOWN;
        known.then(|| Duration::from_micros(self.micros.load(Relaxed)))
    }
}

impl AdmissionControl {
    /// At most `most` at a time, and at most that percentage of those that keep the machine busy. `changes` is how
    /// many changes are worked on.
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

    /// How many changes are worked on at one time at most.
    pub(super) fn limit(&self) -> usize {
        self.changes.limit.load(Relaxed)
    }

    /// How many calls were turned away so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn work(&self, lane: Lane) -> &LaneState {
        match lane {
            Lane::Read => &self.reads,
            Lane::Change => &self.changes,
        }
    }

    /// Whether this one is not taken on because those who come wait too long to be seen. It costs next to
    /// nothing to say so. While few are worked on, it is not they who keep the cores busy.
    pub(super) fn refuses(&self, lane: Lane) -> bool {
        let work = self.work(lane);
        let are_many = work.working.load(Relaxed) > work.limit.load(Relaxed) / MANY;
        let refuses = work.is_kept && are_many && self.scheduling_delay.refuses();
        if refuses {
            self.refused.fetch_add(1, Relaxed);
        }
        refuses
    }

    /// A place, waiting a little for one.
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
        let joined = (work.wait_queue).join(Instant::now(), work.flow(), || self.hold(lane));
        let held = match joined {
            JoinOutcome::Admitted(held) => Some(held),
            JoinOutcome::TooLong => None,
            JoinOutcome::Queued(mut place, wait) => {
                match timeout(wait.min(patience), &mut place).await {
                    Ok(held) => held.ok(),
                    // It may have come in the last moment.
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

    /// A place for whoever comes first.
    fn hold(self: &Arc<Self>, lane: Lane) -> Option<ReservedPermit> {
        self.work(lane).take().ok()?;
        Some(ReservedPermit::new(self, lane))
    }

    /// One call less is worked on; the next may come.
    fn leave(self: &Arc<Self>, lane: Lane) {
        self.work(lane).working.fetch_sub(1, SeqCst);
        self.call_up(lane);
    }

    /// Gives free places to those who wait.
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

    /// A place, if there is one; and if `patience` is likely to last as long as the call takes.
    pub(super) fn place(
        self: &Arc<Self>,
        lane: Lane,
        method: &str,
        patience: Duration,
    ) -> Result<WorkPermit, AdmissionError> {
        let work = self.work(lane);
        let slot = slot(method);
        let is_busy = work.working.load(Relaxed) > work.limit.load(Relaxed) / 2;
        let takes = self.methods[slot].takes();
        if is_busy && takes.is_some_and(|takes| patience < takes / 2) {
            return Err(AdmissionError::TooLate);
        }
        // Nobody goes ahead of those who wait.
        if work.wait_queue.is_waited_in() {
            return Err(AdmissionError::Saturated);
        }
        work.take()?;
        Ok(WorkPermit::new(self, lane, slot))
    }

    /// Learns what a call took that is over.
    fn learn(&self, lane: Lane, slot: usize, took: Duration, now: Instant) {
        self.methods[slot].learn(took);
        let longer = self.work(lane).learn(took, now);
        // Changes are what is slow, and what there is most of.
        if lane == Lane::Change
            && let Some(longer) = longer
        {
            self.scheduling_delay.allow(longer / 2);
        }
    }
}

fn slot(method: &str) -> usize {
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

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionError {
    /// As many calls are worked on as may be.
    Saturated,
    /// The call would not be done in its time.
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
        // Nobody goes ahead of it, and who waited and left has taken nothing along.
        drop(places.pop());
        assert!(pace.place(Lane::Change, "m", LONG).is_err());
        places.push(waiting.await.unwrap());
        let mut gone = Box::pin(pace.enter(Lane::Change, "m", LONG));
        assert!(futures::poll!(&mut gone).is_pending());
        drop(places.pop());
        drop(gone);
        places.push(pace.place(Lane::Change, "m", LONG).unwrap());
        // Nobody leaves: it is refused, and soon.
        let refused = pace.enter(Lane::Change, "m", LONG).await;
        assert_eq!(refused.unwrap_err(), AdmissionError::Saturated);
        assert_eq!(pace.refused(), 1);
        drop(places);
        assert_eq!(pace.changes.working.load(Relaxed), 0);
    }
}
