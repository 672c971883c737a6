//! How long sessions are kept: for the server in `[retention]`, and for one project in
//! `[projects.NAME.retention]`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use palimpsest_core::ids::{ProjectId, Timestamp};

use super::Loaded;
use super::suggest::did_you_mean;
use super::value::{Raw, Value, quoted};
use crate::convert;

/// How long sessions are kept, and what happens before they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionConfig {
    /// What holds where a project says nothing else.
    pub keep: Keep,
    /// Where a transcript is exported to before its session is deleted.
    pub export_url: Option<String>,
    /// Whether a subagent's session goes by its own age instead of with its parent.
    pub subagents_alone: bool,
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
    pub load_percent: u32,
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
    pub grace_ms: u64,
}

/// How long the sessions of a project are kept. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// The time since the last event.
    pub max_age: Age,
    /// How many sessions.
    pub max_sessions: u64,
    /// How many bytes they have together.
    pub max_bytes: u64,
}

/// What a project wants otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_field_names, reason = "as the settings are called")]
pub struct OwnKeep {
    max_age: Option<Age>,
    max_sessions: Option<u64>,
    max_bytes: Option<u64>,
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

impl Keep {
    /// Whether anything is ever deleted.
    pub const fn is_limited(&self) -> bool {
        self.max_age.is_limited() || self.max_sessions > 0 || self.max_bytes > 0
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            keep: Keep::default(),
            export_url: None,
            subagents_alone: false,
            max_clock_jump: Age(14 * DAY_MS),
            clock_trusted_until: None,
            max_percent_per_pass: 20,
            dry_run: false,
            every_ms: 600_000,
            load_percent: 10,
            projects: BTreeMap::new(),
        }
    }
}

impl Default for SweepConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            every_ms: 6 * 3_600_000,
            grace_ms: 48 * 3_600_000,
        }
    }
}

impl RetentionConfig {
    /// What holds for a project.
    pub fn of(&self, project: &ProjectId) -> Keep {
        let own = self.projects.get(project).copied().unwrap_or_default();
        Keep {
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

    /// Sets what a project wants.
    pub(super) fn set(&mut self, project: &ProjectId, name: &str, raw: &Raw) -> Result<(), String> {
        let mut own = self.projects.get(project).copied().unwrap_or_default();
        match name {
            "max_age" => own.max_age = Some(Value::read(raw, None)?),
            "max_sessions" => own.max_sessions = Some(Value::read(raw, None)?),
            "max_bytes" => own.max_bytes = Some(Value::read(raw, None)?),
            other => {
                let names = ["max_age", "max_sessions", "max_bytes"].map(str::to_owned);
                let hint = did_you_mean(other, names.into_iter());
                return Err(format!("is not a setting{hint}"));
            }
        }
        self.projects.insert(project.clone(), own);
        Ok(())
    }
}

/// The key of a project's setting.
pub(super) fn key(project: &ProjectId, name: &str) -> String {
    format!("projects.{project}.retention.{name}")
}

/// Writes what projects want, as a file would have it.
pub(super) fn render(loaded: &Loaded, out: &mut String) {
    for (project, own) in &loaded.config.retention.projects {
        let _ = write!(out, "\n[projects.{project}.retention]\n");
        let values = [
            ("max_age", own.max_age.and_then(|value| value.toml())),
            (
                "max_sessions",
                own.max_sessions.and_then(|value| value.toml()),
            ),
            ("max_bytes", own.max_bytes.and_then(|value| value.toml())),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                let origin = loaded.origin(&key(project, name));
                let _ = writeln!(out, "{name} = {value} # {origin}");
            }
        }
    }
}

const DAY_MS: i64 = 86_400_000;

/// The day and time of a timestamp, in UTC.
pub fn day_of(time: Timestamp) -> String {
    convert::export_timestamp(time).to_string()
}

impl Value for Option<Timestamp> {
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let parse = |text: &str| -> Option<Timestamp> {
            let time = format!("{}T00:00:00Z", text.trim());
            let time: prost_types::Timestamp = time.parse().ok()?;
            Some(Timestamp::from_millis(time.seconds.checked_mul(1_000)?))
        };
        let read = raw.text().and_then(parse).map(Some);
        read.ok_or_else(|| raw.refused("a day such as \"2027-01-31\""))
    }

    fn toml(&self) -> Option<String> {
        self.map(|time| quoted(day_of(time).split('T').next().unwrap_or_default()))
    }
}

const UNITS: [(&str, i64); 4] = [("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl Value for Age {
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let parse = |text: &str| {
            if text == "never" {
                return Some(Self(0));
            }
            let (_, millis, number) = UNITS
                .iter()
                .find_map(|(unit, millis)| Some((unit, *millis, text.strip_suffix(unit)?)))?;
            let number: u32 = number.trim().parse().ok().filter(|number| *number > 0)?;
            Some(Self(i64::from(number) * millis))
        };
        raw.text()
            .and_then(|text| parse(text.trim()))
            .ok_or_else(|| raw.refused("\"never\" or a time such as \"90d\", \"36h\" or \"90m\""))
    }

    fn toml(&self) -> Option<String> {
        if !self.is_limited() {
            return Some(quoted("never"));
        }
        let fits = UNITS.iter().find(|(_, millis)| self.0 % millis == 0);
        fits.map(|(unit, millis)| quoted(&format!("{}{unit}", self.0 / millis)))
    }
}
