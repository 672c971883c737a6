//! The results of all runs, and their output as table, JSON, plots and page.

mod limits;
mod page;
mod plot;
mod ranges;
mod sheet;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

pub(crate) use self::table::{line, print};
use crate::ghz::{Loop, Outcome};
use palimpsest_load::figures::{ms, rate};
use palimpsest_load::sessions::Crowd;
use palimpsest_load::workloads::Workload;

/// One run of ghz.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) rpc: &'static str,
    pub(crate) size: String,
    /// The name of the server: `default` or `patient`.
    pub(crate) server: &'static str,
    pub(crate) connections: usize,
    /// Calls per second that an open loop sends.
    pub(crate) offered: Option<u32>,
    /// Calls that were answered with OK.
    pub(crate) calls: u64,
    pub(crate) rate: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// Processor time of the server per call, in milliseconds.
    pub(crate) cpu_ms: Option<f64>,
    /// Calls that were rejected by load shedding.
    pub(crate) shed: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    /// The limit in calls per second for the same bytes without the service's work, if it was measured.
    pub(crate) limit: Option<f64>,
    pub(crate) command: String,
}

/// The turns of simulated agents.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Mix {
    pub(crate) pace: &'static str,
    pub(crate) server: &'static str,
    pub(crate) agents: usize,
    /// Turns per second that an open loop starts.
    pub(crate) offered: Option<f64>,
    pub(crate) turns: u64,
    pub(crate) rate: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) shed: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) calls: Vec<MixCall>,
}

/// One method within the turns.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MixCall {
    pub(crate) rpc: &'static str,
    pub(crate) calls: u64,
    pub(crate) rate: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// The median and the 99th percentile of a latency, in milliseconds.
pub(crate) type Both = (Option<f64>, Option<f64>);

/// Calls on sessions of one length.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Growth {
    pub(crate) messages: usize,
    pub(crate) append_ms: Both,
    pub(crate) delta_ms: Both,
    pub(crate) snip_ms: Both,
    pub(crate) full_ms: Both,
    pub(crate) open_ms: Option<f64>,
}

/// The results of all runs.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) when: String,
    pub(crate) machine: String,
    pub(crate) binary: String,
    pub(crate) seconds: f64,
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) mix: Vec<Mix>,
    pub(crate) growth: Vec<Growth>,
    pub(crate) sessions: Vec<Crowd>,
}

impl Row {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn new(
        work: &Workload,
        server: &'static str,
        (connections, pace): (usize, Loop),
        outcome: Outcome,
        cpu: Duration,
    ) -> Self {
        // Rejected calls count too: the server answers them, at almost no cost.
        let answered = outcome.ok + outcome.shed;
        Self {
            name: work.name,
            rpc: work.rpc,
            size: work.size(),
            server,
            connections,
            offered: match pace {
                Loop::Open(rate) => Some(rate),
                Loop::Closed => None,
            },
            calls: outcome.ok,
            rate: rate(outcome.ok, outcome.took),
            p50_ms: outcome.latencies.ms(0.5),
            p99_ms: outcome.latencies.ms(0.99),
            cpu_ms: (answered > 0).then(|| ms(cpu) / answered as f64),
            shed: outcome.shed,
            errors: outcome.errors,
            limit: None,
            command: outcome.command,
        }
    }

    /// Returns the pacing of the calls.
    pub(crate) fn pace(&self) -> &'static str {
        if self.offered.is_some() {
            "open"
        } else {
            "closed"
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl Report {
    /// Writes `results.json`, the plots and `report.html` to a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let put = |name: &str, text: String| {
            fs::write(folder.join(name), text).with_context(|| format!("{name} is not written"))
        };
        put("results.json", serde_json::to_string_pretty(self)?)?;
        let plots = plots(self);
        for (name, svg) in &plots {
            put(&format!("{name}.svg"), svg.clone())?;
        }
        put("report.html", page::page(self, &plots))
    }

    /// Returns the number of failed calls, without those rejected by design.
    pub(crate) fn failed(&self) -> u64 {
        let of_rows = self.rows.iter().map(Row::failed).sum::<u64>();
        let of_mix = self.mix.iter().flat_map(|mix| mix.errors.values());
        of_rows + of_mix.sum::<u64>()
    }
}

/// Returns the plots of the measured parts, by file name.
fn plots(report: &Report) -> Vec<(&'static str, String)> {
    let mut plots = Vec::new();
    if !report.rows.is_empty() {
        plots.push(("latency", ranges::draw(&report.rows)));
    }
    if !report.growth.is_empty() {
        plots.push(("growth", plot::growth(&report.growth)));
    }
    if !report.sessions.is_empty() {
        plots.push(("sessions", plot::ready(&report.sessions)));
        plots.push(("memory", plot::memory(&report.sessions)));
    }
    plots
}
