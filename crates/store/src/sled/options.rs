//! The settings of the sled engine, and their defaults.

use std::path::PathBuf;

use super::batch::PendingWrites;
use super::queued::OptionalObserver;
use crate::StoreId;

/// The settings for opening a store.
#[derive(Debug, Clone)]
pub struct SledOptions {
    /// The data directory, used by this store alone. It must not be a mount point, so that it can be
    /// renamed.
    pub dir: PathBuf,
    /// The size of sled's cache, in bytes. Default: 48 MiB. sled's own default is 1 GiB.
    pub cache_bytes: u64,
    /// The interval of sled's background flush, in milliseconds. Default: 200. It does not affect
    /// durability, but sled reuses disk space only after a flush.
    pub flush_every_ms: u64,
    /// The free disk space below which the store rejects writes, in bytes. Default: 64 MiB.
    pub min_free_bytes: u64,
    /// The receiver of latency measurements. Default: none.
    pub observers: OptionalObserver,
    /// A counter of the changes in flight. A sync waits briefly for those that have not arrived. Default:
    /// none.
    pub pending_writes: PendingWrites,
    /// The identity of a new store. Default: random.
    pub id: Option<StoreId>,
    /// True if a corrupt store is quarantined, so that the next start does not fail on it again. Default:
    /// true.
    pub quarantines_damaged: bool,
}

impl SledOptions {
    /// Returns the default settings for a store in `dir`. The defaults are based on measurements.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            cache_bytes: 48 << 20,
            flush_every_ms: 200,
            // sled needs space for its own writes after the last accepted group.
            min_free_bytes: 64 << 20,
            observers: OptionalObserver::default(),
            pending_writes: PendingWrites::default(),
            id: None,
            quarantines_damaged: true,
        }
    }
}
