//! Durations and percentages in the format of settings.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in milliseconds. The text format is a number of seconds with unit, such as `90s` or
/// `0.5s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(u64);

impl Millis {
    /// Creates a duration from milliseconds.
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the duration in milliseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (seconds, rest) = (self.0 / 1_000, self.0 % 1_000);
        let text = if rest == 0 {
            format!("{seconds}s")
        } else {
            format!("{seconds}.{rest:03}s")
        };
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_millis(&text)
            .map(Self)
            .ok_or_else(|| D::Error::custom("must be a number of seconds, such as 90s or 0.5s"))
    }
}

fn parse_millis(text: &str) -> Option<u64> {
    let number = text.strip_suffix('s')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    // Digits below a millisecond are ignored: `1.2345s` has 1,234 ms.
    let millis: u64 = format!("{part:0<3}")[..3].parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(millis)
}

/// A percentage with a resolution of 0.001 %. Settings accept 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Percent(u32);

impl Percent {
    /// Creates a percentage from whole percents.
    pub const fn new(percent: u32) -> Self {
        Self(percent * 1_000)
    }

    /// Returns this percentage of a number.
    pub const fn of(self, whole: u64) -> u64 {
        // Two steps avoid an overflow of the product with large numbers.
        let (hundred, rest) = (whole / 100_000, whole % 100_000);
        hundred * self.0 as u64 + rest * self.0 as u64 / 100_000
    }

    /// Returns the percentage as a number between 0 and 100.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = f64::deserialize(deserializer)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(D::Error::custom("must be between 0 and 100"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between 0 and 100,000"
        )]
        Ok(Self((percent * 1_000.0).round() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_shares_survive_a_round_trip() {
        for (text, millis) in [("90s", 90_000), ("0.5s", 500), ("1.250s", 1_250)] {
            assert_eq!(parse_millis(text), Some(millis));
        }
        for text in ["", "s", "5", "-1s", "1.s2", "1e3s", "99999999999999999999s"] {
            assert_eq!(parse_millis(text), None, "{text}");
        }
        assert_eq!(Percent::new(80).of(200_000), 160_000);
        assert_eq!(Percent(77_500).of(200_000), 155_000);
        assert_eq!(Percent::new(100).of(u64::MAX / 2), u64::MAX / 2);
    }
}
