//! Measures the engine alone: as many concurrent appends as callers, with the bytes that the service commits for them.
//! Also measures the disk alone: one file with a sync per group of appends.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use palimpsest_core::ids::SessionKey;
use palimpsest_load::figures::rate;
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{Batch, Position, SessionLog, StoreError};
use palimpsest_tests::cores::Cores;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A separate store and its writers.
pub(super) struct Engine {
    runtime: Runtime,
    log: Arc<SledLog>,
    /// The session and the position of each writer.
    writers: Vec<(SessionKey, Position)>,
    batches: Arc<Vec<Batch>>,
    raw: File,
    _folder: TempDir,
}

/// The results of a round.
pub(super) struct Shown {
    /// Appends per second.
    pub(super) rate: f64,
    /// Appends per sync.
    pub(super) a_sync: f64,
    /// Appends per second of a file that is synced equally often.
    pub(super) raw: f64,
}

impl Engine {
    /// Opens a store whose threads run on the server's core.
    pub(super) fn open(
        folder: &Path,
        cores: &Cores,
        batches: Vec<Batch>,
        writers: usize,
    ) -> Result<Self> {
        let folder = tempfile::tempdir_in(folder).context("no folder for a store")?;
        let (runtime, log) = cores.on(0, || {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.enable_all().build()?;
            let log = SledLog::open(&SledOptions::new(folder.path().join("log")))?;
            Ok::<_, anyhow::Error>((runtime, Arc::new(log)))
        })?;
        let key = |number| SessionKey::parse(&format!("projects/bench/sessions/writer-{number}"));
        let writers = (0..writers).map(|number| Ok((key(number)?, Position::START)));
        let writers = writers.collect::<Result<_>>()?;
        Ok(Self {
            runtime,
            log,
            writers,
            batches: Arc::new(batches),
            raw: File::create(folder.path().join("raw")).context("no file to sync")?,
            _folder: folder,
        })
    }

    /// Runs the engine for `time`, and the disk for a part of it.
    pub(super) fn round(&mut self, cores: &Cores, time: Duration) -> Result<Shown> {
        let before = self.log.stats();
        let began = Instant::now();
        let tasks = self.writers.iter().enumerate().map(|(number, writer)| {
            let (log, batches) = (Arc::clone(&self.log), Arc::clone(&self.batches));
            let (key, mut at) = writer.clone();
            self.runtime.spawn(async move {
                let mut done = 0_u64;
                // Each writer starts at another batch, so that the batches of one sync differ.
                for batch in batches.iter().cycle().skip(number) {
                    let batch = Batch {
                        expected: at,
                        ..batch.clone()
                    };
                    at = log.append(&key, batch).await?;
                    done += 1;
                    if began.elapsed() >= time {
                        break;
                    }
                }
                Ok::<_, StoreError>((at, done))
            })
        });
        let tasks = tasks.collect::<Vec<_>>();
        let mut done = 0;
        for (writer, task) in self.writers.iter_mut().zip(tasks) {
            let (at, appended) = self.runtime.block_on(task)??;
            writer.1 = at;
            done += appended;
        }
        let rate = rate(done, began.elapsed());
        let after = self.log.stats();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let a_sync =
            (after.commits - before.commits) as f64 / (after.groups - before.groups).max(1) as f64;
        let raw = cores.on(0, || self.raw_round(a_sync, time / 3))?;
        Ok(Shown { rate, a_sync, raw })
    }

    /// Writes the bytes of a group commit and syncs them, repeatedly.
    fn raw_round(&mut self, a_sync: f64, time: Duration) -> Result<f64> {
        let bytes: usize = self.batches.iter().map(|batch| batch.frame.len()).sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of bytes"
        )]
        let group = (bytes as f64 / self.batches.len() as f64 * a_sync) as usize;
        let group = vec![7; group.max(1)];
        let began = Instant::now();
        let mut syncs = 0;
        loop {
            self.raw.write_all(&group)?;
            self.raw.sync_data()?;
            syncs += 1;
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(rate(syncs, began.elapsed()) * a_sync)
    }
}
