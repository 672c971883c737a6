//! Samples values that cannot be read during a scrape, because they need disk or store access.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use palimpsest_engine::clock::Clock;
use palimpsest_store::{DueQuery, Store};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Metrics;

/// The sampling interval. Disks fill over minutes, and scrapes are not more frequent.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// The marker for a value without a sample.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Samples {
    store: AtomicU64,
    disk_free: AtomicU64,
    disk: AtomicU64,
    summary_lag_ms: AtomicU64,
}

impl Default for Samples {
    fn default() -> Self {
        let unknown = || AtomicU64::new(UNKNOWN);
        Self {
            store: unknown(),
            disk_free: unknown(),
            disk: unknown(),
            summary_lag_ms: unknown(),
        }
    }
}

fn known(value: &AtomicU64) -> Option<u64> {
    Some(value.load(Relaxed)).filter(|value| *value != UNKNOWN)
}

impl Samples {
    pub(super) fn store_bytes(&self) -> Option<u64> {
        known(&self.store)
    }

    pub(super) fn disk_free_bytes(&self) -> Option<u64> {
        known(&self.disk_free)
    }

    pub(super) fn disk_bytes(&self) -> Option<u64> {
        known(&self.disk)
    }

    pub(super) fn summary_lag_ms(&self) -> Option<u64> {
        known(&self.summary_lag_ms)
    }
}

/// The background task that takes samples.
#[derive(Debug)]
pub struct Sampler {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Sampler {
    /// Starts sampling the store in `data_dir` and the log's work queue.
    pub fn start(
        metrics: &Metrics,
        log: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        (data_dir, log_dir): (PathBuf, PathBuf),
    ) -> Self {
        let samples = Arc::new(Samples::default());
        metrics.observe_samples(&samples);
        let stop = CancellationToken::new();
        let end = stop.clone();
        let task = tokio::spawn(async move {
            let looking = async {
                loop {
                    sample(&samples, &log, &*clock, (&data_dir, &log_dir)).await;
                    sleep(SAMPLE_INTERVAL).await;
                }
            };
            end.run_until_cancelled(looking).await;
        });
        Self { stop, task }
    }

    /// Stops the task and releases the log, before the log is closed.
    pub async fn stop(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("the measurement of the store's size panicked");
        }
    }
}

async fn sample(
    samples: &Arc<Samples>,
    log: &Arc<dyn Store>,
    clock: &dyn Clock,
    (data_dir, log_dir): (&Path, &Path),
) {
    let now = clock.now();
    // A failing store is already reported by the canary.
    if let Ok(due) = log.due(DueQuery::ALL, now, 1).await {
        let lag = due.first().map_or(0, |oldest| now.millis_since(oldest.at));
        samples.summary_lag_ms.store(lag, Relaxed);
    }
    let (of, data_dir, log_dir) = (Arc::clone(samples), data_dir.to_owned(), log_dir.to_owned());
    // Listing folders can block for long, so it runs outside of the async threads.
    let disk = spawn_blocking(move || {
        of.store.store(bytes_in(&log_dir, 0), Relaxed);
        if let Ok(disk) = rustix::fs::statvfs(&data_dir) {
            of.disk
                .store(disk.f_blocks.saturating_mul(disk.f_frsize), Relaxed);
            // `f_bavail` excludes the blocks that are reserved for root, unlike `f_bfree`.
            of.disk_free
                .store(disk.f_bavail.saturating_mul(disk.f_frsize), Relaxed);
        }
    });
    // The task cannot panic. It is only cancelled with the runtime.
    let _ = disk.await;
}

/// Returns the size of the files in a folder. The depth is limited, because the store has only two levels.
fn bytes_in(folder: &Path, depth: usize) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(of) if of.is_dir() && depth < 4 => bytes_in(&entry.path(), depth + 1),
        Ok(of) if of.is_file() => of.len(),
        // The file was removed in the meantime.
        _ => 0,
    };
    entries.map(size).sum()
}
