//! How far behind the runtime is, and which share of the calls is refused for it.
//!
//! When every core is busy, calls wait before anybody has seen them: in the sockets, which are read by tasks
//! that wait for their turn like all others. No count of calls shows that, and only refusing some helps. To
//! refuse all while they wait too long and none when they do not makes waves: a queue is let grow, and then the
//! cores have too little to do. So a share of them is refused, and it follows how long they wait: more of them
//! the longer that is too long, and the more the faster it gets longer.
//!
//! As in the line of those who were seen, a moment of it is a burst, and is waited for, when it was calm before.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::micros;
use super::overload_state::{BURST, OverloadState};

/// How long a call may wait to be seen, at least and as long as nothing is known.
const LEAST: Duration = Duration::from_millis(1);
const UNKNOWN: Duration = Duration::from_millis(10);
/// How often it is looked at, at most, and after what time nothing is known of it any more.
const EVERY: Duration = Duration::from_millis(1);
const OLD: Duration = Duration::from_secs(1);
/// All calls, and the most of them that are refused: of some it has to be seen that there is room again.
const ALL: u32 = 1 << 16;
const MOST: f64 = 0.98;
/// How the share follows the part by which calls wait too long: by so much of it in a second, by so much of
/// what it changed; and that part at most.
const FOLLOWS: f64 = 10.0;
const TURNS: f64 = 0.05;
const FAR: f64 = 3.0;
/// How much the share grows when the line refuses somebody, which costs more.
const PRESSED: f64 = 0.02;

/// What is known of it.
#[derive(Debug)]
pub(super) struct SchedulingDelay {
    began: Instant,
    is_measured: AtomicBool,
    /// When it is looked at again, in microseconds since it began.
    next: AtomicU64,
    /// How long a call may wait, in microseconds.
    may: AtomicU64,
    /// How many of `ALL` calls are refused, and the sum of that over the calls that came: one is refused
    /// whenever it passes `ALL`.
    share: AtomicU32,
    sum: AtomicU32,
    seen: Mutex<DelayState>,
    calm: Arc<OverloadState>,
}

#[derive(Debug, Default)]
struct DelayState {
    share: f64,
    /// When it was looked at, and by which part it was too long.
    last: Option<(Instant, f64)>,
    /// Since when it is too long.
    since: Option<Instant>,
}

impl SchedulingDelay {
    pub(super) fn new(calm: &Arc<OverloadState>) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            is_measured: AtomicBool::new(false),
            next: AtomicU64::new(0),
            may: AtomicU64::new(micros(UNKNOWN)),
            share: AtomicU32::new(0),
            sum: AtomicU32::new(0),
            seen: Mutex::default(),
            calm: Arc::clone(calm),
        })
    }

    /// Says how long a call may wait to be seen: as much as makes it slow, and that follows what calls take.
    pub(super) fn allow(&self, may: Duration) {
        self.may.store(micros(may.max(LEAST)), Relaxed);
    }

    /// Whether a call that comes now is to be refused; has it looked at, now and then, when there is a runtime.
    pub(super) fn refuses(self: &Arc<Self>) -> bool {
        self.look();
        self.is_one()
    }

    /// Whether the next call is one of the share.
    fn is_one(&self) -> bool {
        let share = self.share.load(Relaxed);
        share > 0 && self.sum.fetch_add(share, Relaxed) % ALL + share >= ALL
    }

    /// The line refused somebody.
    pub(super) fn press(&self, now: Instant) {
        if self.calm.is(now) {
            return;
        }
        let mut seen = self.seen();
        seen.share = (seen.share + PRESSED).min(MOST);
        self.set(seen.share);
    }

    fn look(self: &Arc<Self>) {
        let now = Instant::now();
        let (at, next) = (micros(now - self.began), self.next.load(Relaxed));
        if at >= next
            && let Ok(runtime) = Handle::try_current()
            && !self.is_measured.swap(true, Relaxed)
        {
            if at > next + micros(OLD) {
                *self.seen() = DelayState::default();
                self.set(0.0);
            }
            let this = Arc::clone(self);
            runtime.spawn(async move {
                // Once to the end of the queue, and once round it with the sockets looked at.
                tokio::task::yield_now().await;
                let done = Instant::now();
                this.learn((done - now) / 2, done);
                this.is_measured.store(false, Relaxed);
            });
        }
    }

    fn learn(&self, lag: Duration, now: Instant) {
        let may = Duration::from_micros(self.may.load(Relaxed));
        let mut seen = self.seen();
        // What this look itself took is no time in which nobody came.
        if seen.last.is_some_and(|(at, _)| now - at > OLD + lag * 2) {
            *seen = DelayState::default();
        }
        let too_long = (lag.as_secs_f64() / may.as_secs_f64() - 1.0).min(FAR);
        let since = (too_long > 0.0).then(|| seen.since.unwrap_or(now));
        let last = seen.last.replace((now, too_long));
        seen.since = since;
        let is_burst = self.calm.is(now) && since.is_none_or(|since| now - since <= BURST);
        if !is_burst || seen.share > 0.0 {
            let (at, before) = last.unwrap_or((now, too_long));
            let follows = FOLLOWS * too_long * (now - at).as_secs_f64();
            let turns = TURNS * (too_long - before);
            seen.share = (seen.share + follows + turns).clamp(0.0, MOST);
        }
        if too_long > 0.0 && seen.share > 0.0 {
            self.calm.disturb(now);
        }
        self.set(seen.share);
        // While some are refused it is looked at all the time.
        let pause = if seen.share > 0.0 {
            Duration::ZERO
        } else {
            EVERY
        };
        self.next
            .store(micros(now - self.began) + micros(pause), Relaxed);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a part of one"
    )]
    fn set(&self, share: f64) {
        self.share.store((share * f64::from(ALL)) as u32, Relaxed);
    }

    fn seen(&self) -> MutexGuard<'_, DelayState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag() -> Arc<SchedulingDelay> {
        SchedulingDelay::new(&Arc::new(OverloadState::new(Instant::now())))
    }

    #[test]
    fn a_burst_is_waited_for_and_overload_is_not() {
        let lag = lag();
        lag.allow(Duration::from_millis(2));
        let mut now = lag.began;
        let mut see = |millis: u64, lag_millis: u64| {
            for _ in 0..millis.div_ceil(5) {
                now += Duration::from_millis(5);
                lag.learn(Duration::from_millis(lag_millis), now);
            }
            lag.share.load(Relaxed)
        };
        assert_eq!(see(100, 50), 0);
        assert_eq!(see(10, 1), 0, "it was a burst");
        assert_eq!(see(100, 50), 0);
        assert!(see(100, 50) > ALL * 9 / 10);
        assert_eq!(see(500, 1), 0, "there is room");
        assert!(see(10, 10) > 0, "and none again");
        assert_eq!(see(1_500, 1), 0);
        assert_eq!(see(100, 50), 0, "long after, it is a burst");
    }

    /// Half a second in which calls wait for far longer than they may; when it is over.
    fn overloaded(lag: &SchedulingDelay) -> Instant {
        lag.allow(Duration::from_millis(2));
        let mut now = lag.began;
        for _ in 0..100 {
            now += Duration::from_millis(5);
            lag.learn(Duration::from_millis(50), now);
        }
        now
    }

    #[test]
    fn what_was_known_long_ago_is_not_known() {
        let lag = lag();
        let now = overloaded(&lag);
        assert!(lag.share.load(Relaxed) > 0);
        lag.learn(Duration::from_millis(50), now + Duration::from_mins(1));
        assert_eq!(lag.share.load(Relaxed), 0);
    }

    /// A core that is asked for twice as much as it can do, for some seconds: which part of its time went into
    /// calls that were done, and how long calls waited, sorted.
    fn overload() -> (f64, Vec<Duration>) {
        const DONE: Duration = Duration::from_micros(300);
        const REFUSED: Duration = Duration::from_micros(30);
        let lag = lag();
        let began = lag.began;
        let (mut came, mut free, mut looked) = (began, began, began);
        let mut useful = Duration::ZERO;
        let mut waits = Vec::new();
        while came < began + Duration::from_secs(10) {
            came += DONE / 2;
            let now = free.max(came);
            let waited = now - came;
            if now - looked > EVERY {
                looked = now;
                lag.learn(waited, now);
            }
            let refused = lag.is_one();
            free = now + if refused { REFUSED } else { DONE };
            if came > began + Duration::from_secs(2) {
                useful += if refused { Duration::ZERO } else { DONE };
                waits.push(waited);
            }
            lag.allow(Duration::from_millis(1));
        }
        waits.sort();
        (useful.as_secs_f64() / 8.0, waits)
    }

    #[test]
    fn the_core_stays_busy_and_nobody_waits_for_long() {
        let (useful, waits) = overload();
        // A tenth of its time went into each refusal that half of the calls got.
        assert!(useful > 0.85, "{useful}");
        let p99 = waits[waits.len() * 99 / 100];
        assert!(p99 < Duration::from_millis(4), "{p99:?}");
    }

    #[tokio::test]
    async fn what_was_refused_long_ago_refuses_nobody() {
        let mut lag = lag();
        lag.share.store(ALL, Relaxed);
        assert!(lag.refuses());
        // The look that this began.
        while lag.is_measured.load(Relaxed) {
            tokio::task::yield_now().await;
        }
        lag.share.store(ALL, Relaxed);
        let fresh = Arc::get_mut(&mut lag).unwrap();
        fresh.began = fresh.began.checked_sub(OLD * 2).unwrap();
        assert!(!lag.refuses());
    }

    #[test]
    fn a_look_that_takes_long_forgets_nothing() {
        let lag = lag();
        let now = overloaded(&lag);
        let long = Duration::from_secs(2);
        lag.learn(long, now + long * 2);
        assert!(lag.share.load(Relaxed) > 0);
    }

    #[tokio::test]
    async fn a_runtime_that_is_busy_for_long_refuses() {
        let lag = lag();
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
