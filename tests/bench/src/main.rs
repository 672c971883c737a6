//! Measures the speed of the service as ratios to limits of the same run. The limits are an empty service on the wire,
//! the engine, the disk, or a copy of the same view.
//!
//! `make bench` runs this program. `tests/bench/README.md` explains the table. A slow run does not fail.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it prints what it measures, by the machine's clock"
)]

mod gateway;
mod http;
mod inside;
mod row;
mod shared;
mod start;
mod table;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use palimpsest_load::machine;
use palimpsest_tests::cores::Cores;

use crate::row::Row;
use crate::table::Figures;

/// Measures the service and its limits, and prints one table.
#[derive(Debug, Parser)]
struct Options {
    /// Folder of the figures and, during the run, of the servers' data.
    #[arg(long, default_value = "target/bench", value_name = "FOLDER")]
    out: PathBuf,
    /// Measures all rows quickly. Do not quote these figures.
    #[arg(long)]
    quick: bool,
    /// Measures only the rows of one part.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Measures only one of the rows over gRPC, by its name in `make load`. Useful with a profiler.
    #[arg(long, value_name = "WORK")]
    work: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Over gRPC, compared with an empty service.
    Wire,
    /// In process.
    Inside,
    /// The start of a server with many sessions.
    Start,
    /// The engine on PostgreSQL, compared with pgbench.
    Shared,
    /// The latency that the gateway adds.
    Gateway,
    /// The processor time of the HTTP API, compared with gRPC.
    Http,
}

/// The variable that names the server's binary for the test harness.
const BINARY: &str = "PALIMPSEST_TEST_BINARY";

/// The sizes of all parts.
struct Extent {
    wire: wire::Extent,
    inside: inside::Extent,
    sessions: usize,
    shared: shared::Extent,
    gateway: gateway::Extent,
    http: http::Extent,
}

const WHOLE: Extent = Extent {
    wire: wire::Extent {
        rounds: 7,
        read: 64,
        time: Duration::from_millis(1_200),
        rest: Duration::from_secs(10),
        least: 2_048,
        least_snips: 64 * 254,
    },
    inside: inside::Extent {
        rounds: 7,
        calls: 400,
        long: 10_000,
    },
    sessions: 100_000,
    shared: shared::Extent {
        rounds: 5,
        time: Duration::from_secs(4),
    },
    gateway: gateway::Extent {
        conversations: 64,
        tokens: 200_000,
        rounds: 5,
        requests: 3,
        interval_ms: 20,
        compactions: 8,
    },
    http: http::Extent {
        rounds: 9,
        turns: 60,
        tokens: 200_000,
    },
};

const QUICK: Extent = Extent {
    wire: wire::Extent {
        rounds: 1,
        read: 8,
        time: Duration::from_millis(80),
        rest: Duration::ZERO,
        least: 256,
        least_snips: 2 * 254,
    },
    inside: inside::Extent {
        rounds: 1,
        calls: 20,
        long: 200,
    },
    sessions: 100,
    shared: shared::Extent {
        rounds: 1,
        time: Duration::from_secs(1),
    },
    gateway: gateway::Extent {
        conversations: 4,
        tokens: 20_000,
        rounds: 1,
        requests: 2,
        interval_ms: 20,
        compactions: 1,
    },
    http: http::Extent {
        rounds: 1,
        turns: 10,
        tokens: 2_000,
    },
};

fn main() -> Result<()> {
    let options = Options::parse();
    if std::env::var_os(BINARY).is_none_or(|file| !Path::new(&file).is_file()) {
        bail!("{BINARY} has to name the server to start, such as target/release/palimpsest");
    }
    fs::create_dir_all(&options.out).context("no folder for the figures")?;
    let out = fs::canonicalize(&options.out).context("no folder for the figures")?;
    let figures = Figures {
        when: jiff::Timestamp::now()
            .strftime("%Y-%m-%d %H:%M UTC")
            .to_string(),
        machine: machine::machine(),
        binary: machine::version()?,
        quick: options.quick,
        rows: rows(&options, &out)?,
    };
    table::write(&figures, &out)?;
    println!("\n{}", table::print(&figures));
    println!("{}", options.out.join("figures.json").display());
    println!(
        "make load LIMITS={} puts these limits beside ghz's calls",
        options.out.join("limits.json").display()
    );
    Ok(())
}

fn rows(options: &Options, out: &Path) -> Result<Vec<Row>> {
    let extent = if options.quick { QUICK } else { WHOLE };
    let wanted = |part| options.only.is_none_or(|only| only == part);
    let tell = |row: &Row| println!("{}", table::line(row));
    let mut rows = Vec::new();
    if wanted(Part::Wire) {
        let cores = Cores::of_this_thread();
        if !cores.are_enough() {
            println!("Server and callers share a core: what is printed tells of both.");
        }
        // The callers run on this core, and all servers on core 0.
        cores.pin(1);
        let work = options.work.as_deref();
        rows.extend(wire::rows(out, &cores, (&extent.wire, work), tell)?);
        cores.unpin();
    }
    if wanted(Part::Inside) {
        rows.extend(inside::rows(out, &extent.inside, tell)?);
    }
    if wanted(Part::Start) {
        rows.extend(start::rows(out, extent.sessions, tell)?);
    }
    if wanted(Part::Shared) {
        rows.extend(shared::rows(&extent.shared, tell)?);
    }
    if wanted(Part::Gateway) {
        rows.extend(gateway::rows(out, &extent.gateway, tell)?);
    }
    if wanted(Part::Http) {
        rows.extend(http::rows(out, &extent.http, tell)?);
    }
    Ok(rows)
}
