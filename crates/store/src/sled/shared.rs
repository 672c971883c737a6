//! What readers and the commit thread share.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use ::sled::Db;
use palimpsest_core::ids::SessionKey;

use super::stats::Counters;
use super::{keys, read};
use crate::StoreError;
use crate::head_record::HeadRecord;

/// Between closing a store whose disk was full and opening it again.
const REOPENING: &str = "it is opened anew after its disk was full";

/// The open store. The lock comes last: it is given up after sled has let go of the folder.
#[derive(Debug)]
pub(super) struct Shared {
    /// None while it is opened anew after a disk was full.
    db: RwLock<Option<Db>>,
    pub(super) counters: Counters,
    /// The heads from before the group under way, by their keys: what is applied but not yet durable
    /// is not shown. They stay if the group fails.
    shadows: RwLock<HashMap<Vec<u8>, Option<HeadRecord>>>,
    failed: OnceLock<String>,
    closed: AtomicBool,
    /// Whether the last group found no room.
    full: AtomicBool,
    _lock: File,
}

impl Shared {
    pub(super) fn new(db: Db, lock: File) -> Self {
        Self {
            db: RwLock::new(Some(db)),
            counters: Counters::default(),
            shadows: RwLock::default(),
            failed: OnceLock::new(),
            closed: AtomicBool::new(false),
            full: AtomicBool::new(false),
            _lock: lock,
        }
    }

    /// The open tree. Not to be kept: while somebody has it, it cannot be opened anew.
    pub(super) fn db(&self) -> Result<Db, StoreError> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        db.clone().ok_or(StoreError::Full(REOPENING))
    }

    /// Gives the tree up, or puts one in its place.
    pub(super) fn set_db(&self, db: Option<Db>) {
        let mut current = self.db.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, db);
        drop(current);
        // Readers need not wait for sled to close.
        drop(before);
    }

    /// Says whether there is room; told in the log when that changes.
    pub(super) fn set_full(&self, why: Option<&'static str>) {
        let was = self.full.swap(why.is_some(), Ordering::AcqRel);
        match why {
            Some(why) if !was => tracing::error!(why, "the store takes no writes"),
            None if was => tracing::info!("the store takes writes again"),
            _ => {}
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// A session's head as of the last durable group. The lock is held over the read, so that no group
    /// that touches the session can begin in between.
    pub(super) fn record(&self, key: &SessionKey) -> Result<Option<HeadRecord>, StoreError> {
        let shadows = self.shadows.read().unwrap_or_else(PoisonError::into_inner);
        match shadows.get(&keys::head(key)) {
            Some(record) => Ok(record.clone()),
            None => read::record(&self.db()?, key),
        }
    }

    /// Keeps a head for readers before a group changes it; the first one of a group is the one.
    pub(super) fn shadow(&self, head: &[u8], record: Option<&HeadRecord>) {
        let mut shadows = self.shadows.write().unwrap_or_else(PoisonError::into_inner);
        if !shadows.contains_key(head) {
            shadows.insert(head.to_vec(), record.cloned());
        }
    }

    /// The group is durable: shows what it changed.
    pub(super) fn reveal(&self) {
        self.shadows
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Ends the store's life: what was written since the last sync is in doubt, and a later sync that
    /// succeeds proves nothing, because the system forgets pages that it failed to write.
    pub(super) fn fail(&self, reason: String) -> String {
        if self.failed.get().is_none() {
            tracing::error!(reason, "the store failed");
        }
        self.failed.get_or_init(|| reason).clone()
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        if let Some(reason) = self.failure() {
            return Err(StoreError::Failed(reason));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        Ok(())
    }
}
