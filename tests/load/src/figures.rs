//! Latencies, and the formatting of figures for people.

use std::time::Duration;

/// The durations of calls, sorted.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Sorts durations in any order.
    pub fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    /// Returns the number of durations.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no durations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a quantile, such as 0.99. `None` without calls.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a list"
        )]
        let place = (self.0.len() as f64 * part).ceil() as usize;
        // The nearest rank: a measured duration and never an average of two. The bounds cover a quantile of 0 and an
        // empty list.
        self.0.get(place.clamp(1, self.0.len().max(1)) - 1).copied()
    }

    /// Returns a quantile in milliseconds, for reports.
    pub fn ms(&self, part: f64) -> Option<f64> {
        self.quantile(part).map(ms)
    }
}

/// Converts a duration to milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the rate per second.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Formats a number with three significant digits, unless it has more integer digits.
pub fn short(value: f64) -> String {
    match value {
        100.0.. => grouped(value),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a number, or a dash for `None`.
pub fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), short)
}

/// Formats an integer with thousands separators.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with thousands separators.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn count(value: u64) -> String {
    grouped(value as f64)
}

/// Converts bytes to megabytes.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_latencies() {
        let of = |n: u64| Latencies::new((1..=n).rev().map(Duration::from_millis).collect());
        let at = |n, part| of(n).quantile(part).map(|t| t.as_millis());
        assert_eq!(at(100, 0.5), Some(50));
        assert_eq!(at(100, 0.99), Some(99));
        assert_eq!(at(1, 0.99), Some(1));
        assert_eq!(at(3, 0.0), Some(1));
        assert_eq!(at(0, 0.5), None);
    }

    #[test]
    fn figures_are_formatted_briefly() {
        assert_eq!(short(0.1234), "0.12");
        assert_eq!(short(12.345), "12.3");
        assert_eq!(short(1_234_567.8), "1,234,568");
        assert_eq!(or_dash(None), "–");
    }
}
