//! The rules of retention and sweeping, as plain values.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::SignedDuration;
use jiff::civil::date;
use palimpsest_core::ids::{ProjectId, Timestamp};

const DAY_MS: i64 = 86_400_000;

/// How long sessions are kept, and what happens before they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionConfig {
    /// What holds where a project says nothing else.
    pub keep: RetentionLimits,
    /// Where a transcript is exported to before its session is deleted.
    pub export_url: Option<String>,
    /// Whether a subagent's session goes by its own age instead of with its parent.
    pub subagents_separately: bool,
    /// How far the clock may be ahead of what the log and the time since explain.
    pub max_clock_jump: Age,
    /// An operator's word that the clock is right up to this time.
    pub clock_trusted_until: Option<Timestamp>,
    /// The share of a project's sessions that one pass may delete by age.
    pub max_percent_per_pass: u32,
    /// Whether nothing is deleted, and what would be is counted.
    pub dry_run: bool,
    /// How often it is looked.
    pub every_ms: u64,
    /// The share of the time that background work takes.
    pub duty_cycle_percent: u32,
    /// What projects want otherwise.
    pub projects: BTreeMap<ProjectId, OwnKeep>,
}

/// Sweeping files that no event names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepConfig {
    /// Whether it is done.
    pub enabled: bool,
    /// How often.
    pub every_ms: u64,
    /// How old a file is at least that goes.
    pub min_age_ms: u64,
}

/// How long the sessions of a project are kept. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionLimits {
    /// The time since the last event.
    pub max_age: Age,
    /// How many sessions.
    pub max_sessions: u64,
    /// How many bytes they have together.
    pub max_bytes: u64,
}

/// What a project wants otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnKeep {
    /// The time since the last event.
    pub max_age: Option<Age>,
    /// How many sessions.
    pub max_sessions: Option<u64>,
    /// How many bytes they have together.
    pub max_bytes: Option<u64>,
}

/// A time after which something is over, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Age(i64);

impl Age {
    /// In milliseconds; 0 when it is never over.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// An age of so many milliseconds; 0 is never over.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Whether it is ever over.
    pub const fn is_limited(self) -> bool {
        self.0 > 0
    }
}

impl RetentionLimits {
    /// Whether anything is ever deleted.
    pub const fn is_limited(&self) -> bool {
        self.max_age.is_limited() || self.max_sessions > 0 || self.max_bytes > 0
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            keep: RetentionLimits::default(),
            export_url: None,
            subagents_separately: false,
            max_clock_jump: Age(14 * DAY_MS),
            clock_trusted_until: None,
            max_percent_per_pass: 20,
            dry_run: false,
            every_ms: 600_000,
            duty_cycle_percent: 10,
            projects: BTreeMap::new(),
        }
    }
}

impl Default for SweepConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            every_ms: 6 * 3_600_000,
            min_age_ms: 48 * 3_600_000,
        }
    }
}

impl RetentionConfig {
    /// What holds for a project.
    pub fn of(&self, project: &ProjectId) -> RetentionLimits {
        let own = self.projects.get(project).copied().unwrap_or_default();
        RetentionLimits {
            max_age: own.max_age.unwrap_or(self.keep.max_age),
            max_sessions: own.max_sessions.unwrap_or(self.keep.max_sessions),
            max_bytes: own.max_bytes.unwrap_or(self.keep.max_bytes),
        }
    }

    /// Whether anything is ever deleted.
    pub fn is_on(&self) -> bool {
        let mut projects = self.projects.keys();
        self.keep.is_limited() || projects.any(|project| self.of(project).is_limited())
    }

    /// Returns true if anything is ever deleted by its age.
    pub fn ages_any(&self) -> bool {
        let mut projects = self.projects.keys();
        let of = |project| self.of(project).max_age.is_limited();
        self.keep.max_age.is_limited() || projects.any(of)
    }
}

/// The first and the last millisecond that are printed: the years 1 to 9999.
const PRINTED_MS: RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// The day and time of a timestamp, in UTC.
pub fn day_of(time: Timestamp) -> String {
    let millis = time.as_millis();
    let printed = millis.clamp(*PRINTED_MS.start(), *PRINTED_MS.end());
    let epoch = date(1970, 1, 1).at(0, 0, 0, 0);
    let time = epoch.saturating_add(SignedDuration::from_millis(printed));
    if time.subsec_nanosecond() == 0 || printed != millis {
        format!("{time:.0}Z")
    } else {
        format!("{time:.3}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_prints_as_day_and_time_in_utc() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_801_353_600_000, "2027-01-31T00:00:00Z"),
            (1_801_353_600_020, "2027-01-31T00:00:00.020Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MIN, "0001-01-01T00:00:00Z"),
            (253_402_300_799_123, "9999-12-31T23:59:59.123Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(day_of(Timestamp::from_millis(millis)), expected);
        }
    }
}
