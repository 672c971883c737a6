//! Runs the load test and writes a report: every call of the hot path with ghz, simulated agents, long transcripts and
//! many sessions.
//!
//! `make load` runs this program. `tests/load/README.md` describes each run.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it prints what it measures, by the machine's clock"
)]

mod ghz;
mod growth;
mod matrix;
mod mix;
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::matrix::Scope;
use crate::report::Report;
use palimpsest_load::test_server::TestServer;
use palimpsest_load::{machine, sessions, settle};

/// Puts a server under load, prints a table and writes a report.
#[derive(Debug, Parser)]
struct Options {
    /// Folder of the report, the plots and, during the run, the servers' data.
    #[arg(long, default_value = "target/load", value_name = "FOLDER")]
    out: PathBuf,
    /// Duration of each run, in seconds.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Runs everything in about a minute. Do not quote these figures.
    #[arg(long)]
    quick: bool,
    /// Runs only names that contain this text: append-json-1k, append-json-1k/closed-200, append-json-1k/open, prepare,
    /// mix, growth, sessions.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Calls per second of the open loops of ghz. Default: half the rate of the closed loops of the same call.
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// A file of measured limits in calls per second, by the names of works: {"append-json-1k": 9000}.
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
}

/// The variable that names the server's binary for the test harness.
const BINARY: &str = "PALIMPSEST_TEST_BINARY";

/// The sizes of all parts.
struct Extent {
    seconds: f64,
    warm_up: f64,
    rest: f64,
    closed: &'static [usize],
    read: usize,
    lengths: &'static [usize],
    calls: usize,
    sessions: &'static [usize],
    /// Duration of the mix, as a multiple of the duration of a run.
    times: f64,
}

const WHOLE: Extent = Extent {
    seconds: 3.0,
    warm_up: 2.0,
    rest: 20.0,
    closed: &[1, 16, 200],
    read: 32,
    lengths: &[10, 100, 1_000, 10_000, 30_000],
    calls: 150,
    sessions: &[1, 100, 1_000, 10_000, 100_000],
    times: 6.0,
};

const QUICK: Extent = Extent {
    seconds: 0.4,
    warm_up: 0.2,
    rest: 1.0,
    closed: &[16],
    read: 8,
    lengths: &[10, 1_000],
    calls: 40,
    sessions: &[1, 100, 1_000],
    times: 4.0,
};

fn main() -> Result<()> {
    let options = Options::parse();
    if std::env::var_os(BINARY).is_none_or(|file| !Path::new(&file).is_file()) {
        bail!("{BINARY} has to name the server to start, such as target/release/palimpsest");
    }
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    let report = runtime.block_on(load(&options))?;
    report.write(&options.out)?;
    println!("\n{}\n", report::print(&report));
    println!("{}", options.out.join("report.html").display());
    let failed = report.failed();
    if failed > 0 {
        bail!("{failed} calls failed: results.json says how");
    }
    Ok(())
}

async fn load(options: &Options) -> Result<Report> {
    let mut extent = if options.quick { QUICK } else { WHOLE };
    if let Some(seconds) = options.seconds {
        if !(0.1..=86_400.0).contains(&seconds) {
            bail!("--seconds is {seconds} and has to be between 0.1 and 86400");
        }
        extent.seconds = seconds;
    }
    fs::create_dir_all(&options.out).context("no folder for the report")?;
    let out = fs::canonicalize(&options.out).context("no folder for the report")?;
    let mut report = Report {
        when: jiff::Timestamp::now()
            .strftime("%Y-%m-%d %H:%M UTC")
            .to_string(),
        machine: machine::machine(),
        binary: machine::version()?,
        seconds: extent.seconds,
        quick: options.quick,
        ..Report::default()
    };
    let wanted = |name: &str| {
        options
            .only
            .as_deref()
            .is_none_or(|part| name.contains(part))
    };
    calls(options, &extent, &out, &mut report).await?;
    if wanted("growth") {
        println!("growth: sessions of {:?} messages", extent.lengths);
        report.growth = growth::run(&out, extent.lengths, extent.calls).await?;
    }
    if wanted("sessions") {
        let folder = tempfile::tempdir_in(&out).context("no folder for the server's data")?;
        report.sessions = sessions::run(folder.path(), extent.sessions, |row| {
            println!(
                "sessions: {:>7} ready after {:.0} ms",
                row.sessions, row.ready_ms
            );
        })
        .await?;
    }
    if report.rows.is_empty()
        && report.mix.is_empty()
        && report.growth.is_empty()
        && report.sessions.is_empty()
    {
        bail!(
            "--only {} names no run",
            options.only.as_deref().unwrap_or_default()
        );
    }
    Ok(report)
}

/// Measures the runs of ghz and the mix, which share their servers.
async fn calls(options: &Options, extent: &Extent, out: &Path, report: &mut Report) -> Result<()> {
    let only = options.only.as_deref();
    let mix = only.is_none_or(|part| "mix".contains(part));
    let ghz = ghz::place();
    let limits = limits(options.limits.as_deref())?;
    let data = tempfile::tempdir_in(out).context("no folder for requests")?;
    let scope = Scope {
        ghz: &ghz,
        data: data.path(),
        time: Duration::from_secs_f64(extent.seconds),
        closed: extent.closed,
        rest: Duration::from_secs_f64(extent.rest),
        read: extent.read,
        only,
        rate: options.rate,
    };
    // The mix needs no ghz, so a missing ghz matters only for the runs that use it.
    match scope.wants_any() {
        true if !ghz.exists() => {
            bail!("{} is not there: run scripts/install-tools", ghz.display())
        }
        false if !mix => return Ok(()),
        _ => {}
    }
    let (patient, by_default) = (
        TestServer::patient(out)?,
        TestServer::default_settings(out)?,
    );
    for site in [&patient, &by_default] {
        mix::warm_up(site, Duration::from_secs_f64(extent.warm_up)).await?;
    }
    report.rows = matrix::run(&scope, &patient, &by_default, |row| {
        println!("{}", report::line(row));
    })
    .await?;
    for row in &mut report.rows {
        row.limit = limits.get(row.name).copied();
    }
    if mix {
        println!("mix: agents at work");
        for site in [&patient, &by_default] {
            settle::rested(&site.server, scope.rest).await;
        }
        let times = (
            Duration::from_secs_f64(extent.seconds * 2.0),
            Duration::from_secs_f64(extent.seconds * extent.times),
        );
        report.mix = mix::run(&patient, &by_default, times).await?;
    }
    Ok(())
}

/// Reads measured limits, by the names of works.
fn limits(file: Option<&Path>) -> Result<BTreeMap<String, f64>> {
    let Some(file) = file else {
        return Ok(BTreeMap::new());
    };
    let text = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is no object of names and numbers", file.display()))
}
