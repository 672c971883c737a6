//! Load shedding by the scheduling delay of the runtime.
//!
//! When every core is busy, requests wait in the sockets until a task reads them. No count of calls shows this delay,
//! and only rejecting calls reduces it.
//!
//! Rejecting all calls above a threshold and none below would oscillate: the queue would grow, and afterwards the cores
//! would be idle. The controller therefore rejects a share of the calls. The share follows the excess of the delay and
//! the change of that excess (a proportional term and an integral term).
//!
//! As in the wait queue, a short delay after a calm time is a burst, and no call is rejected for a burst.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::micros;
use super::overload_state::{BURST_DURATION, OverloadState};

/// The minimum of the allowed delay, and the allowed delay before the first measurement.
const MIN_ALLOWED_DELAY: Duration = Duration::from_millis(1);
const DEFAULT_DELAY: Duration = Duration::from_millis(10);
/// The minimum interval between measurements, and the age at which a measurement becomes invalid.
const MEASURE_INTERVAL: Duration = Duration::from_millis(1);
const STALE_AFTER: Duration = Duration::from_secs(1);
/// The representation of a share of 100 %, and the maximum share. Some calls must pass to detect free capacity.
const SHARE_SCALE: u32 = 1 << 16;
const MAX_SHED_SHARE: f64 = 0.98;
/// The added share per unit and second of relative excess.
const INTEGRAL_GAIN: f64 = 10.0;
/// The added share per change of the relative excess by 1.
const PROPORTIONAL_GAIN: f64 = 0.05;
/// The maximum relative excess.
const MAX_RELATIVE_ERROR: f64 = 3.0;
/// The growth of the share for each rejection by the wait queue, because those rejections cost more.
const REJECTION_STEP: f64 = 0.02;

/// The measured delay and the share of rejected calls.
#[derive(Debug)]
pub(super) struct SchedulingDelay {
    started: Instant,
    is_measuring: AtomicBool,
    /// The time of the next measurement, in microseconds since `started`.
    next: AtomicU64,
    /// The allowed delay, in microseconds.
    max_delay: AtomicU64,
    /// The rejected calls per `SHARE_SCALE` calls, and the running sum of that number over all calls. A call is rejected
    /// whenever the sum passes a multiple of `SHARE_SCALE`, which spreads rejections evenly.
    share: AtomicU32,
    sum: AtomicU32,
    state: Mutex<DelayState>,
    overload_state: Arc<OverloadState>,
}

#[derive(Debug, Default)]
struct DelayState {
    share: f64,
    /// The time of the last measurement and its excess, as a fraction of the allowed delay.
    last: Option<(Instant, f64)>,
    /// The start of the current excess.
    since: Option<Instant>,
}

impl SchedulingDelay {
    pub(super) fn new(overload_state: &Arc<OverloadState>) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            is_measuring: AtomicBool::new(false),
            next: AtomicU64::new(0),
            max_delay: AtomicU64::new(micros(DEFAULT_DELAY)),
            share: AtomicU32::new(0),
            sum: AtomicU32::new(0),
            state: Mutex::default(),
            overload_state: Arc::clone(overload_state),
        })
    }

    /// Sets the allowed delay. It follows the measured latency of calls.
    pub(super) fn set_max_delay(&self, may: Duration) {
        self.max_delay
            .store(micros(may.max(MIN_ALLOWED_DELAY)), Relaxed);
    }

    /// Returns true if a new call must be rejected. Starts a measurement from time to time, inside a runtime only.
    pub(super) fn should_shed(self: &Arc<Self>) -> bool {
        self.measure();
        self.is_in_share()
    }

    /// Returns true if the next call belongs to the rejected share.
    fn is_in_share(&self) -> bool {
        let share = self.share.load(Relaxed);
        // The scale is a power of two, so the remainder stays correct when the sum wraps.
        share > 0 && self.sum.fetch_add(share, Relaxed) % SHARE_SCALE + share >= SHARE_SCALE
    }

    /// Records a rejection by the wait queue, which raises the share.
    pub(super) fn record_rejection(&self, now: Instant) {
        // A rejection in a calm time belongs to a burst, which is no reason to shed calls.
        if self.overload_state.is_calm(now) {
            return;
        }
        let mut state = self.state();
        state.share = (state.share + REJECTION_STEP).min(MAX_SHED_SHARE);
        self.set_share(state.share);
    }

    fn measure(self: &Arc<Self>) {
        let now = Instant::now();
        let (at, next) = (micros(now - self.started), self.next.load(Relaxed));
        // The swap ensures that at most one measurement runs.
        if at >= next
            && let Ok(runtime) = Handle::try_current()
            && !self.is_measuring.swap(true, Relaxed)
        {
            // Without calls for a while, the old share would reject the first new calls without reason.
            if at > next + micros(STALE_AFTER) {
                *self.state() = DelayState::default();
                self.set_share(0.0);
            }
            let this = Arc::clone(self);
            runtime.spawn(async move {
                // The spawn waits once for the run queue. The yield waits once more, with the sockets polled in
                // between. The measured time therefore covers two delays.
                tokio::task::yield_now().await;
                let done = Instant::now();
                this.record((done - now) / 2, done);
                this.is_measuring.store(false, Relaxed);
            });
        }
    }

    fn record(&self, lag: Duration, now: Instant) {
        let may = Duration::from_micros(self.max_delay.load(Relaxed));
        let mut state = self.state();
        // The duration of this measurement itself does not count as a time without calls.
        if state
            .last
            .is_some_and(|(at, _)| now - at > STALE_AFTER + lag * 2)
        {
            *state = DelayState::default();
        }
        // 0 at the allowed delay, and 1 at twice that delay.
        let too_long = (lag.as_secs_f64() / may.as_secs_f64() - 1.0).min(MAX_RELATIVE_ERROR);
        let since = (too_long > 0.0).then(|| state.since.unwrap_or(now));
        let last = state.last.replace((now, too_long));
        state.since = since;
        let is_burst = self.overload_state.is_calm(now)
            && since.is_none_or(|since| now - since <= BURST_DURATION);
        if !is_burst || state.share > 0.0 {
            let (at, before) = last.unwrap_or((now, too_long));
            // This is the incremental form of the controller. The first term adds up the excess over time, and the
            // second one follows its change at once.
            let follows = INTEGRAL_GAIN * too_long * (now - at).as_secs_f64();
            let turns = PROPORTIONAL_GAIN * (too_long - before);
            state.share = (state.share + follows + turns).clamp(0.0, MAX_SHED_SHARE);
        }
        if too_long > 0.0 && state.share > 0.0 {
            self.overload_state.record_overload(now);
        }
        self.set_share(state.share);
        // While calls are rejected, measurements follow each other without a pause.
        let pause = if state.share > 0.0 {
            Duration::ZERO
        } else {
            MEASURE_INTERVAL
        };
        self.next
            .store(micros(now - self.started) + micros(pause), Relaxed);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a part of one"
    )]
    fn set_share(&self, share: f64) {
        self.share
            .store((share * f64::from(SHARE_SCALE)) as u32, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, DelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag() -> Arc<SchedulingDelay> {
        SchedulingDelay::new(&Arc::new(OverloadState::new(Instant::now())))
    }

    #[test]
    fn a_burst_is_served_and_overload_is_shed() {
        let lag = lag();
        lag.set_max_delay(Duration::from_millis(2));
        let mut now = lag.started;
        let mut see = |millis: u64, lag_millis: u64| {
            for _ in 0..millis.div_ceil(5) {
                now += Duration::from_millis(5);
                lag.record(Duration::from_millis(lag_millis), now);
            }
            lag.share.load(Relaxed)
        };
        assert_eq!(see(100, 50), 0);
        assert_eq!(see(10, 1), 0, "a burst sheds no calls");
        // The calm time before it makes this delay a new burst. The next 100 ms exceed the duration of a burst.
        assert_eq!(see(100, 50), 0);
        assert!(see(100, 50) > SHARE_SCALE * 9 / 10);
        assert_eq!(see(500, 1), 0, "the runtime is idle again");
        // Within a second of the last rejection, no delay counts as a burst.
        assert!(see(10, 10) > 0, "the runtime is overloaded again");
        assert_eq!(see(1_500, 1), 0);
        assert_eq!(see(100, 50), 0, "a later delay counts as a new burst");
    }

    /// Simulates half a second of an excessive delay. Returns the time of its end.
    fn overloaded(lag: &SchedulingDelay) -> Instant {
        lag.set_max_delay(Duration::from_millis(2));
        let mut now = lag.started;
        for _ in 0..100 {
            now += Duration::from_millis(5);
            lag.record(Duration::from_millis(50), now);
        }
        now
    }

    #[test]
    fn a_stale_measurement_is_discarded() {
        let lag = lag();
        let now = overloaded(&lag);
        assert!(lag.share.load(Relaxed) > 0);
        lag.record(Duration::from_millis(50), now + Duration::from_mins(1));
        assert_eq!(lag.share.load(Relaxed), 0);
    }

    /// Simulates a core at twice its capacity for some seconds. Returns the share of time spent on completed calls, and
    /// the sorted waiting times.
    fn overload() -> (f64, Vec<Duration>) {
        const COST_PER_CALL: Duration = Duration::from_micros(300);
        const COST_PER_SHED_CALL: Duration = Duration::from_micros(30);
        let lag = lag();
        let began = lag.started;
        let (mut came, mut free, mut looked) = (began, began, began);
        let mut useful = Duration::ZERO;
        let mut waits = Vec::new();
        while came < began + Duration::from_secs(10) {
            came += COST_PER_CALL / 2;
            let now = free.max(came);
            let waited = now - came;
            if now - looked > MEASURE_INTERVAL {
                looked = now;
                lag.record(waited, now);
            }
            let refused = lag.is_in_share();
            free = now
                + if refused {
                    COST_PER_SHED_CALL
                } else {
                    COST_PER_CALL
                };
            if came > began + Duration::from_secs(2) {
                useful += if refused {
                    Duration::ZERO
                } else {
                    COST_PER_CALL
                };
                waits.push(waited);
            }
            lag.set_max_delay(Duration::from_millis(1));
        }
        waits.sort();
        // The first two of ten seconds are the start of the controller and are not counted.
        (useful.as_secs_f64() / 8.0, waits)
    }

    #[test]
    fn shedding_keeps_the_core_busy_and_the_delay_short() {
        let (useful, waits) = overload();
        // Half of the calls are rejected, and a rejection costs a tenth of a call.
        assert!(useful > 0.85, "{useful}");
        let p99 = waits[waits.len() * 99 / 100];
        assert!(p99 < Duration::from_millis(4), "{p99:?}");
    }

    #[tokio::test]
    async fn a_stale_shed_share_sheds_no_call() {
        let mut lag = lag();
        lag.share.store(SHARE_SCALE, Relaxed);
        assert!(lag.should_shed());
        // Waits for the measurement that `should_shed` started.
        while lag.is_measuring.load(Relaxed) {
            tokio::task::yield_now().await;
        }
        lag.share.store(SHARE_SCALE, Relaxed);
        // An earlier start makes the last measurement look older than `STALE_AFTER`, without a real wait.
        let fresh = Arc::get_mut(&mut lag).unwrap();
        fresh.started = fresh.started.checked_sub(STALE_AFTER * 2).unwrap();
        assert!(!lag.should_shed());
    }

    #[test]
    fn a_slow_measurement_does_not_reset_the_shed_share() {
        let lag = lag();
        let now = overloaded(&lag);
        let long = Duration::from_secs(2);
        lag.record(long, now + long * 2);
        assert!(lag.share.load(Relaxed) > 0);
    }

    #[tokio::test]
    async fn a_busy_runtime_sheds_calls() {
        let lag = lag();
        lag.set_max_delay(Duration::ZERO);
        let began = Instant::now();
        let mut refused = false;
        while began.elapsed() < Duration::from_mins(2) && !refused {
            refused = lag.should_shed();
            // Blocking without a yield delays all other tasks.
            let turn = Instant::now();
            while turn.elapsed() < Duration::from_millis(10) {}
            tokio::task::yield_now().await;
        }
        assert!(refused);
        assert!(began.elapsed() > BURST_DURATION);
    }
}
