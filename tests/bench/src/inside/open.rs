//! Measures a cold open: the time until a session that is not in memory can be used. The limit is the time to read its
//! log. Also measures the session's memory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_load::figures::{count, grouped, short};
use palimpsest_store::Store;
use palimpsest_store::sled::{SledLog, SledOptions};
use serde::Deserialize;

use super::Extent;
use crate::row::{BYTES, MILLIS, Row, Spread, Target};
use palimpsest_bench::in_process::{InProcessServer, message, name};

const OPEN_MS: f64 = 20.0;
/// Maximum memory of a loaded session: a factor of its view's bytes, plus bytes per message, plus a constant.
const OF_VIEW: f64 = 1.5;
const A_MESSAGE: f64 = 256.0;
const AT_ALL: f64 = 65_536.0;
/// The id of the long session.
const SESSION: &str = "cold";

/// The output of the counting program.
#[derive(Debug, Deserialize)]
struct Weighed {
    view_bytes: f64,
    messages: u32,
    loaded_bytes: f64,
    idle_sessions: f64,
    idle_bytes: f64,
}

/// Measures a long session that was appended turn by turn, as agents do: two messages per call.
pub(super) async fn rows(extent: &Extent, folder: &Path) -> Result<Vec<Row>> {
    let options = SledOptions::new(folder.join("open"));
    let log: Arc<dyn Store> = Arc::new(SledLog::open(&options)?);
    let etag = fill(Arc::clone(&log), extent.long).await?;
    let opened = open(extent, &log, &etag).await?;
    log.close().await?;
    drop(log);
    let [loaded, idle] = weighed(&options.dir, u32::try_from(extent.long)?)?;
    Ok(vec![opened, loaded, idle])
}

async fn fill(log: Arc<dyn Store>, messages: usize) -> Result<Bytes> {
    let server = InProcessServer::new(log)?;
    let mut etag = Bytes::new();
    for turn in 0..messages / 2 {
        let said = vec![message(2 * turn), message(2 * turn + 1)];
        etag = server.prepare(&name(SESSION), said, &etag).await?.0.etag;
    }
    Ok(etag)
}

async fn open(extent: &Extent, log: &Arc<dyn Store>, etag: &[u8]) -> Result<Row> {
    let key = SessionKey::parse(&name(SESSION))?;
    let (mut rounds, mut deltas, mut wholes, mut reads) = (vec![], vec![], vec![], vec![]);
    for _ in 0..extent.rounds {
        // Each round has a new server, which has no session in memory.
        let server = InProcessServer::new(Arc::clone(log))?;
        let began = Instant::now();
        server.sessions.read(&key, |_| ()).await?;
        rounds.push((began.elapsed().as_secs_f64() * 1e3, OPEN_MS));
        let (_, took) = server.prepare(&name(SESSION), vec![], etag).await?;
        deltas.push(took.as_secs_f64() * 1e3);
        let (_, took) = server.prepare(&name(SESSION), vec![], b"unknown").await?;
        wholes.push(took.as_secs_f64() * 1e3);
        let began = Instant::now();
        let head = log.head(&key).await?.context("it is not there")?;
        let snapshot = log.snapshot(&key, head.incarnation).await?;
        let after = snapshot.map_or(Revision::new(0), |snapshot| snapshot.at);
        let tail = log
            .read(&key, head.position().at(after), usize::MAX)
            .await?;
        reads.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(head.tail_bytes == 0 || !tail.is_empty(), "there is no tail");
    }
    let of = |times: Vec<f64>| short(Spread::of(times).median);
    let what = format!("cold open, {} messages", count(extent.long as u64));
    let row = Row::new(what, &rounds, (MILLIS, "in process"), Target::AtMost(1.0));
    Ok(row.beside(format!(
        "reading its snapshot and its log's end alone: {} ms; after the open a delta: {} ms, then all of the view: {} ms",
        of(reads),
        of(deltas),
        of(wholes),
    )))
}

/// Counts the memory of sessions in a separate program, because counting slows down allocations.
fn weighed(folder: &Path, messages: u32) -> Result<[Row; 2]> {
    let program = std::env::current_exe()?.with_file_name("palimpsest-weigh");
    let done = Command::new(&program)
        .arg(folder)
        .arg(SESSION)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{} does not start", program.display()))?;
    ensure!(
        done.status.success(),
        "what sessions take could not be counted"
    );
    let counted: Weighed = serde_json::from_slice(&done.stdout)?;
    ensure!(counted.messages == messages, "another session was counted");
    let limit = OF_VIEW * counted.view_bytes + A_MESSAGE * f64::from(messages) + AT_ALL;
    let what = format!(
        "memory of a loaded session, {} messages",
        count(messages.into())
    );
    let target = Target::AtMost(1.0);
    let loaded = Row::new(
        what,
        &[(counted.loaded_bytes, limit)],
        (BYTES, "1.5 × view + 256 B a message + 64 KiB"),
        target,
    );
    let idle = Row::new(
        "memory of an idle session",
        &[(counted.idle_bytes / counted.idle_sessions, 1.0)],
        (BYTES, "nothing: less than this"),
        target,
    );
    Ok([
        loaded.beside(format!(
            "its view has {} bytes",
            grouped(counted.view_bytes)
        )),
        idle.beside(format!(
            "counted over {} sessions that were loaded and let go",
            grouped(counted.idle_sessions)
        )),
    ])
}
