//! The rules of retention and sweeping, as plain values.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::SignedDuration;
use jiff::civil::date;
use palimpsest_core::ids::{ProjectId, Timestamp};

const DAY_MS: i64 = 86_400_000;

/// Retention: the age, number and size of sessions that are kept, and the conditions of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionConfig {
    /// The limits of projects without limits of their own.
    pub limits: RetentionLimits,
    /// URL to which a transcript is exported before its session is deleted. Default: no export.
    pub export_url: Option<String>,
    /// True if the session of a subagent expires by its own age. False if it expires with its parent (default).
    pub subagents_separately: bool,
    /// Maximum difference between the clock and the time that the newest event and the elapsed time explain. Above it,
    /// retention by age pauses. Default: 14 days.
    pub max_clock_jump: MaxAge,
    /// Time up to which an operator has confirmed the clock. Retention by age does not pause before it.
    pub clock_trusted_until: Option<Timestamp>,
    /// Maximum percentage of a project's sessions that one pass deletes by age. Default: 20.
    pub max_percent_per_pass: u32,
    /// True if sessions are counted instead of deleted.
    pub dry_run: bool,
    /// Interval between two passes in milliseconds. Default: 10 minutes.
    pub every_ms: u64,
    /// Maximum percentage of time that the background work takes. Default: 10.
    pub duty_cycle_percent: u32,
    /// Limits of single projects.
    pub projects: BTreeMap<ProjectId, RetentionOverride>,
}

/// The sweep of orphaned files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepConfig {
    /// True if the sweep runs. Default: true.
    pub enabled: bool,
    /// Interval between two sweeps in milliseconds. Default: 6 hours.
    pub every_ms: u64,
    /// Minimum age in milliseconds of a file that is removed. Default: 48 hours.
    pub min_age_ms: u64,
}

/// Retention limits of a project. 0: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionLimits {
    /// Time since the last event after which a session expires.
    pub max_age: MaxAge,
    /// Maximum number of sessions.
    pub max_sessions: u64,
    /// Maximum bytes of all sessions together.
    pub max_bytes: u64,
}

/// Retention limits that a project overrides. `None` inherits the server's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionOverride {
    /// Time since the last event after which a session expires.
    pub max_age: Option<MaxAge>,
    /// Maximum number of sessions.
    pub max_sessions: Option<u64>,
    /// Maximum bytes of all sessions together.
    pub max_bytes: Option<u64>,
}

/// A duration in milliseconds after which a session expires, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaxAge(i64);

impl MaxAge {
    /// The age in milliseconds. 0: never expires.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Creates an age from milliseconds. 0: never expires.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns true unless the age is 0.
    pub const fn is_limited(self) -> bool {
        self.0 > 0
    }
}

impl RetentionLimits {
    /// Returns true if any limit is set.
    pub const fn is_limited(&self) -> bool {
        self.max_age.is_limited() || self.max_sessions > 0 || self.max_bytes > 0
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            limits: RetentionLimits::default(),
            export_url: None,
            subagents_separately: false,
            max_clock_jump: MaxAge(14 * DAY_MS),
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
    /// Returns the limits of a project.
    pub fn of(&self, project: &ProjectId) -> RetentionLimits {
        // Limits are inherited one by one, so that a project can override a single limit.
        let own = self.projects.get(project).copied().unwrap_or_default();
        RetentionLimits {
            max_age: own.max_age.unwrap_or(self.limits.max_age),
            max_sessions: own.max_sessions.unwrap_or(self.limits.max_sessions),
            max_bytes: own.max_bytes.unwrap_or(self.limits.max_bytes),
        }
    }

    /// Returns true if any project has a limit.
    pub fn is_on(&self) -> bool {
        // A project can set a limit although the server has none.
        let mut projects = self.projects.keys();
        self.limits.is_limited() || projects.any(|project| self.of(project).is_limited())
    }

    /// Returns true if any project has a maximum age.
    pub fn has_age_limit(&self) -> bool {
        let mut projects = self.projects.keys();
        let of = |project| self.of(project).max_age.is_limited();
        self.limits.max_age.is_limited() || projects.any(of)
    }
}

/// The range of timestamps that are formatted, in milliseconds: the years 1 to 9999.
const PRINTED_MS: RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// Formats a timestamp as date and time in UTC. Timestamps outside the years 1 to 9999 are clamped.
pub fn day_of(time: Timestamp) -> String {
    let millis = time.as_millis();
    let printed = millis.clamp(*PRINTED_MS.start(), *PRINTED_MS.end());
    let epoch = date(1970, 1, 1).at(0, 0, 0, 0);
    // A clamped timestamp is printed without a fraction, which would have no meaning.
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
    fn timestamps_are_formatted_in_utc() {
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
