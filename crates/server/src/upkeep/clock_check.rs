//! The check of the clock before sessions are deleted by their age: a clock that is wrong makes all of them old.
//!
//! The log knows times as well: those of its events. What it held when the process began, plus the time that has
//! passed since by the clock that only moves forward, is about the time that it is now. A clock that is far ahead of
//! that is wrong, or nothing was written for so long that an operator has to say that it is right. What a clock in doubt
//! has written is no reference for the next process: the doubt is kept beside the files until it is settled.

use std::time::Duration;

use palimpsest_core::ids::Timestamp;

/// The reference that the clock is compared with.
#[derive(Debug, Clone)]
pub struct ClockCheck {
    /// The time of day and the steady time at which the process began.
    started: (Timestamp, Duration),
    /// A time of day that is known to be right, and the steady time at which it was.
    known: Option<(Timestamp, Duration)>,
    /// The time after which an earlier process doubted the clock that wrote events.
    doubted: Option<Timestamp>,
}

/// A clock that is further ahead than can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// The time that the clock shows.
    pub now: Timestamp,
    /// The time that it was expected to show.
    pub expected: Timestamp,
}

impl ClockCheck {
    /// A check by a process that begins now. Nothing is known of the log yet.
    pub fn started(now: Timestamp, steady: Duration) -> Self {
        Self {
            started: (now, steady),
            known: None,
            doubted: None,
        }
    }

    /// Takes over the doubt of an earlier process: events after that time prove nothing.
    pub fn doubt(&mut self, after: Option<Timestamp>) {
        self.doubted = after;
    }

    /// True until [`Self::learn`] was called.
    pub fn is_ignorant(&self) -> bool {
        self.known.is_none()
    }

    /// True for the time of an event that was there when the process began. Later ones were written by the clock that
    /// is to be checked.
    pub fn is_evidence(&self, time: Timestamp) -> bool {
        time < self.started.0 && self.doubted.is_none_or(|after| time <= after)
    }

    /// Takes the newest time that the log held when the process began. A log that held none proves nothing, and has
    /// nothing old that could be deleted.
    pub fn learn(&mut self, newest: Option<Timestamp>) {
        let (now, steady) = self.started;
        let newest = newest.max(self.doubted);
        self.known = Some((newest.unwrap_or(now), steady));
    }

    /// Compares the clock with the time that is expected. `max_ahead_ms` is how far it may be ahead, and up to
    /// `trusted_until` an operator has said that it is right.
    pub fn judge(
        &mut self,
        (now, steady): (Timestamp, Duration),
        max_ahead_ms: i64,
        trusted_until: Option<Timestamp>,
    ) -> Result<(), Jump> {
        let (known, at) = self.known.unwrap_or(self.started);
        let passed = i64::try_from(steady.saturating_sub(at).as_millis()).unwrap_or(i64::MAX);
        let expected = Timestamp::from_millis(known.as_millis().saturating_add(passed));
        let ahead = now.as_millis().saturating_sub(expected.as_millis());
        if ahead > max_ahead_ms && trusted_until.is_none_or(|until| now > until) {
            return Err(Jump { now, expected });
        }
        // Time without a write is known from here on. A clock that was set back teaches nothing.
        self.known = Some((now.max(expected), steady));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    /// Some day, in milliseconds.
    const TODAY: i64 = 20_000 * DAY;

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn steady(millis: i64) -> Duration {
        Duration::from_millis(millis.unsigned_abs())
    }

    /// A check that began `began` from today on a log whose newest event is of today, and looks `looks` later, with the
    /// steady clock before the clock of the day.
    #[track_caller]
    fn check(began: i64, looks: &[(i64, i64)], expected: &[bool]) {
        let mut check = ClockCheck::started(time(TODAY + began), steady(0));
        check.learn(Some(time(TODAY)));
        let judged = looks.iter().map(|(passed, by_clock)| {
            let now = (time(TODAY + began + by_clock), steady(*passed));
            check.judge(now, 14 * DAY, None).is_ok()
        });
        assert_eq!(judged.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_clock_is_right_that_goes_on_from_the_log() {
        check(0, &[(0, 0), (HOUR, HOUR)], &[true, true]);
        // Nobody wrote for a year, and the process was there all the time.
        check(
            DAY,
            &[(400 * DAY, 400 * DAY), (401 * DAY, 401 * DAY)],
            &[true, true],
        );
        // It was set to the right time, which is no more than a few days.
        check(
            -DAY,
            &[(0, 0), (HOUR, DAY), (2 * HOUR, DAY + HOUR)],
            &[true; 3],
        );
    }

    #[test]
    fn a_clock_is_wrong_that_jumps_further_than_time_has_passed() {
        check(
            0,
            &[(0, 0), (HOUR, 400 * DAY), (2 * HOUR, 2 * HOUR)],
            &[true, false, true],
        );
        // It was wrong when the process began, and the log says so.
        check(400 * DAY, &[(0, 0), (HOUR, HOUR)], &[false, false]);
        // A clock that was behind for a while does not make the right time look wrong.
        check(
            0,
            &[(HOUR, -400 * DAY), (2 * HOUR, 2 * HOUR)],
            &[true, true],
        );
    }

    #[test]
    fn what_this_process_may_have_written_proves_nothing() {
        let check = ClockCheck::started(time(TODAY), steady(0));
        assert!(check.is_evidence(time(TODAY - 1)));
        assert!(!check.is_evidence(time(TODAY)));
    }

    #[test]
    fn what_a_clock_in_doubt_wrote_proves_nothing_after_a_restart() {
        let restarted = |began: i64| {
            let mut check = ClockCheck::started(time(TODAY + began), steady(0));
            check.doubt(Some(time(TODAY)));
            check
        };
        let mut check = restarted(400 * DAY);
        assert!(check.is_evidence(time(TODAY)));
        assert!(!check.is_evidence(time(TODAY + 399 * DAY)));
        check.learn(Some(time(TODAY - 30 * DAY)));
        let now = (time(TODAY + 400 * DAY), steady(0));
        assert!(check.judge(now, 14 * DAY, None).is_err());
        // The time of the doubt itself was right, even where no event is left of it.
        let mut check = restarted(HOUR);
        check.learn(None);
        let now = (time(TODAY + HOUR), steady(0));
        assert_eq!(check.judge(now, 14 * DAY, None), Ok(()));
    }

    #[test]
    fn an_operator_may_say_that_the_clock_is_right() {
        let mut check = ClockCheck::started(time(TODAY + 400 * DAY), steady(0));
        check.learn(Some(time(TODAY)));
        let now = (time(TODAY + 400 * DAY), steady(1));
        let jump = Jump {
            now: now.0,
            expected: time(TODAY + 1),
        };
        assert_eq!(check.judge(now, 14 * DAY, None), Err(jump));
        let before = Some(time(TODAY + 399 * DAY));
        assert_eq!(check.judge(now, 14 * DAY, before), Err(jump));
        let after = Some(time(TODAY + 401 * DAY));
        assert_eq!(check.judge(now, 14 * DAY, after), Ok(()));
        // From then on it is known.
        assert_eq!(check.judge(now, 14 * DAY, None), Ok(()));
    }
}
