//! The runs of ghz: each method and size, with few and many connections, in closed and open loops.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::ghz::{Extent, Loop, Outcome, Run};
use crate::report::Row;
use palimpsest_load::figures::rate;
use palimpsest_load::requests::requests;
use palimpsest_load::settle::rested;
use palimpsest_load::test_server::{TestServer, cpu};
use palimpsest_load::workloads::{WORKS, Workload};

/// The rate of an open loop, in percent of the best closed loop of the same call.
const OFFERED_PERCENT: u32 = 50;
/// Connections of the closed loop that measures the capacity if no closed loop was selected.
const FEW: usize = 16;
/// Maximum number of connections of an open loop. Fewer calls use fewer connections.
const MANY: usize = 200;
/// Minimum number of calls in a pilot run, which estimates the number of calls for a run's duration.
const PILOT: usize = 24;
/// Minimum number of calls of an open loop.
const LEAST: usize = 8;
/// Minimum duration of a closed loop that ends by time and not by a number of calls.
const BY_TIME: Duration = Duration::from_secs(1);

/// The selection and the size of the runs.
pub(crate) struct Scope<'a> {
    pub(crate) ghz: &'a Path,
    /// The folder for request files.
    pub(crate) data: &'a Path,
    pub(crate) time: Duration,
    /// Maximum time for a server to complete background work of the previous run.
    pub(crate) rest: Duration,
    /// Number of sessions that reads use in turn.
    pub(crate) read: usize,
    /// The numbers of connections of closed loops, in ascending order.
    pub(crate) closed: &'a [usize],
    /// A text that the names of selected runs contain.
    pub(crate) only: Option<&'a str>,
    /// Calls per second of open loops. Default: a part of the rate of closed loops.
    pub(crate) rate: Option<u32>,
}

impl Scope<'_> {
    fn wants(&self, run: &str) -> bool {
        self.only.is_none_or(|part| run.contains(part))
    }

    /// Returns true if at least one run is selected.
    pub(crate) fn wants_any(&self) -> bool {
        WORKS.iter().any(|work| {
            let closed = self.closed.iter().map(|many| closed(work, *many));
            closed.chain([open(work)]).any(|run| self.wants(&run))
        })
    }
}

/// Returns the name of a closed-loop run.
fn closed(work: &Workload, connections: usize) -> String {
    format!("{}/closed-{connections}", work.name)
}

fn open(work: &Workload) -> String {
    format!("{}/open", work.name)
}

/// Runs all selected runs. Calls `tell` with each row when it is complete.
pub(crate) async fn run(
    scope: &Scope<'_>,
    patient: &TestServer,
    by_default: &TestServer,
    mut tell: impl FnMut(&Row),
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for work in &WORKS {
        let mut runner = Runner {
            scope,
            work,
            files: BTreeMap::new(),
        };
        let mut best = None;
        for connections in scope.closed {
            // A work whose requests can be sent only once may have fewer requests than connections.
            if work.most() < *connections || !scope.wants(&closed(work, *connections)) {
                continue;
            }
            let row = runner.measure(patient, *connections, Loop::Closed).await?;
            best = Some(row.rate.max(best.unwrap_or(0.0)));
            tell(&row);
            rows.push(row);
        }
        if scope.wants(&open(work)) {
            let rate = match (scope.rate, best) {
                (Some(rate), _) => rate,
                (None, Some(best)) => offered(best),
                // No closed loop of this call ran, so the capacity is measured first.
                (None, None) => offered(runner.measure(patient, FEW, Loop::Closed).await?.rate),
            };
            let row = runner.measure(by_default, MANY, Loop::Open(rate)).await?;
            tell(&row);
            rows.push(row);
        }
        for file in runner.files.values() {
            fs::remove_file(file).ok();
        }
    }
    Ok(rows)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate that was measured"
)]
fn offered(best: f64) -> u32 {
    ((best * f64::from(OFFERED_PERCENT) / 100.0) as u32).max(1)
}

struct Runner<'a> {
    scope: &'a Scope<'a>,
    work: &'a Workload,
    /// Files of requests that can be repeated, by the name of the server.
    files: BTreeMap<&'static str, PathBuf>,
}

impl Runner<'_> {
    async fn measure(&mut self, site: &TestServer, connections: usize, pace: Loop) -> Result<Row> {
        let name = format!("{}-{connections}-{}", self.work.name, site.name);
        let (connections, extent) = match pace {
            Loop::Open(rate) => {
                let calls = self.fitting(f64::from(rate), LEAST);
                // More connections than calls would stay idle.
                (connections.min(calls), Extent::Calls(calls))
            }
            // ghz starts its timer before it connects, so a short run would end before its first call.
            Loop::Closed if self.work.repeats() && self.scope.time >= BY_TIME => {
                (connections, Extent::Time(self.scope.time))
            }
            Loop::Closed => {
                let a_second = self.pilot(site, &name, connections).await?;
                (
                    connections,
                    Extent::Calls(self.fitting(a_second, connections)),
                )
            }
        };
        let data = match extent {
            Extent::Calls(calls) if !self.work.repeats() => {
                self.write(site, &name, 0..calls).await?
            }
            _ => self.shared(site).await?,
        };
        rested(&site.server, self.scope.rest).await;
        let before = cpu(site.server.pid());
        let outcome = self.ghz(site, &data, connections, pace, extent)?;
        let cpu = cpu(site.server.pid()).saturating_sub(before);
        if !self.work.repeats() {
            fs::remove_file(&data).ok();
        }
        let how = (connections, pace);
        Ok(Row::new(self.work, site.name, how, outcome, cpu))
    }

    fn ghz(
        &self,
        site: &TestServer,
        data: &Path,
        connections: usize,
        pace: Loop,
        extent: Extent,
    ) -> Result<Outcome> {
        let run = Run {
            config: self.work.config(),
            address: site.server.address(),
            data,
            connections,
            pace,
            extent,
        };
        // Blocks this thread, which is harmless: no other task runs meanwhile, and the runtime has other threads.
        run.run(self.scope.ghz)
    }

    /// Estimates the rate of calls per second with a pilot run.
    async fn pilot(&mut self, site: &TestServer, name: &str, connections: usize) -> Result<f64> {
        let pilot = PILOT.max(connections).min(self.work.most());
        let file = if self.work.repeats() {
            self.shared(site).await?
        } else {
            let name = format!("{name}-pilot");
            self.write(site, &name, 0..pilot).await?
        };
        let extent = Extent::Calls(pilot);
        let outcome = self.ghz(site, &file, connections, Loop::Closed, extent)?;
        Ok(rate(outcome.ok, outcome.took))
    }

    /// Returns the number of calls that fit into the duration.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of calls"
    )]
    fn fitting(&self, a_second: f64, least: usize) -> usize {
        let calls = (a_second * self.scope.time.as_secs_f64()) as usize;
        calls.max(least).min(self.work.most())
    }

    /// Creates repeatable requests once per server, and returns their file.
    async fn shared(&mut self, site: &TestServer) -> Result<PathBuf> {
        if let Some(file) = self.files.get(site.name) {
            return Ok(file.clone());
        }
        let name = format!("{}-{}", self.work.name, site.name);
        let file = self.write(site, &name, 0..0).await?;
        self.files.insert(site.name, file.clone());
        Ok(file)
    }

    async fn write(
        &self,
        site: &TestServer,
        name: &str,
        numbers: std::ops::Range<usize>,
    ) -> Result<PathBuf> {
        let file = self.scope.data.join(name).with_extension("bin");
        let bytes = requests(self.work, site, name, (numbers, self.scope.read)).await?;
        fs::write(&file, bytes).context("requests could not be written down")?;
        Ok(file)
    }
}
