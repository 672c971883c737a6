//! The order in which a project's sessions end, and where a pass stops: a decision upon rows alone.

use palimpsest_core::ids::Timestamp;
use palimpsest_engine::maintenance::RetentionLimits;

use super::families::{Family, Row, families};

/// Sessions of one project that a pass may delete by age however small the project is.
const MIN_BY_AGE: u64 = 10;

/// The reason that a family's retention is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionReason {
    /// Nothing has happened in it for too long.
    Age,
    /// Its project has too many sessions, or too many bytes.
    Quota,
}

impl RetentionReason {
    /// Its name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Quota => "quota",
        }
    }
}

/// One project's pass: what it has left, and how much of it may still go by age.
#[derive(Debug)]
pub(super) struct DeletionSelector {
    keep: RetentionLimits,
    /// A family that was last changed then or before is too old; none while the clock is not trusted.
    oldest: Option<Timestamp>,
    sessions: u64,
    bytes: u64,
    by_age_left: u64,
    is_cut: bool,
}

/// The limits of a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassLimits {
    pub(super) keep: RetentionLimits,
    /// The time; none while the clock is not trusted, and nothing is deleted by its age then.
    pub(super) now: Option<Timestamp>,
    /// The share of a project's sessions that one pass may delete by age.
    pub(super) max_percent: u32,
}

impl DeletionSelector {
    /// Begins a pass over the rows of a project: their families, those first in which nothing has happened for the
    /// longest time.
    pub(super) fn begin(rows: Vec<Row>, alone: bool, limits: PassLimits) -> (Self, Vec<Family>) {
        let max_age = limits.keep.max_age;
        let oldest = limits
            .now
            .filter(|_| max_age.is_limited())
            .map(|now| Timestamp::from_millis(now.as_millis().saturating_sub(max_age.as_millis())));
        let sessions = rows.len() as u64;
        let share = sessions
            .saturating_mul(limits.max_percent.into())
            .div_ceil(100);
        let selection = Self {
            keep: limits.keep,
            oldest,
            sessions,
            bytes: rows.iter().map(|row| row.bytes).sum(),
            by_age_left: share.max(MIN_BY_AGE),
            is_cut: false,
        };
        (selection, families(rows, alone))
    }

    /// The reason that the next family has to go. None ends the pass: those after it are younger still, or no more
    /// may go by age in this one.
    pub(super) fn next(&mut self, family: &Family) -> Option<RetentionReason> {
        let is_over = |limit: u64, has: u64| limit > 0 && has > limit;
        // No clock is asked for a quota, and no more goes than there is too much.
        let by_quota = is_over(self.keep.max_sessions, self.sessions)
            || is_over(self.keep.max_bytes, self.bytes);
        let by_age = self
            .oldest
            .is_some_and(|oldest| family.modified() <= oldest);
        if by_age && self.by_age_left > 0 {
            return Some(RetentionReason::Age);
        }
        self.is_cut |= by_age && !by_quota;
        by_quota.then_some(RetentionReason::Quota)
    }

    /// Notes that a family is gone.
    pub(super) fn gone(&mut self, members: u64, bytes: u64, over: RetentionReason) {
        self.sessions = self.sessions.saturating_sub(members);
        self.bytes = self.bytes.saturating_sub(bytes);
        if over == RetentionReason::Age {
            self.by_age_left = self.by_age_left.saturating_sub(members);
        }
    }

    /// True when the pass ended although more is too old.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::SessionKey;
    use palimpsest_engine::maintenance::Age;
    use palimpsest_store::Position;

    use super::*;

    /// How many of so many sessions go for their age and for the quota, and whether the pass was cut.
    #[track_caller]
    fn check(sessions: i64, keep: RetentionLimits, now: Option<i64>, expected: (u64, u64, bool)) {
        let row = |number: i64| Row {
            key: SessionKey::parse(&format!("projects/p/sessions/s{number}")).unwrap(),
            parent: None,
            modified: Timestamp::from_millis(number),
            position: Position::START,
            bytes: 1,
            is_held: false,
        };
        let limits = PassLimits {
            keep,
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
            let over = if by_quota > 0 {
                RetentionReason::Quota
            } else {
                RetentionReason::Age
            };
            selection.gone(1, 1, over);
        }
        assert_eq!((by_age, by_quota, selection.is_cut()), expected);
    }

    fn keep(max_age_ms: i64, max_sessions: u64) -> RetentionLimits {
        RetentionLimits {
            max_age: Age::from_millis(max_age_ms),
            max_sessions,
            max_bytes: 0,
        }
    }

    #[test]
    fn one_pass_deletes_no_more_than_a_share_by_age() {
        check(1_000, keep(10, 0), Some(500_000), (200, 0, true));
        check(1_000, keep(10, 0), Some(109), (100, 0, false));
        // A small project is not emptied in ever smaller steps.
        check(21, keep(10, 0), Some(500_000), (10, 0, true));
        check(5, keep(10, 0), Some(500_000), (5, 0, false));
    }

    #[test]
    fn a_clock_that_is_not_trusted_deletes_nothing_by_age_and_keeps_the_quota() {
        check(1_000, keep(10, 0), None, (0, 0, false));
        check(1_000, keep(10, 400), None, (0, 600, false));
    }

    #[test]
    fn a_quota_is_kept_beyond_the_share() {
        check(1_000, keep(10, 400), Some(500_000), (200, 400, true));
    }
}
