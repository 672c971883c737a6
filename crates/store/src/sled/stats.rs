//! Counters of the engine, cheap enough for every metrics scrape.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The activity of the engine since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// The number of durable changes. One append is one change.
    pub commits: u64,
    /// The number of groups, each with one sync. `commits / groups` shows the benefit of group commit.
    pub groups: u64,
    /// The number of applied batches. Larger than the number of groups if large writes were staged.
    pub batches: u64,
    /// The size of the keys and values in all batches, in bytes.
    pub bytes: u64,
    /// The number of changes in the largest group.
    pub largest_group: u64,
    /// The number of changes in the queue. A queue that stays full means that the disk is too slow.
    pub queue_depth: u64,
    /// The duration of the last sync, in microseconds. It is the lower bound of an append's latency.
    pub last_sync_micros: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    groups: AtomicU64,
    batches: AtomicU64,
    bytes: AtomicU64,
    largest_group: AtomicU64,
    queue_depth: AtomicU64,
    last_sync_micros: AtomicU64,
}

impl Counters {
    pub(super) fn count_queued(&self) {
        // Relaxed ordering is enough: the counters are independent and used for metrics only.
        self.queue_depth.fetch_add(1, Relaxed);
    }

    pub(super) fn count_unqueued(&self, jobs: usize) {
        self.queue_depth.fetch_sub(jobs as u64, Relaxed);
    }

    pub(super) fn count_applied(&self, bytes: usize) {
        self.batches.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn count_synced(&self, commits: usize, micros: u64) {
        self.commits.fetch_add(commits as u64, Relaxed);
        self.groups.fetch_add(1, Relaxed);
        self.largest_group.fetch_max(commits as u64, Relaxed);
        self.last_sync_micros.store(micros, Relaxed);
    }

    pub(super) fn read(&self) -> EngineStats {
        EngineStats {
            commits: self.commits.load(Relaxed),
            groups: self.groups.load(Relaxed),
            batches: self.batches.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            largest_group: self.largest_group.load(Relaxed),
            queue_depth: self.queue_depth.load(Relaxed),
            last_sync_micros: self.last_sync_micros.load(Relaxed),
        }
    }
}
