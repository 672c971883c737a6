//! Measures the start of a server with many sessions on disk: the time until it is ready and its idle memory. The limit
//! is the time to open the store.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use palimpsest_load::figures::{count, megabytes, short};
use palimpsest_load::sessions;
use palimpsest_server::LOG_FOLDER;
use palimpsest_store::Store as _;
use palimpsest_store::sled::{SledLog, SledOptions};

use crate::row::{Figure, MILLIS, Row, Target, figure};

const READY_MS: f64 = 2_000.0;
/// Target of the memory of an idle server.
const MEMORY_MB: f64 = 200.0;
const MEGABYTES: &str = "MB";
/// Number of times that the store alone is opened.
const OPENS: usize = 3;

/// Measures the rows of a server with `number` sessions.
pub(crate) fn rows(folder: &Path, number: usize, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir_in(folder).context("no folder for the server's data")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let numbers = [1, number];
    let running = sessions::run(folder.path(), &numbers, |_| {});
    let crowds = runtime.block_on(running)?;
    let (one, many) = crowds.first().zip(crowds.last()).context("no sessions")?;
    let opened = runtime.block_on(open(folder.path()))?;
    let sessions = count(number as u64);
    let started = Row::new(
        format!("start with {sessions} sessions, ready"),
        &[(many.ready_ms, READY_MS)],
        (MILLIS, ""),
        Target::AtMost(1.0),
    )
    .beside(format!(
        "with one session {}; opening the store alone takes {}",
        told(figure(one.ready_ms, MILLIS)),
        told(figure(opened, MILLIS)),
    ));
    let resident = megabytes(many.resident);
    let memory = Row::new(
        "memory then, while nothing goes on",
        &[(resident, MEMORY_MB)],
        (MEGABYTES, ""),
        Target::AtMost(1.0),
    )
    .beside(format!(
        "with one session {} MB; without mapped files {} MB, with one session {} MB",
        short(megabytes(one.resident)),
        short(megabytes(many.own)),
        short(megabytes(one.own)),
    ));
    let rows = vec![started, memory];
    rows.iter().for_each(&mut tell);
    Ok(rows)
}

/// Returns the median time to open the store alone, in milliseconds.
async fn open(data: &Path) -> Result<f64> {
    let options = SledOptions::new(data.join(LOG_FOLDER));
    let mut times = Vec::new();
    for _ in 0..OPENS {
        let began = Instant::now();
        let log = SledLog::open(&options)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        log.close().await?;
    }
    times.sort_by(f64::total_cmp);
    times.get(OPENS / 2).copied().context("it was not opened")
}

fn told(figure: Figure) -> String {
    format!("{} {}", short(figure.value), figure.unit)
}
