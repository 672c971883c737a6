//! Settings of retention: `[retention]` for the server and `[projects.NAME.retention]` for one project.

use std::ops::RangeInclusive;

use jiff::civil::{Date, date};
use palimpsest_core::ids::{ProjectId, Timestamp};
use palimpsest_engine::maintenance::{MaxAge, RetentionConfig, day_of};

use crate::settings::by_key;
use crate::suggest::did_you_mean;
use crate::value::{RawValue, SettingValue, quoted};

const DAY_MS: i64 = 86_400_000;

/// Sets a retention limit of one project.
pub(crate) fn set(
    config: &mut RetentionConfig,
    project: &ProjectId,
    name: &str,
    raw: &RawValue,
) -> Result<(), String> {
    let mut own = config.projects.get(project).copied().unwrap_or_default();
    match name {
        "max_age" => own.max_age = Some(SettingValue::read(raw, None)?),
        "max_sessions" => own.max_sessions = Some(SettingValue::read(raw, None)?),
        "max_bytes" => own.max_bytes = Some(SettingValue::read(raw, None)?),
        other if by_key(&format!("retention.{other}")).is_some() => {
            return Err(format!(
                "is not a setting of a project: it is the same for all projects, so set retention.{other}"
            ));
        }
        other => {
            let names = ["max_age", "max_sessions", "max_bytes"].map(str::to_owned);
            let hint = did_you_mean(other, names.into_iter());
            return Err(format!("is not a setting{hint}"));
        }
    }
    config.projects.insert(project.clone(), own);
    Ok(())
}

/// Returns the key of a project's setting.
pub(crate) fn key(project: &ProjectId, name: &str) -> String {
    format!("projects.{project}.retention.{name}")
}

impl SettingValue for Option<Timestamp> {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let parse = |text: &str| -> Option<Timestamp> {
            let text = text.trim();
            // The date parser also accepts other forms, such as a date with a time.
            let fits = |(at, byte): (usize, u8)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            };
            let is_day = text.len() == "YYYY-MM-DD".len() && text.bytes().enumerate().all(fits);
            let day: Date = is_day.then(|| text.parse().ok())??;
            let since_epoch = day.duration_since(date(1970, 1, 1));
            Some(Timestamp::from_millis(since_epoch.as_secs() * 1_000))
        };
        let read = raw.text().and_then(parse).map(Some);
        read.ok_or_else(|| raw.type_error("a day such as \"2027-01-31\""))
    }

    fn toml(&self) -> Option<String> {
        self.map(|time| quoted(day_of(time).split('T').next().unwrap_or_default()))
    }
}

const UNITS: [(&str, i64); 4] = [("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl SettingValue for MaxAge {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let parse = |text: &str| {
            // Zero means no limit, so an age such as `0d` is rejected below.
            if text == "never" {
                return Some(Self::from_millis(0));
            }
            let (_, millis, number) = UNITS
                .iter()
                .find_map(|(unit, millis)| Some((unit, *millis, text.strip_suffix(unit)?)))?;
            // A number of 32 bits times the milliseconds of a day cannot overflow.
            let number: u32 = number.trim().parse().ok().filter(|number| *number > 0)?;
            Some(Self::from_millis(i64::from(number) * millis))
        };
        raw.text()
            .and_then(|text| parse(text.trim()))
            .ok_or_else(|| {
                raw.type_error("\"never\" or a time such as \"90d\", \"36h\" or \"90m\"")
            })
    }

    fn toml(&self) -> Option<String> {
        if !self.is_limited() {
            return Some(quoted("never"));
        }
        // The largest unit that divides the age, so that `90d` is not printed in hours.
        let fits = UNITS
            .iter()
            .find(|(_, millis)| self.as_millis() % millis == 0);
        fits.map(|(unit, millis)| quoted(&format!("{}{unit}", self.as_millis() / millis)))
    }
}
