//! How many calls there may be at one time: as many as keep the machine busy, and not so many more that they
//! only wait for each other.
//!
//! Calls at one time are calls done a second times what each takes. So the most that were done a second,
//! times the least that they took, is the fewest calls at one time with which the machine does all that it
//! can; a given part more may be worked on. Both are of the last seconds, because a disk that becomes slower
//! slows calls down too, and then it takes more of them to keep the machine busy, not fewer. When there never
//! were few in that time, there are for a moment, to see again what a call takes.

use std::time::Duration;

use tokio::time::Instant;

/// How many there may be at first: what two cores and a disk with group commit are good for.
const FIRST: usize = 64;
/// And at least, however slow calls become: enough for commits to share their syncs.
const LEAST: usize = 8;
/// Calls are looked at together: so many of them at least, and for so long.
const SAMPLES: u64 = 32;
const WINDOW: Duration = Duration::from_millis(50);
/// When nothing came for so long, what was before tells nothing of a rate.
const GAP: Duration = Duration::from_secs(1);
/// How many seconds are remembered.
const SECONDS: usize = 10;
/// The part of the calls that there are in a moment with few of them, and how often there is one at least:
/// before the last one is forgotten.
const FEW: usize = 8;
const OFTEN: Duration = Duration::from_secs(8);
/// How long that moment is at most.
const MOMENT: Duration = Duration::from_millis(200);

/// A number that follows what calls take.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    /// Calls at one time, in percent of those that keep the machine busy.
    percent: u64,
    most: usize,
    now: usize,
    takes: Option<Duration>,
    longer: Option<Duration>,
    window: Window,
    recent: [Second; SECONDS],
    /// The number when there are few for a moment, and since when there are.
    aside: Option<(usize, Instant)>,
    /// When there were few the last time.
    were_few: Option<Instant>,
}

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    last: Option<Instant>,
    samples: u64,
    micros: u64,
    peak: usize,
    was_short: bool,
}

/// What one second has shown.
#[derive(Debug, Clone, Copy)]
struct Second {
    at: Instant,
    /// Calls done, in a thousand seconds.
    most_done: u64,
    /// Microseconds of one.
    least_took: u64,
}

/// What is known when a call is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSample {
    pub(super) took: Duration,
    /// How many others are worked on.
    pub(super) working: usize,
    /// Whether somebody found no place since the last one.
    pub(super) was_short: bool,
}

impl ConcurrencyLimit {
    pub(super) fn new(most: usize, percent: u32, now: Instant) -> Self {
        let nothing = Second {
            at: now,
            most_done: 0,
            least_took: u64::MAX,
        };
        Self {
            percent: u64::from(percent),
            most,
            now: FIRST.min(most),
            takes: None,
            longer: None,
            window: Window::default(),
            recent: [nothing; SECONDS],
            aside: None,
            were_few: None,
        }
    }

    /// The number as it is.
    pub(super) fn get(&self) -> usize {
        self.now
    }

    /// What a call takes at present, once that is known.
    pub(super) fn takes(&self) -> Option<Duration> {
        self.takes
    }

    /// How much longer than with few others a call may take, once that is known.
    pub(super) fn longer(&self) -> Option<Duration> {
        self.longer
    }

    /// Learns of a call that is over.
    pub(super) fn learn(&mut self, done: CallSample, now: Instant) {
        if let Some((before, since)) = self.aside
            && now - since > MOMENT
        {
            // There are too many that were not kept waiting; what they take is what there is to be known.
            self.now = before;
            self.aside = None;
            self.were_few = Some(now);
            self.window = Window::default();
        }
        // Those that came before there were to be few tell nothing of few.
        let too_many = self.aside.is_some() && done.working > self.now;
        let after_a_pause = self.window.last.is_some_and(|at| now - at > GAP);
        if too_many || after_a_pause {
            self.window = Window::default();
        }
        let window = &mut self.window;
        window.last = Some(now);
        window.was_short |= done.was_short;
        let Some(began) = window.began else {
            window.began = Some(now);
            return;
        };
        window.samples += 1;
        window.micros = window.micros.saturating_add(micros(done.took));
        window.peak = window.peak.max(done.working + 1);
        // A moment with few is to be short.
        let enough = if self.aside.is_some() {
            SAMPLES / 4
        } else {
            SAMPLES
        };
        if window.samples >= enough && now - began >= WINDOW {
            self.close(now, now - began);
            self.window.began = Some(now);
            self.window.last = Some(now);
        }
    }

    fn close(&mut self, now: Instant, lasted: Duration) {
        let window = std::mem::take(&mut self.window);
        let took = (window.micros / window.samples).max(1);
        let done = window.samples.saturating_mul(1_000_000_000) / micros(lasted).max(1);
        self.takes = Some(Duration::from_micros(took));
        self.remember(now, done, took);
        if let Some((_, least)) = self.remembered(now) {
            let longer = least.saturating_mul(self.percent.saturating_sub(100)) / 100;
            self.longer = Some(Duration::from_micros(longer));
        }
        if window.peak <= self.now / 2 || self.aside.is_some() {
            self.were_few = Some(now);
        }
        if let Some((before, _)) = self.aside.take() {
            self.now = before;
            return;
        }
        // While there is room, how many calls are done is the callers' choice.
        if !window.was_short && window.peak < self.now {
            return;
        }
        if self.were_few.is_none_or(|at| now - at > OFTEN) {
            self.aside = Some((self.now, now));
            self.now = (self.now / FEW).max(2);
            return;
        }
        let Some((done, took)) = self.remembered(now) else {
            return;
        };
        let busy = done.saturating_mul(took) / 1_000_000;
        let wanted = usize::try_from(busy.saturating_mul(self.percent) / 100_000);
        let wanted = wanted.unwrap_or(self.most);
        // By steps, so that one strange moment does not decide.
        let wanted = wanted.clamp(self.now * 3 / 4, self.now * 3 / 2);
        self.now = wanted.clamp(LEAST.min(self.most), self.most);
    }

    fn remember(&mut self, now: Instant, done: u64, took: u64) {
        let second = Duration::from_secs(1);
        let this = self.recent.iter_mut().max_by_key(|one| one.at);
        let this = match this {
            Some(this) if now - this.at < second && this.most_done > 0 => this,
            _ => {
                let Some(oldest) = self.recent.iter_mut().min_by_key(|one| one.at) else {
                    return;
                };
                *oldest = Second {
                    at: now,
                    most_done: 0,
                    least_took: u64::MAX,
                };
                oldest
            }
        };
        this.most_done = this.most_done.max(done);
        this.least_took = this.least_took.min(took);
    }

    /// The most calls that were done in a thousand seconds, and the least microseconds that one took, of late.
    fn remembered(&self, now: Instant) -> Option<(u64, u64)> {
        let age = Duration::from_secs(SECONDS as u64);
        let recent = self.recent.iter();
        let recent = recent.filter(|one| one.most_done > 0 && now - one.at <= age);
        recent
            .map(|one| (one.most_done, one.least_took))
            .reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{CallSample, ConcurrencyLimit, Duration, FIRST, Instant, LEAST};

    /// A machine that needs `each` for a call and `alone` until one is done; asked for more than it can do, for
    /// that long. What it did is told in percent of what it can do.
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
            let took = alone.max(each * calls);
            *now += took / calls;
            let over = CallSample {
                took,
                working: working - 1,
                was_short: true,
            };
            limit.learn(over, *now);
            done += 100;
        }
        each.as_nanos() * done / (*now - began).as_nanos()
    }

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn the_machine_is_busy_and_calls_hardly_wait() {
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
            let busy = usize::try_from(alone / each).unwrap();
            let range = busy * 3 / 2..=busy * 5 / 2;
            assert!(range.contains(&limit.get()), "{range:?}: {}", limit.get());
        }
    }

    #[test]
    fn a_slower_disk_needs_more_calls_at_one_time() {
        let mut now = Instant::now();
        let mut limit = ConcurrencyLimit::new(1_000, 200, now);
        let minute = Duration::from_mins(1);
        let (fast, slow) = ((micros(140), micros(1_000)), (micros(140), micros(12_000)));
        overload(&mut limit, &mut now, fast, minute);
        assert!((8..24).contains(&limit.get()), "{}", limit.get());
        overload(&mut limit, &mut now, slow, minute);
        assert!((130..240).contains(&limit.get()), "{}", limit.get());
        // And fewer again when it is fast.
        overload(&mut limit, &mut now, fast, minute);
        assert!((8..24).contains(&limit.get()), "{}", limit.get());
    }

    #[test]
    fn a_moment_with_few_ends_even_if_there_are_many() {
        let mut now = Instant::now();
        let mut limit = ConcurrencyLimit::new(1_000, 200, now);
        let mut few = Duration::ZERO;
        for _ in 0..100_000 {
            let step = Duration::from_micros(500);
            now += step;
            let over = CallSample {
                took: Duration::from_millis(4),
                // Calls that were kept waiting by their callers come back whether or not there is a place.
                working: 20,
                was_short: true,
            };
            limit.learn(over, now);
            if limit.get() < LEAST {
                few += step;
            }
        }
        assert!(few > Duration::ZERO);
        assert!(few < Duration::from_secs(3), "{few:?} of 50 s");
    }

    #[test]
    fn without_load_the_number_stays() {
        let mut now = Instant::now();
        let mut limit = ConcurrencyLimit::new(1_000, 200, now);
        for _ in 0..100_000 {
            now += Duration::from_millis(3);
            let took = Duration::from_millis(2);
            limit.learn(
                CallSample {
                    took,
                    working: 1,
                    was_short: false,
                },
                now,
            );
        }
        assert_eq!(limit.get(), FIRST);
        assert_eq!(limit.takes(), Some(Duration::from_millis(2)));
    }

    #[test]
    fn it_stays_between_its_bounds() {
        let mut now = Instant::now();
        let time = Duration::from_secs(30);
        let mut limit = ConcurrencyLimit::new(100, 200, now);
        overload(&mut limit, &mut now, (micros(110), micros(100_000)), time);
        assert_eq!(limit.get(), 100);
        overload(&mut limit, &mut now, (micros(1_100), micros(100)), time);
        assert!(limit.get() <= LEAST, "{}", limit.get());
    }
}
