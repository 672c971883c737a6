//! The state that readers share with the commit thread.

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

/// The error text while the store is reopened after a full disk.
const REOPENING: &str = "it is opened anew after its disk was full";

/// The open store. `_lock` is the last field, so it is dropped after sled has released the folder.
#[derive(Debug)]
pub(super) struct Shared {
    /// `None` while the store is reopened after a full disk.
    db: RwLock<Option<Db>>,
    pub(super) counters: Counters,
    /// The heads before the current group, by their keys. They hide changes that are applied but not
    /// durable. They remain if the group fails.
    durable_heads: RwLock<HashMap<Vec<u8>, Option<HeadRecord>>>,
    failed: OnceLock<String>,
    closed: AtomicBool,
    /// True if the last group was rejected because of missing disk space.
    full: AtomicBool,
    _lock: File,
}

impl Shared {
    pub(super) fn new(db: Db, lock: File) -> Self {
        Self {
            db: RwLock::new(Some(db)),
            counters: Counters::default(),
            durable_heads: RwLock::default(),
            failed: OnceLock::new(),
            closed: AtomicBool::new(false),
            full: AtomicBool::new(false),
            _lock: lock,
        }
    }

    /// Returns the open tree. Callers must not keep it, because the store cannot be reopened while a handle
    /// exists.
    pub(super) fn db(&self) -> Result<Db, StoreError> {
        // The handle is cloned, so that reads do not hold the lock.
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        db.clone().ok_or(StoreError::OutOfSpace(REOPENING))
    }

    /// Replaces the tree, or removes it.
    pub(super) fn set_db(&self, db: Option<Db>) {
        let mut current = self.db.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, db);
        drop(current);
        // Drop the old tree after the lock was released, so that readers do not wait for sled to close.
        drop(before);
    }

    /// Records whether disk space is missing. A change of the state is logged.
    pub(super) fn set_full(&self, why: Option<&'static str>) {
        let was = self.full.swap(why.is_some(), Ordering::AcqRel);
        match why {
            Some(why) if !was => tracing::error!(why, "the store accepts no writes"),
            None if was => tracing::info!("the store accepts writes again"),
            _ => {}
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Returns a session's head as of the last durable group. The lock is held during the read, so that no
    /// group can change the session in between.
    pub(super) fn record(&self, key: &SessionKey) -> Result<Option<HeadRecord>, StoreError> {
        let shadows = self
            .durable_heads
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        match shadows.get(&keys::head(key)) {
            Some(record) => Ok(record.clone()),
            None => read::record(&self.db()?, key),
        }
    }

    /// Saves a head for readers before a group changes it. Only the first call per group and head has an
    /// effect.
    pub(super) fn keep_durable_head(&self, head: &[u8], record: Option<&HeadRecord>) {
        let mut heads = self
            .durable_heads
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Later changes of the same group are not durable either, so the first saved head is kept.
        if !heads.contains_key(head) {
            heads.insert(head.to_vec(), record.cloned());
        }
    }

    /// Makes the changes of the durable group visible.
    pub(super) fn publish_group(&self) {
        self.durable_heads
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Marks the store as failed. Writes since the last sync are in doubt. A later successful sync proves
    /// nothing, because the operating system drops pages that it failed to write.
    pub(super) fn fail(&self, reason: String) -> String {
        // Log only the first failure, because later ones are its consequences.
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
