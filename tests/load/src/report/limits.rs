//! What the service has promised, beside what was measured.

use serde::Serialize;

use super::{Report, Row};
use crate::figures::{count, megabytes, or_dash, short};

/// A promise. `kept` is not known when this run did not go so far.
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
/// The part of an empty service's calls a second that a method reaches at least, in percent.
pub(super) const OF_LIMIT_PERCENT: f64 = 70.0;
/// With so many sessions a server is ready after so many milliseconds.
pub(super) const READY_MS: f64 = 2_000.0;
/// And with so many megabytes.
pub(super) const MEMORY_MB: f64 = 200.0;

/// All promises that these runs are about.
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
        without_errors(&report.rows),
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

/// Below capacity every call is answered.
fn without_errors(rows: &[Row]) -> Promise {
    let open: Vec<&Row> = rows.iter().filter(|row| row.offered.is_some()).collect();
    let calls: u64 = open.iter().map(|row| row.calls).sum();
    let shed: u64 = open.iter().map(|row| row.shed).sum();
    let failed: u64 = open.iter().map(|row| row.failed()).sum();
    Promise {
        what: "calls on 200 connections below capacity that are not answered",
        measured: format!(
            "{} refused, {} failed of {}",
            count(shed),
            count(failed),
            count(calls + shed + failed)
        ),
        limit: "none",
        kept: (!open.is_empty()).then_some(shed + failed == 0),
    }
}
