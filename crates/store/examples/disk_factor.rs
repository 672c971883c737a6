//! Benchmark of the sled engine: disk usage per appended byte, appends per second, and the time to open
//! a large store. Run it in release mode. The results depend on the disk.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement reads the clock and prints what it found"
)]

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_conformance::bytes;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::sled::{SledLog, SledOptions, compact_store};
use palimpsest_store::{Batch, DueChange, Position, SessionLog, Store as _};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const RUN: Duration = Duration::from_secs(3);

fn key(number: usize) -> Result<SessionKey> {
    Ok(SessionKey::parse(&format!(
        "projects/p/sessions/session-{number:08}"
    ))?)
}

fn batch(expected: Position, seed: u64, len: usize) -> Batch {
    Batch {
        expected,
        events: NonZeroU32::MIN,
        frame: bytes(seed, len),
        list_row: bytes(seed, 80),
        parent: None,
        due: DueChange::At(Timestamp::from_millis(i64::try_from(seed).unwrap_or(0))),
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

fn open(dir: &Path) -> Result<Arc<SledLog>> {
    Ok(Arc::new(SledLog::open(&SledOptions::new(dir))?))
}

/// Runs writers that append to sessions of their own. Each stops after `appends` appends or after
/// `RUN`.
async fn append_all(
    log: &Arc<SledLog>,
    writers: usize,
    appends: u64,
    len: usize,
) -> Result<(u64, Duration)> {
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let (log, key) = (Arc::clone(log), key(writer)?);
        tasks.push(tokio::spawn(async move {
            let mut at = Position::START;
            while at.revision.get() < appends && (appends < u64::MAX || begun.elapsed() < RUN) {
                let seed = at.revision.get() << 20 | writer as u64;
                at = log.append(&key, batch(at, seed, len)).await?;
            }
            Ok::<_, palimpsest_store::StoreError>(at.revision.get())
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok((done, begun.elapsed()))
}

#[expect(clippy::cast_precision_loss, reason = "ratios for people")]
async fn factors(root: &Path) -> Result<()> {
    println!("bytes on disk for each byte appended (20 sessions):");
    for (len, appends) in [(1024, 2000), (4096, 600), (20_480, 120), (307_200, 8)] {
        let dir = root.join(format!("factor-{len}"));
        let log = open(&dir)?;
        let (done, took) = append_all(&log, 20, appends, len).await?;
        let written = log.stats().bytes;
        log.close().await?;
        drop(log);
        let appended = done as f64 * len as f64;
        let disk = fs::metadata(dir.join("db"))?.len() as f64;
        let copied = compact_store(
            &dir,
            &root.join(format!("copy-{len}")),
            &root.join(format!("old-{len}")),
        )?;
        println!(
            "  frames of {len:>6} B: {:.2} as written, {:.2} after compact-store \
             ({:.1} MB appended, {:.2} given to sled, {:.0} MB/s)",
            disk / appended,
            copied.to_disk_bytes as f64 / appended,
            appended / 1e6,
            written as f64 / appended,
            appended / 1e6 / took.as_secs_f64(),
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
async fn rates(root: &Path) -> Result<()> {
    let raw = raw_syncs(&root.join("raw"))?;
    println!("one file, 4 KiB write + fdatasync: {raw:.0}/s");
    for len in [1024, 20_480] {
        for writers in [1, 16, 100] {
            let log = open(&root.join(format!("rate-{len}-{writers}")))?;
            let (done, took) = append_all(&log, writers, u64::MAX, len).await?;
            let stats = log.stats();
            println!(
                "  frames of {len:>5} B, {writers:>3} sessions at once: {:>6.0} appends/s, \
                 {:.1} a sync, largest group {}, last sync {} us",
                done as f64 / took.as_secs_f64(),
                stats.commits as f64 / stats.groups as f64,
                stats.largest_group,
                stats.last_sync_micros,
            );
            log.close().await?;
        }
    }
    Ok(())
}

fn raw_syncs(path: &Path) -> Result<f64> {
    let mut file = File::create(path)?;
    let begun = Instant::now();
    let mut syncs = 0_u32;
    while begun.elapsed() < RUN / 3 {
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / begun.elapsed().as_secs_f64())
}

async fn opening(root: &Path, sessions: usize) -> Result<()> {
    let dir = root.join("many");
    let log = open(&dir)?;
    let mut next = 0;
    while next < sessions {
        let mut tasks = Vec::new();
        for number in next..(next + 1000).min(sessions) {
            let (log, key) = (Arc::clone(&log), key(number)?);
            tasks.push(tokio::spawn(async move {
                let mut at = Position::START;
                for _ in 0..3 {
                    at = log.append(&key, batch(at, number as u64, 1024)).await?;
                }
                Ok::<_, palimpsest_store::StoreError>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        next += 1000;
    }
    // Copy the files before the store is closed, as a killed process would leave them.
    let killed = root.join("killed");
    fs::create_dir(&killed)?;
    fs::create_dir(killed.join("blobs"))?;
    for file in ["db", "conf", "mark"] {
        fs::copy(dir.join(file), killed.join(file))?;
    }
    log.close().await?;
    drop(log);
    let megabytes = fs::metadata(dir.join("db"))?.len() >> 20;
    println!("{sessions} sessions of 3 frames of 1 KiB, {megabytes} MiB on disk:");
    for (what, dir) in [
        ("first open after the run that wrote it all", &dir),
        ("second open", &dir),
        ("first open after a kill", &killed),
        ("second open after that", &killed),
    ] {
        let begun = Instant::now();
        let log = open(dir)?;
        let opened = begun.elapsed();
        let found = log.head(&key(sessions - 1)?).await?;
        println!("  {what}: {opened:.0?}, head read {:.0?}", begun.elapsed());
        if found.is_none() {
            return Err("the last session is missing".into());
        }
        log.close().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let root = tempfile::tempdir_in(std::env::args().nth(1).unwrap_or_else(|| ".".into()))?;
    factors(root.path()).await?;
    rates(root.path()).await?;
    opening(root.path(), 100_000).await
}
