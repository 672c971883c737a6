//! The clock check before sessions are deleted by age. A clock that is far ahead would make every session look old.
//!
//! The expected time is the newest event time in the log at process start, plus the elapsed monotonic time. A clock far
//! ahead of the expected time has two explanations: it is wrong, or nothing was written for a long time. Only an
//! operator can confirm the second one.
//!
//! Events that were written by a doubtful clock must not become the reference of the next process. The doubt is
//! therefore stored beside the blobs until it is resolved.

use std::time::Duration;

use palimpsest_core::ids::Timestamp;

/// The reference for the clock.
#[derive(Debug, Clone)]
pub struct ClockCheck {
    /// The wall-clock time and the monotonic time at process start.
    started: (Timestamp, Duration),
    /// A confirmed wall-clock time, and the monotonic time of its confirmation.
    known: Option<(Timestamp, Duration)>,
    /// The time after which an earlier process doubted the clock. Events after it are no evidence.
    doubted: Option<Timestamp>,
}

/// An implausible clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockJump {
    /// The time of the clock.
    pub now: Timestamp,
    /// The expected time.
    pub expected: Timestamp,
}

impl ClockCheck {
    /// Creates a check at process start, without a reference.
    pub fn at_start(now: Timestamp, steady: Duration) -> Self {
        Self {
            started: (now, steady),
            known: None,
            doubted: None,
        }
    }

    /// Sets the doubt of an earlier process. Events after that time are no evidence.
    pub fn doubt(&mut self, after: Option<Timestamp>) {
        self.doubted = after;
    }

    /// Returns true until the first call of [`Self::set_reference`].
    pub fn needs_reference(&self) -> bool {
        self.known.is_none()
    }

    /// Returns true if the event time existed before this process started and was not doubted.
    ///
    /// Later events were written with the clock that is being checked.
    pub fn is_evidence(&self, time: Timestamp) -> bool {
        time < self.started.0 && self.doubted.is_none_or(|after| time <= after)
    }

    /// Sets the newest event time in the log at process start as the reference.
    ///
    /// An empty log proves nothing, but contains nothing old that could be deleted. Without an earlier doubt, the
    /// clock is trusted then.
    pub fn set_reference(&mut self, newest: Option<Timestamp>) {
        let (now, steady) = self.started;
        // The stored doubt is the time that the earlier process expected. The true time has passed it.
        let newest = newest.max(self.doubted);
        self.known = Some((newest.unwrap_or(now), steady));
    }

    /// Compares the clock with the expected time.
    ///
    /// The clock may be ahead by up to `max_ahead_ms`. Up to `trusted_until`, an operator has confirmed it.
    pub fn judge(
        &mut self,
        (now, steady): (Timestamp, Duration),
        max_ahead_ms: i64,
        trusted_until: Option<Timestamp>,
    ) -> Result<(), ClockJump> {
        let (known, at) = self.known.unwrap_or(self.started);
        let expected = known.plus(steady.saturating_sub(at));
        let ahead = now.as_millis().saturating_sub(expected.as_millis());
        if ahead > max_ahead_ms && trusted_until.is_none_or(|until| now > until) {
            return Err(ClockJump { now, expected });
        }
        // An accepted time becomes the new reference. A clock that was set back must not lower it.
        self.known = Some((now.max(expected), steady));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    /// An arbitrary day, in milliseconds.
    const TODAY: i64 = 20_000 * DAY;

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn steady(millis: i64) -> Duration {
        Duration::from_millis(millis.unsigned_abs())
    }

    /// Creates a check at `TODAY + began` on a log whose newest event is at `TODAY`, and judges the clock at each of
    /// `looks`. A look is a pair of elapsed monotonic time and elapsed wall-clock time, in milliseconds.
    #[track_caller]
    fn check(began: i64, looks: &[(i64, i64)], expected: &[bool]) {
        let mut check = ClockCheck::at_start(time(TODAY + began), steady(0));
        check.set_reference(Some(time(TODAY)));
        let judged = looks.iter().map(|(passed, by_clock)| {
            let now = (time(TODAY + began + by_clock), steady(*passed));
            check.judge(now, 14 * DAY, None).is_ok()
        });
        assert_eq!(judged.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_clock_that_continues_from_the_log_is_trusted() {
        check(0, &[(0, 0), (HOUR, HOUR)], &[true, true]);
        // No writes for a year, while the process was running.
        check(
            DAY,
            &[(400 * DAY, 400 * DAY), (401 * DAY, 401 * DAY)],
            &[true, true],
        );
        // The clock was corrected by a day.
        check(
            -DAY,
            &[(0, 0), (HOUR, DAY), (2 * HOUR, DAY + HOUR)],
            &[true; 3],
        );
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_trusted() {
        check(
            0,
            &[(0, 0), (HOUR, 400 * DAY), (2 * HOUR, 2 * HOUR)],
            &[true, false, true],
        );
        // The clock was already wrong at process start, and the log shows it.
        check(400 * DAY, &[(0, 0), (HOUR, HOUR)], &[false, false]);
        // A clock that was behind for a while must not make the correct time look wrong.
        check(
            0,
            &[(HOUR, -400 * DAY), (2 * HOUR, 2 * HOUR)],
            &[true, true],
        );
    }

    #[test]
    fn events_written_by_this_process_are_no_clock_evidence() {
        let check = ClockCheck::at_start(time(TODAY), steady(0));
        assert!(check.is_evidence(time(TODAY - 1)));
        assert!(!check.is_evidence(time(TODAY)));
    }

    #[test]
    fn events_written_by_a_doubted_clock_are_no_evidence_after_a_restart() {
        let restarted = |began: i64| {
            let mut check = ClockCheck::at_start(time(TODAY + began), steady(0));
            check.doubt(Some(time(TODAY)));
            check
        };
        let mut check = restarted(400 * DAY);
        assert!(check.is_evidence(time(TODAY)));
        assert!(!check.is_evidence(time(TODAY + 399 * DAY)));
        check.set_reference(Some(time(TODAY - 30 * DAY)));
        let now = (time(TODAY + 400 * DAY), steady(0));
        assert!(check.judge(now, 14 * DAY, None).is_err());
        // The time of the doubt itself was correct, even if no event from that time exists anymore.
        let mut check = restarted(HOUR);
        check.set_reference(None);
        let now = (time(TODAY + HOUR), steady(0));
        assert_eq!(check.judge(now, 14 * DAY, None), Ok(()));
    }

    #[test]
    fn an_operator_can_confirm_the_clock() {
        let mut check = ClockCheck::at_start(time(TODAY + 400 * DAY), steady(0));
        check.set_reference(Some(time(TODAY)));
        let now = (time(TODAY + 400 * DAY), steady(1));
        let jump = ClockJump {
            now: now.0,
            expected: time(TODAY + 1),
        };
        assert_eq!(check.judge(now, 14 * DAY, None), Err(jump));
        let before = Some(time(TODAY + 399 * DAY));
        assert_eq!(check.judge(now, 14 * DAY, before), Err(jump));
        let after = Some(time(TODAY + 401 * DAY));
        assert_eq!(check.judge(now, 14 * DAY, after), Ok(()));
        // The confirmation stays in effect.
        assert_eq!(check.judge(now, 14 * DAY, None), Ok(()));
    }
}
