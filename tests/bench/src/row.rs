//! A row of the table: the measured value, the limit of the same run, their ratio, and the target of the ratio.

use serde::Serialize;

/// A value with its unit.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

pub(crate) const CALLS: &str = "/s";
pub(crate) const MICROS: &str = "µs";
pub(crate) const MILLIS: &str = "ms";
pub(crate) const BYTES: &str = "B";

pub(crate) fn figure(value: f64, unit: &'static str) -> Figure {
    Figure { value, unit }
}

/// The median and the range of several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Computes the spread of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        // Without values, NaN meets no target, so a row that measured nothing counts as missed.
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        Self {
            median: at(sorted.len() / 2),
            least: at(0),
            most: at(sorted.len().saturating_sub(1)),
        }
    }
}

/// The target of the ratio of a measured value to its limit.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// No target. The row is for comparison only.
    None,
}

impl Target {
    fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::None => None,
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// The name of the work in `make load`, which is the key in the limits file.
    pub(crate) work: Option<&'static str>,
    pub(crate) measured: Figure,
    pub(crate) limit: Figure,
    /// The description of the limit.
    pub(crate) limit_is: &'static str,
    pub(crate) ratio: Spread,
    pub(crate) target: Target,
    pub(crate) is_met: Option<bool>,
    /// Other values from the same rounds.
    pub(crate) beside: Vec<String>,
}

impl Row {
    /// Creates a row from rounds. Each round is a measured value and its limit.
    pub(crate) fn new(
        what: impl Into<String>,
        rounds: &[(f64, f64)],
        (unit, limit_is): (&'static str, &'static str),
        target: Target,
    ) -> Self {
        let ratio = Spread::of(rounds.iter().map(|(measured, limit)| measured / limit));
        let measured = Spread::of(rounds.iter().map(|(measured, _)| *measured));
        let limit = Spread::of(rounds.iter().map(|(_, limit)| *limit));
        Self {
            what: what.into(),
            work: None,
            measured: figure(measured.median, unit),
            limit: figure(limit.median, unit),
            limit_is,
            ratio,
            target,
            is_met: target.is_met(ratio.median),
            beside: Vec::new(),
        }
    }

    /// Adds a value for comparison.
    #[must_use]
    pub(crate) fn beside(mut self, said: impl Into<String>) -> Self {
        self.beside.push(said.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rounds: &[(f64, f64)], target: Target) -> Row {
        Row::new("it", rounds, (CALLS, "an empty service"), target)
    }

    #[test]
    fn a_row_is_judged_by_the_median_of_its_rounds() {
        let rounds = [(60.0, 100.0), (80.0, 100.0), (75.0, 100.0)];
        let judged = row(&rounds, Target::AtLeast(0.75));
        assert_eq!(judged.is_met, Some(true));
        assert_eq!(
            judged.ratio,
            Spread {
                median: 0.75,
                least: 0.6,
                most: 0.8
            }
        );
        assert_eq!(row(&rounds, Target::AtLeast(0.76)).is_met, Some(false));
        assert_eq!(row(&rounds, Target::AtMost(0.74)).is_met, Some(false));
        assert_eq!(row(&rounds, Target::None).is_met, None);
    }

    #[test]
    fn a_ratio_is_computed_within_one_round() {
        // The machine was twice as fast in the second round, for the value and for its limit.
        let rounds = [(50.0, 100.0), (100.0, 200.0), (60.0, 120.0)];
        let ratio = row(&rounds, Target::None).ratio;
        assert_eq!((ratio.least, ratio.most), (0.5, 0.5));
    }

    #[test]
    fn a_row_without_rounds_fails() {
        assert_eq!(row(&[], Target::AtMost(1.0)).is_met, Some(false));
    }
}
