//! What the engine counts about itself, cheap enough to be read by every scrape.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the engine has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// Changes that were made durable; one append is one.
    pub commits: u64,
    /// Groups of them, each with one sync: commits / groups is what grouping saves.
    pub groups: u64,
    /// Batches applied; more than the groups when large writes were staged.
    pub batches: u64,
    /// Bytes of keys and values in them.
    pub bytes: u64,
    /// The most changes that one group held.
    pub largest_group: u64,
    /// Changes that wait right now: a queue that stays full says that the disk is too slow.
    pub queue_depth: u64,
    /// How long the last sync took: the floor of every append's latency.
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
    pub(super) fn queued(&self) {
        self.queue_depth.fetch_add(1, Relaxed);
    }

    pub(super) fn unqueued(&self, jobs: usize) {
        self.queue_depth.fetch_sub(jobs as u64, Relaxed);
    }

    pub(super) fn applied(&self, bytes: usize) {
        self.batches.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn synced(&self, commits: usize, micros: u64) {
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
