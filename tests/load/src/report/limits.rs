//! Compares the measurements with the promises of the service.

use serde::Serialize;

use super::Report;
use palimpsest_load::figures::{count, megabytes, or_dash, short};

/// A promise. `kept` is `None` if this run did not measure it.
#[derive(Debug, Serialize)]
pub(super) struct Promise {
    pub(super) what: &'static str,
    pub(super) measured: String,
    pub(super) limit: &'static str,
    pub(super) kept: Option<bool>,
}

const SESSIONS: usize = 100_000;
const LONG: usize = 10_000;
const SHORT: usize = 10;
/// The minimum rate of a method, in percent of the rate of an empty service.
pub(super) const OF_LIMIT_PERCENT: f64 = 70.0;
/// Maximum time until a server with many sessions is ready, in milliseconds.
pub(super) const READY_MS: f64 = 2_000.0;
/// Maximum idle memory of that server, in megabytes.
pub(super) const MEMORY_MB: f64 = 200.0;

/// Returns the promises that these runs measure.
pub(super) fn promises(report: &Report) -> Vec<Promise> {
    let many = report.sessions.iter().find(|row| row.sessions == SESSIONS);
    let of_length = |length| report.growth.iter().find(move |row| row.messages == length);
    let delta = |length| of_length(length).and_then(|row| row.delta_ms.0);
    let slower = delta(LONG)
        .zip(delta(SHORT))
        .map(|(long, short)| long / short);
    let open = of_length(LONG).and_then(|row| row.open_ms);
    let ready = many.map(|row| row.ready_ms);
    let memory = many.map(|row| megabytes(row.resident));
    vec![
        below(
            "start with 100,000 sessions on disk",
            ready,
            "under 2 s",
            READY_MS,
            "ms",
        ),
        below("memory then, idle", memory, "under 200 MB", MEMORY_MB, "MB"),
        below(
            "a delta after 10,000 messages, against 10",
            slower,
            "within 1.5 times",
            1.5,
            "times",
        ),
        below(
            "opening a session of 10,000 messages, over gRPC",
            open,
            "under 20 ms",
            20.0,
            "ms",
        ),
        without_errors(report),
    ]
}

fn below(
    what: &'static str,
    measured: Option<f64>,
    limit: &'static str,
    most: f64,
    unit: &str,
) -> Promise {
    Promise {
        what,
        measured: measured
            .map_or_else(|| or_dash(None), |value| format!("{} {unit}", short(value))),
        limit,
        kept: measured.map(|value| value <= most),
    }
}

/// The promise that every call below capacity is answered, including the calls of simulated agents.
fn without_errors(report: &Report) -> Promise {
    let (mut answered, mut shed, mut failed) = (0, 0, 0);
    // Open loops only: a closed loop runs at capacity, where rejections are correct.
    for row in report.rows.iter().filter(|row| row.offered.is_some()) {
        answered += row.calls;
        shed += row.shed;
        failed += row.failed();
    }
    for mix in report.mix.iter().filter(|mix| mix.offered.is_some()) {
        answered += mix.calls.iter().map(|call| call.calls).sum::<u64>();
        shed += mix.shed;
        failed += mix.errors.values().sum::<u64>();
    }
    let calls = answered + shed + failed;
    Promise {
        what: "calls below capacity that are not answered",
        measured: format!(
            "{} refused, {} failed of {}",
            count(shed),
            count(failed),
            count(calls)
        ),
        limit: "none",
        kept: (calls > 0).then_some(shed + failed == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palimpsest_load::sessions::Crowd;

    use crate::report::Growth;

    fn growth(messages: usize, delta: f64) -> Growth {
        Growth {
            messages,
            append_ms: (None, None),
            delta_ms: (Some(delta), None),
            snip_ms: (None, None),
            full_ms: (None, None),
            open_ms: Some(21.0),
        }
    }

    fn kept(report: &Report) -> Vec<Option<bool>> {
        promises(report)
            .iter()
            .map(|promise| promise.kept)
            .collect()
    }

    #[test]
    fn capacity_promises_are_checked_against_measurements() {
        let mut report = Report::default();
        assert_eq!(kept(&report), [None; 5]);
        report.growth = vec![growth(SHORT, 1.0), growth(LONG, 1.4)];
        report.sessions = vec![Crowd {
            sessions: SESSIONS,
            ready_ms: 1_999.0,
            resident: 201_000_000,
            own: 0,
            p50_ms: None,
            p99_ms: None,
        }];
        let expected = [Some(true), Some(false), Some(true), Some(false), None];
        assert_eq!(kept(&report), expected);
        report.growth[1].delta_ms.0 = Some(1.6);
        assert_eq!(kept(&report)[2], Some(false));
    }
}
