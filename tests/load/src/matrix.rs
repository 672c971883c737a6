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
use palimpsest_load::site::{Site, cpu};
use palimpsest_load::works::{WORKS, Work};

/// What an open loop offers, of what the same method answered in a closed one.
const OFFERED_PERCENT: u32 = 50;
/// How many connections find out how many calls there can be where no closed loop is run.
const FEW: usize = 16;
/// How many connections an open loop has, unless it has fewer calls.
const MANY: usize = 200;
/// So many calls tell how many fit into the time.
const PILOT: usize = 24;
/// The least calls of an open loop.
const LEAST: usize = 8;
/// From here on a closed loop ends by its time.
const BY_TIME: Duration = Duration::from_secs(1);

/// How much is run.
pub(crate) struct Scope<'a> {
    pub(crate) ghz: &'a Path,
    /// Where requests are put.
    pub(crate) data: &'a Path,
    pub(crate) time: Duration,
    /// How long a server may work off what the run before left in the background.
    pub(crate) rest: Duration,
    /// How many sessions are read from, in turn.
    pub(crate) read: usize,
    /// The numbers of connections of closed loops, the largest last.
    pub(crate) closed: &'a [usize],
    /// A part of the names of runs.
    pub(crate) only: Option<&'a str>,
    /// Calls a second of open loops, instead of a part of what closed ones did.
    pub(crate) rate: Option<u32>,
}

impl Scope<'_> {
    fn wants(&self, run: &str) -> bool {
        self.only.is_none_or(|part| run.contains(part))
    }

    /// Whether anything is run at all.
    pub(crate) fn wants_any(&self) -> bool {
        WORKS.iter().any(|work| {
            let closed = self.closed.iter().map(|many| closed(work, *many));
            closed.chain([open(work)]).any(|run| self.wants(&run))
        })
    }
}

/// The names of runs.
fn closed(work: &Work, connections: usize) -> String {
    format!("{}/closed-{connections}", work.name)
}

fn open(work: &Work) -> String {
    format!("{}/open", work.name)
}

/// Runs all of it; tells of each row as it comes.
pub(crate) async fn run(
    scope: &Scope<'_>,
    patient: &Site,
    by_default: &Site,
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
            // There are fewer sessions to compact than that.
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
                // Nobody has looked yet how many there can be.
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
    work: &'a Work,
    /// Requests that may come again, by their server.
    files: BTreeMap<&'static str, PathBuf>,
}

impl Runner<'_> {
    async fn measure(&mut self, site: &Site, connections: usize, pace: Loop) -> Result<Row> {
        let name = format!("{}-{connections}-{}", self.work.name, site.name);
        let (connections, extent) = match pace {
            Loop::Open(rate) => {
                let calls = self.fitting(f64::from(rate), LEAST);
                (connections.min(calls), Extent::Calls(calls))
            }
            // The time counts from before there are connections: a short one would be over too soon.
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
        site: &Site,
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
        // Nothing else goes on in this process meanwhile, and the runtime has threads to spare.
        run.run(self.scope.ghz)
    }

    /// How many calls a second there are going to be.
    async fn pilot(&mut self, site: &Site, name: &str, connections: usize) -> Result<f64> {
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

    /// As many calls as fit into the time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of calls"
    )]
    fn fitting(&self, a_second: f64, least: usize) -> usize {
        let calls = (a_second * self.scope.time.as_secs_f64()) as usize;
        calls.max(least).min(self.work.most())
    }

    /// Requests that may come again are made once for a server.
    async fn shared(&mut self, site: &Site) -> Result<PathBuf> {
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
        site: &Site,
        name: &str,
        numbers: std::ops::Range<usize>,
    ) -> Result<PathBuf> {
        let file = self.scope.data.join(name).with_extension("bin");
        let bytes = requests(self.work, site, name, (numbers, self.scope.read)).await?;
        fs::write(&file, bytes).context("requests could not be written down")?;
        Ok(file)
    }
}
