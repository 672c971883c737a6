//! The adaptive concurrency limit: enough calls to keep the machine busy, but few that only wait for each other.
//!
//! By Little's law, concurrency is throughput times latency. The highest throughput multiplied by the lowest latency
//! is therefore the smallest concurrency that saturates the machine. The limit is a configured percentage of that
//! number.
//!
//! Both values cover only the last seconds. A disk that becomes slower raises the latency of calls, and then more
//! concurrent calls are needed to keep the machine busy.
//!
//! If concurrency was never low during that time, the lowest latency is unknown. The limit then drops for a moment
//! to measure it again. This moment is called a probe below.

use std::time::Duration;

use tokio::time::Instant;

/// The initial limit: suitable for two cores and a disk with group commit.
const INITIAL_LIMIT: usize = 64;
/// The minimum limit, at any latency: enough calls for commits to share their syncs.
const MIN_LIMIT: usize = 8;
/// The minimum number of calls in a measurement window, and the minimum duration of the window.
const MIN_SAMPLES: u64 = 32;
const SAMPLE_WINDOW: Duration = Duration::from_millis(50);
/// The pause after which a started window is discarded, because its rate would include the pause.
const IDLE_GAP: Duration = Duration::from_secs(1);
/// The number of seconds in the measurement history.
const SECONDS: usize = 10;
/// The divisor of the limit during a probe, and the maximum time between probes. The time is shorter than the
/// history, so that the history always contains a measurement at low concurrency.
const PROBE_DIVISOR: usize = 8;
const PROBE_INTERVAL: Duration = Duration::from_secs(8);
const MAX_PROBE_DURATION: Duration = Duration::from_millis(200);

/// A concurrency limit that adapts to the measured latency of calls.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    /// The limit, in percent of the concurrency that saturates the machine.
    percent: u64,
    max_limit: usize,
    current_limit: usize,
    typical_latency: Option<Duration>,
    allowed_slowdown: Option<Duration>,
    window: SampleWindow,
    recent: [SecondStats; SECONDS],
    /// The limit before the current probe and the start of the probe. `None` outside of a probe.
    probe: Option<(usize, Instant)>,
    /// The last time at which concurrency was low.
    last_low_concurrency: Option<Instant>,
}

#[derive(Debug, Default)]
struct SampleWindow {
    started: Option<Instant>,
    last: Option<Instant>,
    samples: u64,
    micros: u64,
    peak: usize,
    was_saturated: bool,
}

/// The measurements of one second.
#[derive(Debug, Clone, Copy)]
struct SecondStats {
    at: Instant,
    /// The highest throughput, in calls per 1,000 seconds.
    max_throughput: u64,
    /// The lowest latency of a call, in microseconds.
    min_latency: u64,
}

/// The measurements of one finished call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSample {
    pub(super) latency: Duration,
    /// The number of other calls in progress.
    pub(super) in_flight: usize,
    /// True if a call found no permit since the previous sample.
    pub(super) was_saturated: bool,
}

impl ConcurrencyLimit {
    pub(super) fn new(max_limit: usize, percent: u32, now: Instant) -> Self {
        let nothing = SecondStats {
            at: now,
            max_throughput: 0,
            min_latency: u64::MAX,
        };
        Self {
            percent: u64::from(percent),
            max_limit,
            current_limit: INITIAL_LIMIT.min(max_limit),
            typical_latency: None,
            allowed_slowdown: None,
            window: SampleWindow::default(),
            recent: [nothing; SECONDS],
            probe: None,
            last_low_concurrency: None,
        }
    }

    /// Returns the current limit.
    pub(super) fn get(&self) -> usize {
        self.current_limit
    }

    /// Returns the latency of a call in the last window, or `None` before the first window.
    pub(super) fn typical_latency(&self) -> Option<Duration> {
        self.typical_latency
    }

    /// Returns the latency above the minimum that the limit tolerates, or `None` before the first window.
    pub(super) fn allowed_slowdown(&self) -> Option<Duration> {
        self.allowed_slowdown
    }

    /// Records a finished call and adjusts the limit at the end of a window.
    pub(super) fn record(&mut self, done: CallSample, now: Instant) {
        if let Some((before, since)) = self.probe
            && now - since > MAX_PROBE_DURATION
        {
            // The load did not fall in time. The observed latency then is the only available measurement.
            self.current_limit = before;
            self.probe = None;
            self.last_low_concurrency = Some(now);
            self.window = SampleWindow::default();
        }
        // During a probe, calls that started at the old limit do not measure low concurrency.
        let too_many = self.probe.is_some() && done.in_flight > self.current_limit;
        let after_a_pause = self.window.last.is_some_and(|at| now - at > IDLE_GAP);
        if too_many || after_a_pause {
            self.window = SampleWindow::default();
        }
        let window = &mut self.window;
        window.last = Some(now);
        window.was_saturated |= done.was_saturated;
        // The first call only starts the window, because its work was done before the window.
        let Some(began) = window.started else {
            window.started = Some(now);
            return;
        };
        window.samples += 1;
        window.micros = window.micros.saturating_add(micros(done.latency));
        window.peak = window.peak.max(done.in_flight + 1);
        // A probe uses a smaller window, to be short.
        let enough = if self.probe.is_some() {
            MIN_SAMPLES / 4
        } else {
            MIN_SAMPLES
        };
        if window.samples >= enough && now - began >= SAMPLE_WINDOW {
            self.close(now, now - began);
            self.window.started = Some(now);
            self.window.last = Some(now);
        }
    }

    fn close(&mut self, now: Instant, lasted: Duration) {
        let window = std::mem::take(&mut self.window);
        let took = (window.micros / window.samples).max(1);
        // Per 1,000 seconds, so that integers keep enough precision at low rates.
        let done = window.samples.saturating_mul(1_000_000_000) / micros(lasted).max(1);
        self.typical_latency = Some(Duration::from_micros(took));
        self.record_second(now, done, took);
        if let Some((_, least)) = self.best_second(now) {
            // At 200 %, a call may take twice the lowest latency, which is an excess of 100 %.
            let longer = least.saturating_mul(self.percent.saturating_sub(100)) / 100;
            self.allowed_slowdown = Some(Duration::from_micros(longer));
        }
        // A window at half of the limit already measured the latency of a machine with free capacity. It replaces a
        // probe.
        if window.peak <= self.current_limit / 2 || self.probe.is_some() {
            self.last_low_concurrency = Some(now);
        }
        // A probe only measures, so the limit from before it returns.
        if let Some((before, _)) = self.probe.take() {
            self.current_limit = before;
            return;
        }
        // With free permits, the throughput depends on the callers and says nothing about capacity.
        if !window.was_saturated && window.peak < self.current_limit {
            return;
        }
        if self
            .last_low_concurrency
            .is_none_or(|at| now - at > PROBE_INTERVAL)
        {
            self.probe = Some((self.current_limit, now));
            self.current_limit = (self.current_limit / PROBE_DIVISOR).max(2);
            return;
        }
        let Some((done, took)) = self.best_second(now) else {
            return;
        };
        // Throughput times latency: concurrency in thousandths of a call.
        let busy = done.saturating_mul(took) / 1_000_000;
        let wanted = usize::try_from(busy.saturating_mul(self.percent) / 100_000);
        let wanted = wanted.unwrap_or(self.max_limit);
        // Limited steps keep one outlier from moving the limit too far.
        let wanted = wanted.clamp(self.current_limit * 3 / 4, self.current_limit * 3 / 2);
        // A configured maximum below `MIN_LIMIT` applies. `clamp` panics if the minimum exceeds the maximum.
        self.current_limit = wanted.clamp(MIN_LIMIT.min(self.max_limit), self.max_limit);
    }

    fn record_second(&mut self, now: Instant, done: u64, took: u64) {
        let second = Duration::from_secs(1);
        // The newest second collects samples until it is over. Then the oldest entry is reused for the next second.
        let this = self.recent.iter_mut().max_by_key(|one| one.at);
        let this = match this {
            Some(this) if now - this.at < second && this.max_throughput > 0 => this,
            _ => {
                let Some(oldest) = self.recent.iter_mut().min_by_key(|one| one.at) else {
                    return;
                };
                *oldest = SecondStats {
                    at: now,
                    max_throughput: 0,
                    min_latency: u64::MAX,
                };
                oldest
            }
        };
        this.max_throughput = this.max_throughput.max(done);
        this.min_latency = this.min_latency.min(took);
    }

    /// Returns the highest throughput (calls per 1,000 seconds) and the lowest latency (microseconds) in the history.
    fn best_second(&self, now: Instant) -> Option<(u64, u64)> {
        let age = Duration::from_secs(SECONDS as u64);
        let recent = self.recent.iter();
        let recent = recent.filter(|one| one.max_throughput > 0 && now - one.at <= age);
        recent
            .map(|one| (one.max_throughput, one.min_latency))
            .reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{CallSample, ConcurrencyLimit, Duration, INITIAL_LIMIT, Instant, MIN_LIMIT};

    /// Simulates a machine under permanent overload for the duration `time`. Returns its utilization in percent.
    ///
    /// Each call costs the machine `each` and takes at least `alone`.
    fn overload(
        limit: &mut ConcurrencyLimit,
        now: &mut Instant,
        (each, alone): (Duration, Duration),
        time: Duration,
    ) -> u128 {
        let began = *now;
        let mut done = 0;
        while *now < began + time {
            let working = limit.get();
            let calls = u32::try_from(working).unwrap();
            // Above its capacity, the machine divides its time among all calls.
            let took = alone.max(each * calls);
            *now += took / calls;
            let over = CallSample {
                latency: took,
                in_flight: working - 1,
                was_saturated: true,
            };
            limit.record(over, *now);
            // Hundredths of a call, because the result is in percent.
            done += 100;
        }
        each.as_nanos() * done / (*now - began).as_nanos()
    }

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn the_limit_saturates_the_machine_with_little_waiting() {
        for (each, alone) in [
            (2_000, 20_000),
            (140, 2_000),
            (140, 15_000),
            (10_000, 100_000),
        ] {
            let mut now = Instant::now();
            let mut limit = ConcurrencyLimit::new(1_000, 200, now);
            let machine = (micros(each), micros(alone));
            overload(&mut limit, &mut now, machine, Duration::from_secs(5));
            let share = overload(&mut limit, &mut now, machine, Duration::from_mins(2));
            assert!(share > 95, "{each}, {alone}: {share}");
            // `alone / each` calls saturate the machine. The limit is 200 % of them, with some tolerance.
            let busy = usize::try_from(alone / each).unwrap();
            let range = busy * 3 / 2..=busy * 5 / 2;
            assert!(range.contains(&limit.get()), "{range:?}: {}", limit.get());
        }
    }

    #[test]
    fn the_limit_grows_with_the_latency_of_the_disk() {
        let mut now = Instant::now();
        let mut limit = ConcurrencyLimit::new(1_000, 200, now);
        let minute = Duration::from_mins(1);
        let (fast, slow) = ((micros(140), micros(1_000)), (micros(140), micros(12_000)));
        overload(&mut limit, &mut now, fast, minute);
        // 1,000 / 140 = 7 calls saturate the fast machine, so the limit is about 14.
        assert!((8..24).contains(&limit.get()), "{}", limit.get());
        overload(&mut limit, &mut now, slow, minute);
        // 12,000 / 140 = 86 calls saturate the slow one, so the limit is about 171.
        assert!((130..240).contains(&limit.get()), "{}", limit.get());
        // The limit falls again when the disk recovers.
        overload(&mut limit, &mut now, fast, minute);
        assert!((8..24).contains(&limit.get()), "{}", limit.get());
    }

    #[test]
    fn a_probe_ends_even_if_concurrency_stays_high() {
        let mut now = Instant::now();
        let mut limit = ConcurrencyLimit::new(1_000, 200, now);
        let mut few = Duration::ZERO;
        for _ in 0..100_000 {
            let step = Duration::from_micros(500);
            now += step;
            let over = CallSample {
                latency: Duration::from_millis(4),
                // Calls that already wait for other systems return even if no permit is free.
                in_flight: 20,
                was_saturated: true,
            };
            limit.record(over, now);
            if limit.get() < MIN_LIMIT {
                few += step;
            }
        }
        assert!(few > Duration::ZERO);
        // About six probes of at most 200 ms each fit into 50 s.
        assert!(few < Duration::from_secs(3), "{few:?} of 50 s");
    }

    #[test]
    fn the_limit_is_stable_without_load() {
        let mut now = Instant::now();
        let mut limit = ConcurrencyLimit::new(1_000, 200, now);
        for _ in 0..100_000 {
            now += Duration::from_millis(3);
            let took = Duration::from_millis(2);
            limit.record(
                CallSample {
                    latency: took,
                    in_flight: 1,
                    was_saturated: false,
                },
                now,
            );
        }
        assert_eq!(limit.get(), INITIAL_LIMIT);
        assert_eq!(limit.typical_latency(), Some(Duration::from_millis(2)));
    }

    #[test]
    fn the_limit_stays_within_its_bounds() {
        let mut now = Instant::now();
        let time = Duration::from_secs(30);
        let mut limit = ConcurrencyLimit::new(100, 200, now);
        overload(&mut limit, &mut now, (micros(110), micros(100_000)), time);
        // 909 calls would saturate this machine, so the configured maximum applies.
        assert_eq!(limit.get(), 100);
        overload(&mut limit, &mut now, (micros(1_100), micros(100)), time);
        // One call saturates this machine, so the minimum applies. A probe can be below it.
        assert!(limit.get() <= MIN_LIMIT, "{}", limit.get());
    }
}
