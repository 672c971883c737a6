//! Measures the service over gRPC. The limit is an empty service with the same requests, reply sizes and callers, in
//! alternating rounds. Durable calls have the engine as a second limit, and the slower one applies.

mod client;
mod empty;
mod engine;
mod sample;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use palimpsest_load::figures::{rate, short};
use palimpsest_load::requests::requests;
use palimpsest_load::settle::rested;
use palimpsest_load::test_server::{TestServer, cpu};
use palimpsest_load::workloads::{WORKS, Workload, WorkloadKind};
use palimpsest_store::Batch;
use palimpsest_tests::cores::{Cores, busy};
use tokio::runtime::Runtime;

use self::client::{Callers, Outcome, Requests};
use self::empty::Empty;
use self::engine::{Engine, Shown};
use crate::row::{CALLS, Row, Spread, Target};

/// Number of connections, and of concurrent calls on each.
const CONNECTIONS: usize = 8;
const AT_ONCE: usize = 8;
/// The target: the minimum ratio of the service to its limit.
const WANTED: f64 = 0.7;

/// The measured works, by their names in `make load`.
struct Measured {
    work: &'static str,
    is_durable: bool,
    target: Target,
}

const MEASURED: [Measured; 5] = [
    measured("snip", true, Target::AtLeast(WANTED)),
    measured("memory", false, Target::AtLeast(WANTED)),
    measured("persist-20k", true, Target::AtLeast(WANTED)),
    measured("append-json-1k", true, Target::AtLeast(WANTED)),
    measured("prepare-delta-1k", false, Target::None),
];

const fn measured(work: &'static str, is_durable: bool, target: Target) -> Measured {
    Measured {
        work,
        is_durable,
        target,
    }
}

impl Measured {
    fn work(&self) -> Result<&'static Workload> {
        let found = WORKS.iter().find(|work| work.name == self.work);
        found.with_context(|| format!("{} is no work of make load", self.work))
    }
}

/// The size of the measurement.
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// Number of sessions that reads use in turn. Equal to the number of callers, so that no caller waits for another.
    pub(crate) read: usize,
    pub(crate) time: Duration,
    /// Time for a server to complete background work after a round.
    pub(crate) rest: Duration,
    /// Minimum number of requests for works whose requests can be sent only once.
    pub(crate) least: usize,
    /// The same minimum for snips. A session allows 254 snips, and at least as many sessions as callers are needed.
    pub(crate) least_snips: usize,
}

impl Extent {
    fn least(&self, work: &Workload) -> usize {
        match work.kind {
            WorkloadKind::Snip => self.least_snips,
            _ => self.least,
        }
    }
}

fn method(work: &Workload) -> &'static str {
    work.rpc.split(',').next().unwrap_or(work.rpc)
}

/// Measures all rows, or only that of one work. Calls `tell` with each row when it is complete.
pub(crate) fn rows(
    folder: &Path,
    cores: &Cores,
    (extent, only): (&Extent, Option<&str>),
    mut tell: impl FnMut(&Row),
) -> Result<Vec<Row>> {
    let wanted = |measured: &&Measured| only.is_none_or(|only| only == measured.work);
    let all: Vec<&Measured> = MEASURED.iter().filter(wanted).collect();
    ensure!(!all.is_empty(), "no row of make bench is of that work");
    let folder = tempfile::tempdir_in(folder).context("no folder for the servers' data")?;
    let folder = folder.path();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let durable = all.iter().filter(|measured| measured.is_durable);
    let durable = durable
        .map(|measured| measured.work())
        .collect::<Result<Vec<_>>>()?;
    let mut batches = runtime.block_on(sample::batches(folder, &durable))?;
    let site = cores.on(0, || TestServer::patient(folder))?;
    let mut rows = Vec::new();
    for measured in all {
        let work = measured.work()?;
        let engine = batches
            .remove(work.name)
            .map(|batches: Vec<Batch>| Engine::open(folder, cores, batches, CONNECTIONS * AT_ONCE));
        let mut bench = Bench::start(&runtime, (&site, folder), cores, extent, work)?;
        let row = bench.row(engine.transpose()?, measured.target)?;
        tell(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// The results of one side of a round.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    rate: f64,
    /// Utilization of the service's core.
    server: f64,
    /// Utilization of the callers' core.
    callers: f64,
    /// Processor time of the service per call, in microseconds.
    micros: f64,
}

/// A work with its empty and its real service.
struct Bench<'a> {
    runtime: &'a Runtime,
    site: &'a TestServer,
    cores: &'a Cores,
    extent: &'a Extent,
    work: &'static Workload,
    empty: Empty,
    for_real: Arc<Requests>,
    for_empty: Arc<Requests>,
    batches_made: usize,
    /// Calls per second in the previous round.
    last: f64,
}

impl<'a> Bench<'a> {
    fn start(
        runtime: &'a Runtime,
        (site, folder): (&'a TestServer, &Path),
        cores: &'a Cores,
        extent: &'a Extent,
        work: &'static Workload,
    ) -> Result<Self> {
        let made = runtime.block_on(make(work, site, 0, (extent.least(work), extent.read)))?;
        let reply = runtime.block_on(async {
            // The empty service answers with the bytes of a real reply, so both move the same amount.
            let callers = Callers::connect(site.server.address(), 1).await?;
            callers.call(&made).await
        })?;
        let empty = cores.on(0, || Empty::start(folder, method(work), &reply))?;
        Ok(Self {
            runtime,
            site,
            cores,
            extent,
            work,
            empty,
            for_empty: Arc::new(made.again()),
            for_real: Arc::new(made),
            batches_made: 1,
            last: 0.0,
        })
    }

    /// Runs alternating rounds: the empty service, the real service, and for durable works the engine and the disk.
    fn row(&mut self, mut engine: Option<Engine>, target: Target) -> Result<Row> {
        let warm_up = self.extent.time / 4;
        // The first calls of a service are slower and are not measured.
        self.side(false, warm_up)?;
        self.last = self.side(true, warm_up)?.rate;
        let (mut rounds, mut sides, mut engines) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.extent.rounds {
            self.refill()?;
            let resting = rested(&self.site.server, self.extent.rest);
            self.runtime.block_on(resting);
            let empty = self.side(false, self.extent.time)?;
            let real = self.side(true, self.extent.time)?;
            let mut limit = empty.rate;
            if let Some(engine) = &mut engine {
                let shown = engine.round(self.cores, self.extent.time)?;
                limit = limit.min(shown.rate);
                engines.push(shown);
            }
            self.last = real.rate;
            rounds.push((real.rate, limit));
            sides.push((empty, real));
        }
        let limit_is = limit_is(&sides, &engines);
        let what = format!("{}, {}", self.work.rpc, self.work.size());
        let mut row = Row::new(what, &rounds, (CALLS, limit_is), target);
        row.work = Some(self.work.name);
        Ok(beside(row, &sides, &engines))
    }

    /// Creates the requests of the next round for works whose requests can be sent only once.
    fn refill(&mut self) -> Result<()> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of calls"
        )]
        // Half as many again as in the previous round, because the next one can be faster.
        let wanted = (self.last * self.extent.time.as_secs_f64() * 1.5) as usize;
        let wanted = wanted
            .max(self.extent.least(self.work))
            .min(self.work.most());
        if self.for_real.left() >= wanted {
            return Ok(());
        }
        let making = make(
            self.work,
            self.site,
            self.batches_made,
            (wanted, self.extent.read),
        );
        self.for_real = Arc::new(self.runtime.block_on(making)?);
        self.batches_made += 1;
        Ok(())
    }

    fn side(&self, is_real: bool, time: Duration) -> Result<Side> {
        let server = &self.site.server;
        let (address, requests, pid) = if is_real {
            (server.address(), &self.for_real, server.pid())
        } else {
            (self.empty.address(), &self.for_empty, self.empty.pid())
        };
        // Opens new connections for each round, because a server may close connections that were idle during the other
        // side's turn.
        let connecting = Callers::connect(address, CONNECTIONS);
        let callers = self.runtime.block_on(connecting)?;
        let before = (busy(), cpu(pid));
        let outcome = self
            .runtime
            .block_on(callers.run(requests, AT_ONCE, time))?;
        let of_callers = busy().saturating_sub(before.0);
        let of_server = cpu(pid).saturating_sub(before.1);
        let Outcome { done, failed, took } = outcome;
        ensure!(
            failed.is_empty() && done > 0,
            "{}: {done} calls were answered, and others failed with status {failed:?}",
            self.work.name
        );
        let rate = rate(done, took);
        let part = |time: Duration| time.as_secs_f64() / took.as_secs_f64();
        Ok(Side {
            rate,
            server: part(of_server),
            callers: part(of_callers),
            micros: part(of_server) / rate * 1e6,
        })
    }
}

async fn make(
    work: &Workload,
    site: &TestServer,
    number: usize,
    (count, read): (usize, usize),
) -> Result<Requests> {
    let run = format!("bench-{}-{number}", work.name);
    let made = requests(work, site, &run, (0..count, read)).await?;
    Requests::new(method(work), made, !work.repeats())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).median
}

fn limit_is(sides: &[(Side, Side)], engines: &[Shown]) -> &'static str {
    let empty = median(sides.iter().map(|(empty, _)| empty.rate));
    if !engines.is_empty() && median(engines.iter().map(|shown| shown.rate)) < empty {
        "engine alone"
    } else {
        "empty service"
    }
}

/// Adds the other results of the rounds to the row.
fn beside(row: Row, sides: &[(Side, Side)], engines: &[Shown]) -> Row {
    let of_empty = |get: fn(&Side) -> f64| median(sides.iter().map(|(empty, _)| get(empty)));
    let of_real = |get: fn(&Side) -> f64| median(sides.iter().map(|(_, real)| get(real)));
    let mut row = row
        .beside(format!(
            "empty service {}/s; its core busy {:.2}, the callers' {:.2}; processor {:.0} µs a call",
            short(of_empty(|side| side.rate)),
            of_empty(|side| side.server),
            of_empty(|side| side.callers),
            of_empty(|side| side.micros),
        ))
        .beside(format!(
            "this service  {}/s; its core busy {:.2}, the callers' {:.2}; processor {:.0} µs a call",
            short(of_real(|side| side.rate)),
            of_real(|side| side.server),
            of_real(|side| side.callers),
            of_real(|side| side.micros),
        ));
    if !engines.is_empty() {
        let of = |get: fn(&Shown) -> f64| median(engines.iter().map(get));
        row = row.beside(format!(
            "engine alone {}/s, {:.1} appends a sync; the disk alone, as much a sync, {}/s",
            short(of(|shown| shown.rate)),
            of(|shown| shown.a_sync),
            short(of(|shown| shown.raw)),
        ));
    }
    row
}
