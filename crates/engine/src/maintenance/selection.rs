//! The order of deletions in a project and the end of a pass, decided from rows alone.

use super::config::RetentionLimits;
use palimpsest_core::ids::Timestamp;

use super::families::{RetentionRow, SessionFamily, families};

/// The minimum number of sessions that a pass may delete by age in a project of any size.
const MIN_BY_AGE: u64 = 10;

/// The reason for deleting a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionReason {
    /// The maximum age since the last event is exceeded.
    Age,
    /// The project exceeds its limit of sessions or bytes.
    Quota,
}

impl RetentionReason {
    /// Returns the name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Quota => "quota",
        }
    }
}

/// The state of a pass over one project: the remaining usage and the remaining deletions by age.
#[derive(Debug)]
pub(super) struct DeletionSelector {
    limits: RetentionLimits,
    /// The limit of the age: families last modified at or before it are due. `None` if the clock is not trusted.
    oldest: Option<Timestamp>,
    sessions: u64,
    bytes: u64,
    by_age_left: u64,
    is_cut: bool,
}

/// The limits of a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassLimits {
    pub(super) limits: RetentionLimits,
    /// The current time. `None` while the clock is not trusted, and then nothing is deleted by age.
    pub(super) now: Option<Timestamp>,
    /// The maximum share of a project's sessions that one pass deletes by age, in percent.
    pub(super) max_percent: u32,
}

impl DeletionSelector {
    /// Starts a pass over the rows of a project. Returns its families, the least recently modified first.
    pub(super) fn begin(
        rows: Vec<RetentionRow>,
        alone: bool,
        limits: PassLimits,
    ) -> (Self, Vec<SessionFamily>) {
        let max_age = limits.limits.max_age;
        // A missing time or an unlimited age turns deletion by age off.
        let oldest = limits
            .now
            .filter(|_| max_age.is_limited())
            .map(|now| Timestamp::from_millis(now.as_millis().saturating_sub(max_age.as_millis())));
        let sessions = rows.len() as u64;
        let share = sessions
            .saturating_mul(limits.max_percent.into())
            .div_ceil(100);
        let selection = Self {
            limits: limits.limits,
            oldest,
            sessions,
            bytes: rows.iter().map(|row| row.bytes).sum(),
            by_age_left: share.max(MIN_BY_AGE),
            is_cut: false,
        };
        (selection, families(rows, alone))
    }

    /// Returns the reason for deleting the next family. `None` ends the pass: later families are younger, or the share
    /// by age is used up.
    pub(super) fn next(&mut self, family: &SessionFamily) -> Option<RetentionReason> {
        let is_over = |limit: u64, has: u64| limit > 0 && has > limit;
        // Limits of usage need no clock and no share: only the excess is deleted.
        let by_quota = is_over(self.limits.max_sessions, self.sessions)
            || is_over(self.limits.max_bytes, self.bytes);
        let by_age = self
            .oldest
            .is_some_and(|oldest| family.modified() <= oldest);
        if by_age && self.by_age_left > 0 {
            return Some(RetentionReason::Age);
        }
        // If the project is over a limit, the pass continues for that reason and is not cut.
        self.is_cut |= by_age && !by_quota;
        by_quota.then_some(RetentionReason::Quota)
    }

    /// Records a deleted family.
    pub(super) fn record_deleted(&mut self, members: u64, bytes: u64, over: RetentionReason) {
        self.sessions = self.sessions.saturating_sub(members);
        self.bytes = self.bytes.saturating_sub(bytes);
        if over == RetentionReason::Age {
            self.by_age_left = self.by_age_left.saturating_sub(members);
        }
    }

    /// Returns true if the pass ended before all due families were deleted.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use crate::maintenance::MaxAge;
    use palimpsest_core::ids::SessionKey;
    use palimpsest_store::Position;

    use super::*;

    /// Checks the number of deletions by age and by quota among `sessions` sessions, and the end of the pass.
    #[track_caller]
    fn check(sessions: i64, keep: RetentionLimits, now: Option<i64>, expected: (u64, u64, bool)) {
        let row = |number: i64| RetentionRow {
            key: SessionKey::parse(&format!("projects/p/sessions/s{number}")).unwrap(),
            parent: None,
            modified: Timestamp::from_millis(number),
            position: Position::START,
            bytes: 1,
            is_held: false,
        };
        let limits = PassLimits {
            limits: keep,
            now: now.map(Timestamp::from_millis),
            max_percent: 20,
        };
        let rows = (0..sessions).map(row).collect();
        let (mut selection, families) = DeletionSelector::begin(rows, false, limits);
        let (mut by_age, mut by_quota) = (0, 0);
        for family in families {
            match selection.next(&family) {
                Some(RetentionReason::Age) => by_age += 1,
                Some(RetentionReason::Quota) => by_quota += 1,
                None => break,
            }
            // Only deletions by age use up the share of the pass, so the reason must match the decision above.
            let over = if by_quota > 0 {
                RetentionReason::Quota
            } else {
                RetentionReason::Age
            };
            selection.record_deleted(1, 1, over);
        }
        assert_eq!((by_age, by_quota, selection.is_cut()), expected);
    }

    fn keep(max_age_ms: i64, max_sessions: u64) -> RetentionLimits {
        RetentionLimits {
            max_age: MaxAge::from_millis(max_age_ms),
            max_sessions,
            max_bytes: 0,
        }
    }

    #[test]
    fn one_pass_deletes_at_most_a_share_of_the_sessions_by_age() {
        check(1_000, keep(10, 0), Some(500_000), (200, 0, true));
        check(1_000, keep(10, 0), Some(109), (100, 0, false));
        // A small project is not emptied in ever smaller steps.
        check(21, keep(10, 0), Some(500_000), (10, 0, true));
        check(5, keep(10, 0), Some(500_000), (5, 0, false));
    }

    #[test]
    fn an_untrusted_clock_deletes_nothing_by_age_but_enforces_the_quota() {
        check(1_000, keep(10, 0), None, (0, 0, false));
        check(1_000, keep(10, 400), None, (0, 600, false));
    }

    #[test]
    fn the_quota_is_enforced_beyond_the_share_of_one_pass() {
        check(1_000, keep(10, 400), Some(500_000), (200, 400, true));
    }
}
