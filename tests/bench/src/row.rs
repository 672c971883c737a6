//! A row of the table: what was measured, the limit of the same run, the ratio of the two, and its target.

use serde::Serialize;

/// A figure with its unit.
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

/// The median of some rounds, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of the rounds' values, of which there is at least one.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        Self {
            median: at(sorted.len() / 2),
            least: at(0),
            most: at(sorted.len().saturating_sub(1)),
        }
    }
}

/// What the ratio of what is measured to its limit shall be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Nobody has promised anything; it is there to be compared with.
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

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// The name of the work in `make load`, which the limits file is read by.
    pub(crate) work: Option<&'static str>,
    pub(crate) measured: Figure,
    pub(crate) limit: Figure,
    /// What the limit is.
    pub(crate) limit_is: &'static str,
    pub(crate) ratio: Spread,
    pub(crate) target: Target,
    pub(crate) is_met: Option<bool>,
    /// What else was measured in the same rounds.
    pub(crate) beside: Vec<String>,
}

impl Row {
    /// A row of rounds, each of which gave what was measured and its limit.
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

    /// The same with something to compare it with.
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
    fn a_ratio_is_of_one_round_and_not_of_two_medians() {
        // The machine was twice as fast in the second round, for both.
        let rounds = [(50.0, 100.0), (100.0, 200.0), (60.0, 120.0)];
        let ratio = row(&rounds, Target::None).ratio;
        assert_eq!((ratio.least, ratio.most), (0.5, 0.5));
    }

    #[test]
    fn a_row_without_rounds_is_not_met() {
        assert_eq!(row(&[], Target::AtMost(1.0)).is_met, Some(false));
    }
}
