//! The settings of the embedded engine.

use std::path::PathBuf;

use super::batch::PendingWrites;
use super::queued::Observers;
use crate::StoreId;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct SledOptions {
    /// Its folder, which nothing else may use. Not a mount point itself, so that it can be moved aside.
    pub dir: PathBuf,
    /// What sled may keep in memory. Its own default is a gigabyte.
    pub cache_bytes: u64,
    /// How often sled cleans up after itself. It decides nothing about durability; without it space
    /// would never be used again.
    pub flush_every_ms: u64,
    /// Bytes of its disk that stay free: below that it takes no writes until there is more.
    pub min_free_bytes: u64,
    /// Who is told how long things take.
    pub observers: Observers,
    /// How many changes there are of which some may not be here yet: a sync waits for them, if not for long.
    pub pending_writes: PendingWrites,
    /// The identity of the store if this creates it. Default: a new one.
    pub id: Option<StoreId>,
    /// Whether a damaged store is moved aside, so that the next start does not trip over it. Default: true.
    pub moves_damaged_aside: bool,
}

impl SledOptions {
    /// The settings that were measured to be good, for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            cache_bytes: 48 << 20,
            flush_every_ms: 200,
            min_free_bytes: 64 << 20,
            observers: Observers::default(),
            pending_writes: PendingWrites::default(),
            id: None,
            moves_damaged_aside: true,
        }
    }
}
