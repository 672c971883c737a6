//! The verdict of a siege.

use std::time::Duration;

use crate::latency::Figures;
use crate::phases::PhaseOutcome;
use crate::target::RACE_SESSIONS;

/// Latencies up to this value are always accepted.
const ALWAYS_FINE: Duration = Duration::from_secs(1);
const ALWAYS_NORMAL: Duration = Duration::from_millis(250);
/// Maximum latency before the attacks. Above it, the run is not meaningful.
const TOO_SLOW: Duration = Duration::from_millis(500);
/// Factor of the latency before the attacks, which allows for a slow machine.
const DURING: u32 = 20;
const AFTER: u32 = 5;
/// Factor of the limit for the 99th percentile. No single call of any kind may exceed the product.
const LONGEST: u32 = 5;
/// Divisor of the calls per window before the attacks. A window with fewer calls means that the tenant was stalled.
const STALLED: usize = 10;
/// Maximum number of WARN lines per second. The log allows 20 lines of one place in the code per ten seconds, and
/// several places can start in the same second.
const WARNINGS: u64 = 100;

/// The limits of a run, derived from the latency before the attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) during: Duration,
    pub(crate) after: Duration,
    /// Minimum number of calls per window.
    pub(crate) calls: usize,
}

impl Limits {
    /// Derives the limits from the figures before the attacks, which comprise `windows` windows.
    pub(crate) fn of(before: &Figures, windows: usize) -> Self {
        Self {
            during: ALWAYS_FINE.max(before.p99 * DURING),
            after: ALWAYS_NORMAL.max(before.p99 * AFTER),
            calls: before.calls / windows.max(1) / STALLED,
        }
    }
}

/// Returns the limits of a siege.
pub(crate) fn limits(outcome: &PhaseOutcome) -> Limits {
    let windows = outcome.latencies.windows(&outcome.before).len();
    Limits::of(&outcome.latencies.figures(&outcome.before), windows)
}

/// Returns all violations. Empty if the server passed.
pub(crate) fn wrong(outcome: &PhaseOutcome) -> Vec<String> {
    let limits = limits(outcome);
    let windows = outcome.latencies.windows(&outcome.during);
    let mut wrong = wrong_before(&outcome.latencies.figures(&outcome.before));
    wrong.extend(wrong_during(&windows, limits));
    for (kind, figures) in outcome.latencies.by_kind(&outcome.during) {
        wrong.extend(wrong_at_longest(&kind, &figures, limits));
    }
    wrong.extend(wrong_after(
        &outcome.latencies.figures(&outcome.after),
        limits,
    ));
    if let Some(end) = &outcome.most.ended {
        wrong.push(end.clone());
    }
    if let Some(sessions) = outcome.race.filter(|sessions| *sessions > RACE_SESSIONS) {
        wrong.push(format!(
            "{sessions} sessions under a quota of {RACE_SESSIONS}"
        ));
    }
    let lines = outcome.most.warnings_a_second;
    if lines > WARNINGS {
        wrong.push(format!("{lines} lines of level WARN in a second"));
    }
    if outcome.panics > 0 {
        wrong.push(format!("{} panics in the log", outcome.panics));
    }
    for (name, tally) in &outcome.attacks {
        if tally.calls() == 0 {
            wrong.push(format!("{name} did nothing"));
        }
    }
    wrong
}

/// Rejects a run on a busy machine, whose limits would be too high to detect anything.
fn wrong_before(before: &Figures) -> Vec<String> {
    if before.p99 <= TOO_SLOW {
        return Vec::new();
    }
    let p99 = before.p99;
    vec![format!(
        "the machine is too busy to judge: honest p99 of {p99:.1?} before the attacks"
    )]
}

fn wrong_during(windows: &[Figures], limits: Limits) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, window) in windows.iter().enumerate() {
        let Figures {
            calls,
            given_up,
            p99,
            ..
        } = window;
        let from = number * 10;
        if *calls < limits.calls {
            wrong.push(format!(
                "from second {from}: {calls} honest calls began in 10 s"
            ));
        // A percentile of too few calls means nothing.
        } else if *p99 > limits.during {
            wrong.push(format!("from second {from}: honest p99 of {p99:.1?}"));
        }
        if *given_up > 0 {
            wrong.push(format!(
                "from second {from}: {given_up} honest calls were never served"
            ));
        }
    }
    wrong
}

/// Judges each kind of call by its longest latency. A rare kind, such as a new connection, hardly affects the 99th
/// percentile of all calls.
fn wrong_at_longest(kind: &str, figures: &Figures, limits: Limits) -> Option<String> {
    let longest = figures.max;
    (longest > limits.during * LONGEST).then(|| format!("{kind}: one waited {longest:.1?}"))
}

fn wrong_after(after: &Figures, limits: Limits) -> Vec<String> {
    let mut wrong = Vec::new();
    if after.calls < limits.calls {
        wrong.push(format!(
            "afterwards: {} honest calls began in 10 s",
            after.calls
        ));
    } else if after.p99 > limits.after {
        wrong.push(format!("afterwards: honest p99 of {:.1?}", after.p99));
    }
    if after.given_up > 0 {
        wrong.push(format!(
            "afterwards: {} honest calls were never served",
            after.given_up
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        during: Duration::from_secs(1),
        after: Duration::from_millis(250),
        calls: 40,
    };

    fn figures(calls: usize, given_up: usize, p99_ms: u64) -> Figures {
        Figures {
            calls,
            given_up,
            p99: Duration::from_millis(p99_ms),
            ..Figures::default()
        }
    }

    #[test]
    fn limits_follow_the_latency_of_the_baseline() {
        // 800 calls in two windows are 400 in each, of which a tenth must begin. 20 times 100 ms are 2 s.
        let slow = Limits::of(&figures(800, 0, 100), 2);
        assert_eq!(
            (slow.during, slow.after, slow.calls),
            (Duration::from_secs(2), Duration::from_millis(500), 40)
        );
        assert_eq!(Limits::of(&figures(800, 0, 10), 2), LIMITS);
    }

    #[test]
    fn a_machine_with_a_slow_baseline_is_rejected() {
        assert!(wrong_before(&figures(400, 0, 500)).is_empty());
        assert_eq!(wrong_before(&figures(400, 0, 501)).len(), 1);
    }

    #[test]
    fn slow_stalled_and_unserved_windows_are_failures() {
        let windows = [
            figures(400, 0, 900),
            figures(400, 0, 1_100),
            figures(3, 0, 20),
            figures(400, 1, 20),
        ];
        let wrong = wrong_during(&windows, LIMITS);
        assert_eq!(
            wrong,
            [
                "from second 10: honest p99 of 1.1s",
                "from second 20: 3 honest calls began in 10 s",
                "from second 30: 1 honest calls were never served",
            ]
        );
    }

    #[test]
    fn a_long_wait_of_a_rare_call_is_a_failure() {
        let waited = |ms| Figures {
            max: Duration::from_millis(ms),
            ..Figures::default()
        };
        assert_eq!(wrong_at_longest("watch", &waited(5_000), LIMITS), None);
        let wrong = wrong_at_longest("watch", &waited(18_600), LIMITS);
        assert_eq!(wrong.as_deref(), Some("watch: one waited 18.6s"));
    }

    #[test]
    fn latency_must_recover_after_the_attack() {
        assert!(wrong_after(&figures(400, 0, 240), LIMITS).is_empty());
        assert_eq!(wrong_after(&figures(400, 0, 260), LIMITS).len(), 1);
        assert_eq!(wrong_after(&figures(0, 2, 0), LIMITS).len(), 2);
    }
}
