//! How many calls are worked on at one time: as many as are answered about as fast as without load.
//!
//! More of them would not be done sooner, they would only wait: for a core, for the disk. So the number
//! follows what calls take. Each method has what it takes when little is going on; when calls take
//! `grpc.max_slowdown_percent` of that, the number falls, and it rises while calls are turned away that
//! would not slow the others down. Time in which a call waits for somebody else is not counted.
//!
//! A call that finds no place waits a little (`line`), so that a burst is no overload.
//!
//! Reads have a lane of their own beside changes, so that neither starves the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::line::{Joined, Line};

/// How many there may be at first: what two cores and a disk with group commit are good for.
const FIRST: usize = 64;
/// And at least, however slow calls become: enough for commits to share their syncs.
const LEAST: usize = 8;
/// How often the number is looked at, at most, and on how many calls.
const WINDOW: Duration = Duration::from_millis(50);
const SAMPLES: u64 = 16;
/// Where methods keep what they take, by a hash of their names.
const SLOTS: usize = 64;
/// How many calls of a method must have been seen before one is refused for a short deadline.
const KNOWN: u64 = 64;
/// A thousandth is the unit of ratios.
const ONE: u64 = 1_000;

/// What kind of work a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Read,
    Change,
}

/// How fast calls are taken on.
#[derive(Debug)]
pub(super) struct Pace {
    target: u64,
    most: usize,
    limit: AtomicUsize,
    reads: AtomicUsize,
    changes: AtomicUsize,
    /// Those who wait for a place: readers, and changes.
    lines: [Line<Held>; 2],
    refused: AtomicU64,
    /// What calls took in the last window, in thousandths of what they take without load.
    slowdown: AtomicU64,
    methods: [Method; SLOTS],
    window: Mutex<Window>,
}

/// What a method takes without load.
#[derive(Debug, Default)]
struct Method {
    micros: AtomicU64,
    seen: AtomicU64,
}

#[derive(Debug)]
struct Window {
    began: Option<Instant>,
    took: u64,
    expected: u64,
    samples: u64,
    peak: usize,
    was_short: bool,
}

impl Window {
    const fn empty(began: Option<Instant>) -> Self {
        Self {
            began,
            took: 0,
            expected: 0,
            samples: 0,
            peak: 0,
            was_short: false,
        }
    }
}

impl Pace {
    /// At most `most` at a time, as long as calls take no more than `max_slowdown_percent`.
    pub(super) fn new(most: usize, max_slowdown_percent: u32) -> Arc<Self> {
        Arc::new(Self {
            target: u64::from(max_slowdown_percent) * ONE / 100,
            most,
            limit: AtomicUsize::new(FIRST.min(most)),
            reads: AtomicUsize::new(0),
            changes: AtomicUsize::new(0),
            lines: [Line::new(), Line::new()],
            refused: AtomicU64::new(0),
            slowdown: AtomicU64::new(ONE),
            methods: std::array::from_fn(|_| Method::default()),
            window: Mutex::new(Window::empty(None)),
        })
    }

    /// How many changes are worked on at one time at most.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// How many calls were turned away so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn lane(&self, lane: Lane) -> (&AtomicUsize, usize) {
        let limit = self.limit();
        match lane {
            Lane::Change => (&self.changes, limit),
            Lane::Read => (&self.reads, (limit / 2).max(LEAST).min(self.most)),
        }
    }

    /// A place, waiting a little for one.
    pub(super) async fn enter(
        self: &Arc<Self>,
        lane: Lane,
        method: &str,
        patience: Duration,
    ) -> Result<Place, Refused> {
        match self.place(lane, method, patience) {
            Err(Refused::NoPlace) => {}
            placed => return placed,
        }
        let slot = slot(method);
        let takes = Duration::from_micros(self.methods[slot].micros.load(Relaxed));
        let joined = self
            .line(lane)
            .join(Instant::now(), takes, || self.hold(lane));
        let held = match joined {
            Joined::Placed(held) => Some(held),
            Joined::Waits(mut place, wait) => match timeout(wait.min(patience), &mut place).await {
                Ok(held) => held.ok(),
                // It may have come in the last moment.
                Err(_elapsed) => place.try_recv().ok(),
            },
        };
        let Some(held) = held else {
            self.refused.fetch_add(1, Relaxed);
            return Err(Refused::NoPlace);
        };
        Ok(held.into_place(slot))
    }

    /// A place for whoever comes first.
    fn hold(self: &Arc<Self>, lane: Lane) -> Option<Held> {
        let _before = self.take(lane).ok()?;
        Some(Held(Some((Arc::clone(self), lane))))
    }

    fn line(&self, lane: Lane) -> &Line<Held> {
        &self.lines[usize::from(lane == Lane::Change)]
    }

    /// One call less is worked on; the next may come.
    fn leave(self: &Arc<Self>, lane: Lane) {
        self.lane(lane).0.fetch_sub(1, SeqCst);
        self.call_up(lane);
    }

    /// Gives free places to those who wait.
    fn call_up(self: &Arc<Self>, lane: Lane) {
        let waiting = self.line(lane);
        if waiting.is_waited_in() {
            waiting.give(
                Instant::now(),
                || self.hold(lane),
                |unused| {
                    self.lane(lane).0.fetch_sub(1, SeqCst);
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
    ) -> Result<Place, Refused> {
        let (working, limit) = self.lane(lane);
        let slot = slot(method);
        let now_working = working.load(Relaxed);
        if now_working > limit / 2 && self.takes(slot).is_some_and(|takes| patience < takes / 2) {
            return Err(Refused::TooLate);
        }
        // Nobody goes ahead of those who wait.
        if self.line(lane).is_waited_in() {
            return Err(Refused::NoPlace);
        }
        let before = self.take(lane)?;
        Ok(Place::new(self, lane, slot, before <= limit / 8))
    }

    /// One more in a lane; how many there were before.
    fn take(&self, lane: Lane) -> Result<usize, Refused> {
        let (working, limit) = self.lane(lane);
        let taken = working.fetch_update(SeqCst, SeqCst, |n| (n < limit).then_some(n + 1));
        taken.map_err(|_| {
            self.lock().was_short = true;
            Refused::NoPlace
        })
    }

    /// What a method takes at present, once that is known.
    fn takes(&self, slot: usize) -> Option<Duration> {
        let method = &self.methods[slot];
        let known = method.seen.load(Relaxed) >= KNOWN;
        let micros = method.micros.load(Relaxed) * self.slowdown.load(Relaxed) / ONE;
        known.then(|| Duration::from_micros(micros))
    }

    /// Learns what a call took.
    fn learn(&self, place: &Place, took: Duration, now: Instant) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let method = &self.methods[place.slot];
        let (working, limit) = self.lane(place.lane);
        let working = working.load(Relaxed);
        let calm = place.calm && working <= limit / 8;
        let usual = match method.micros.load(Relaxed) {
            0 => took,
            usual if calm => usual - usual / 32 + took / 32,
            // Under load only what is faster tells of a call without it, and not much.
            usual if took < usual => usual - (usual - took) / 256,
            usual => usual,
        };
        method.micros.store(usual.max(1), Relaxed);
        method.seen.fetch_add(1, Relaxed);
        let mut window = self.lock();
        window.took = window.took.saturating_add(took);
        window.expected = window.expected.saturating_add(usual);
        window.samples += 1;
        window.peak = window.peak.max(working);
        let began = *window.began.get_or_insert(now);
        if window.samples >= SAMPLES && now.duration_since(began) >= WINDOW {
            self.adapt(&window);
            *window = Window::empty(Some(now));
        }
    }

    fn adapt(&self, window: &Window) {
        let slowdown = window.took.saturating_mul(ONE) / window.expected.max(1);
        self.slowdown.store(slowdown.max(ONE), Relaxed);
        let limit = self.limit();
        let next = if slowdown > self.target {
            // When few calls are worked on, it is not their number that slows them down.
            if window.peak < limit / 2 {
                return;
            }
            let wanted = (limit as u64).saturating_mul(self.target) / slowdown;
            let wanted = usize::try_from(wanted).unwrap_or(limit);
            wanted.max(limit - limit * 3 / 10)
        } else if window.was_short || window.peak + 1 >= limit {
            limit + (limit / 8).max(1)
        } else {
            return;
        };
        let next = next.clamp(LEAST.min(self.most), self.most);
        self.limit.store(next, Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A place that is given to a call which may have gone meanwhile; then it is given back.
#[derive(Debug)]
struct Held(Option<(Arc<Pace>, Lane)>);

impl Held {
    fn into_place(mut self, slot: usize) -> Place {
        let (pace, lane) = self.0.take().expect("it is given once");
        Place::new(&pace, lane, slot, false)
    }

    fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((pace, lane)) = self.0.take() {
            pace.leave(lane);
        }
    }
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// As many calls are worked on as may be.
    NoPlace,
    /// The call would not be done in its time.
    TooLate,
}

/// A call that is worked on; it is not any more when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pace: Arc<Pace>,
    lane: Lane,
    slot: usize,
    /// Whether little was going on when it came.
    calm: bool,
    work: Mutex<Work>,
}

#[derive(Debug)]
struct Work {
    /// Since when it is worked on; none while it waits for somebody else.
    since: Option<Instant>,
    done: Duration,
    counts: bool,
}

impl Place {
    fn new(pace: &Arc<Pace>, lane: Lane, slot: usize, calm: bool) -> Self {
        Self {
            pace: Arc::clone(pace),
            lane,
            slot,
            calm,
            work: Mutex::new(Work {
                since: Some(Instant::now()),
                done: Duration::ZERO,
                counts: false,
            }),
        }
    }

    /// Until the guard is dropped the call waits for somebody else.
    pub(super) fn pause(&self) -> Paused<'_> {
        Paused {
            place: self,
            was_working: self.stop(),
        }
    }

    /// The call waits for somebody else. False when it did before.
    pub(super) fn stop(&self) -> bool {
        let mut work = self.lock();
        let Some(since) = work.since.take() else {
            return false;
        };
        work.done += since.elapsed();
        self.pace.leave(self.lane);
        true
    }

    /// A call of which nothing has been done goes on, if there is still a place for it.
    pub(super) fn go_on(&self) -> Result<(), Refused> {
        let mut work = self.lock();
        if work.since.is_some() {
            return Ok(());
        }
        if self.pace.take(self.lane).is_err() {
            self.pace.refused.fetch_add(1, Relaxed);
            return Err(Refused::NoPlace);
        }
        work.since = Some(Instant::now());
        Ok(())
    }

    /// The call was answered: what it took says how busy the server is.
    pub(super) fn succeeded(&self) {
        self.lock().counts = true;
    }

    /// The call is over for the server, whoever still holds the place.
    pub(super) fn finish(&self) {
        let mut work = self.lock();
        let Some(since) = work.since.take() else {
            return;
        };
        let took = work.done + since.elapsed();
        let counts = work.counts;
        drop(work);
        self.pace.lane(self.lane).0.fetch_sub(1, SeqCst);
        if counts {
            self.pace.learn(self, took, Instant::now());
        }
        self.pace.call_up(self.lane);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A call that waits for somebody else.
#[derive(Debug)]
pub(super) struct Paused<'a> {
    place: &'a Place,
    was_working: bool,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if self.was_working {
            // It was taken on already: it need not find a place again.
            self.place.lock().since = Some(Instant::now());
            self.place.pace.lane(self.place.lane).0.fetch_add(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    /// Calls of which each has the server for itself.
    fn alone(pace: &Arc<Pace>, count: u64, took: Duration, now: &mut Instant) {
        for _ in 0..count {
            let one = pace.place(Lane::Change, "m", LONG).unwrap();
            *now += took;
            pace.learn(&one, took, *now);
        }
    }

    /// Rounds of as many calls as there is room for, each of which takes longer the more there are.
    fn rounds(pace: &Arc<Pace>, count: usize, capacity: usize, now: &mut Instant) {
        for _ in 0..count {
            let places: Vec<_> =
                std::iter::from_fn(|| pace.place(Lane::Change, "m", LONG).ok()).collect();
            let millis = 10 * places.len().max(capacity) / capacity;
            let took = Duration::from_millis(millis as u64);
            *now += took;
            for one in &places {
                pace.learn(one, took, *now);
            }
        }
    }

    #[test]
    fn the_number_settles_where_calls_are_not_slowed_down_too_much() {
        for capacity in [4, 20, 100] {
            let pace = Pace::new(1_000, 200);
            let mut now = Instant::now();
            alone(&pace, 50, Duration::from_millis(10), &mut now);
            rounds(&pace, 300, capacity, &mut now);
            let expected = (2 * capacity).max(LEAST);
            let limit = pace.limit();
            assert!(
                (expected * 6 / 10..=expected * 14 / 10).contains(&limit),
                "{capacity}: {limit}"
            );
        }
    }

    #[test]
    fn waiting_for_somebody_else_takes_no_place() {
        let pace = Pace::new(8, 200);
        let places: Vec<_> = (0..8)
            .map(|_| pace.place(Lane::Change, "m", LONG).unwrap())
            .collect();
        assert_eq!(
            pace.place(Lane::Change, "m", LONG).unwrap_err(),
            Refused::NoPlace
        );
        let paused = places[0].pause();
        let other = pace.place(Lane::Change, "m", LONG).unwrap();
        drop(paused);
        drop((other, places));
        assert_eq!(pace.changes.load(Relaxed), 0);
    }

    #[test]
    fn reads_have_a_lane_of_their_own() {
        let pace = Pace::new(100, 200);
        let changes: Vec<_> =
            std::iter::from_fn(|| pace.place(Lane::Change, "m", LONG).ok()).collect();
        assert_eq!(changes.len(), FIRST);
        assert!(pace.place(Lane::Read, "r", LONG).is_ok());
    }

    #[test]
    fn what_cannot_be_done_in_time_is_not_begun() {
        let pace = Pace::new(10, 200);
        let mut now = Instant::now();
        alone(&pace, KNOWN, Duration::from_millis(100), &mut now);
        let soon = Duration::from_millis(40);
        assert!(pace.place(Lane::Change, "m", soon).is_ok(), "it is idle");
        let _busy: Vec<_> = (0..6)
            .map(|_| pace.place(Lane::Change, "m", LONG).unwrap())
            .collect();
        let refused = pace.place(Lane::Change, "m", soon);
        assert_eq!(refused.unwrap_err(), Refused::TooLate);
        assert!(pace.place(Lane::Change, "m", LONG).is_ok());
    }

    #[tokio::test]
    async fn a_call_of_a_burst_gets_the_place_of_another() {
        let pace = Pace::new(8, 200);
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
        assert_eq!(refused.unwrap_err(), Refused::NoPlace);
        assert_eq!(pace.refused(), 1);
        drop(places);
        assert_eq!(pace.changes.load(Relaxed), 0);
    }
}
