//! A session log that counts reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_store::{
    ArrayIndex, Batch, DueChange, DueQuery, DueSession, FileIntents, Frame, IntentPage, Leadership,
    Lease, Position, RowPage, SessionHead, SessionLog, StorageUsage, Store, StoreError, StoreId,
    StoredSnapshot, SubagentIndex, Tombstone, Tombstones, WorkQueue,
};

/// The number of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reads {
    /// The number of read calls, including heads and snapshots.
    pub(crate) calls: u64,
    pub(crate) events: u64,
    /// The number of rows of lists.
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// A log that counts the reads of the wrapped log.
#[derive(Debug, Default)]
pub(crate) struct CountingLog<L> {
    log: L,
    /// True if other processes may write to the log.
    is_shared: bool,
    /// True if the disk has no space for a write.
    is_full: AtomicBool,
    calls: AtomicU64,
    events: AtomicU64,
    rows: AtomicU64,
    listing: AtomicU64,
    most_at_once: AtomicU64,
    bytes: AtomicU64,
}

impl<L> CountingLog<L> {
    /// Marks the log as shared with other processes.
    pub(crate) fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Fills the disk.
    pub(crate) fn fill(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    /// Returns the wrapped log, for reads that are not counted.
    pub(crate) fn itself(&self) -> &L {
        &self.log
    }

    /// Returns the maximum number of concurrent list calls.
    pub(crate) fn most_at_once(&self) -> u64 {
        self.most_at_once.load(Ordering::SeqCst)
    }

    /// Returns the reads so far.
    pub(crate) fn reads(&self) -> Reads {
        Reads {
            calls: self.calls.load(Ordering::SeqCst),
            events: self.events.load(Ordering::SeqCst),
            rows: self.rows.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
        }
    }

    fn count(&self, events: u64, bytes: usize) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.events.fetch_add(events, Ordering::SeqCst);
        self.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
    }
}

#[async_trait]
impl<L: Store> SessionLog for CountingLog<L> {
    async fn head(&self, key: &SessionKey) -> Result<Option<SessionHead>, StoreError> {
        self.count(0, 0);
        self.log.head(key).await
    }

    async fn read(
        &self,
        key: &SessionKey,
        after: Position,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError> {
        let frames = self.log.read(key, after, max_bytes).await?;
        let events = frames.iter().map(|frame| u64::from(frame.events)).sum();
        self.count(events, frames.iter().map(|frame| frame.bytes.len()).sum());
        Ok(frames)
    }

    async fn append(&self, key: &SessionKey, batch: Batch) -> Result<Position, StoreError> {
        self.log.append(key, batch).await
    }

    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.log.delete(key, expected, at).await
    }

    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<StoredSnapshot>, StoreError> {
        let snapshot = self.log.snapshot(key, incarnation).await?;
        self.count(0, snapshot.as_ref().map_or(0, |s| s.bytes.len()));
        Ok(snapshot)
    }

    async fn put_snapshot(
        &self,
        key: &SessionKey,
        at: Position,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        self.log.put_snapshot(key, at, bytes).await
    }

    async fn list_rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let now = self.listing.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        // Yields so that concurrent list calls overlap, if the caller permits them.
        tokio::task::yield_now().await;
        let listing = self.log.list_rows(project, after, limit).await;
        self.listing.fetch_sub(1, Ordering::SeqCst);
        let listing = listing?;
        self.count(0, 0);
        self.rows
            .fetch_add(listing.rows.len() as u64, Ordering::SeqCst);
        Ok(listing)
    }
}

#[async_trait]
impl<L: Store> SubagentIndex for CountingLog<L> {
    async fn subagents(
        &self,
        parents: &[SessionKey],
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        self.count(0, 0);
        self.log.subagents(parents, after, limit).await
    }
}

#[async_trait]
impl<L: Store> WorkQueue for CountingLog<L> {
    async fn due(
        &self,
        query: DueQuery<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueSession>, StoreError> {
        self.log.due(query, now, limit).await
    }

    async fn claim(
        &self,
        key: &SessionKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.log.claim(key, lease, now).await
    }

    async fn release(
        &self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, StoreError> {
        self.log.release(key, owner, next).await
    }
}

#[async_trait]
impl<L: Store> Tombstones for CountingLog<L> {
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError> {
        self.count(0, 0);
        self.log.tombstone(key).await
    }

    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError> {
        self.log.tombstones(after, limit).await
    }

    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.log.claim_removal(key, incarnation, lease, now).await
    }

    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError> {
        self.log.forget(key, incarnation, owner).await
    }
}

#[async_trait]
impl<L: Store> ArrayIndex for CountingLog<L> {
    async fn find_by_tip(
        &self,
        project: &ProjectId,
        scope: Digest,
        digests: &[Digest],
    ) -> Result<Option<SessionKey>, StoreError> {
        self.log.find_by_tip(project, scope, digests).await
    }
}

#[async_trait]
impl<L: Store> FileIntents for CountingLog<L> {
    async fn declare_intents(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.log.declare_intents(key, files, at).await
    }

    async fn list_intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<IntentPage, StoreError> {
        self.log.list_intents(after, limit).await
    }

    async fn revoke_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        self.log.revoke_intent(key, file, before).await
    }

    async fn complete_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError> {
        self.log.complete_intent(key, file).await
    }
}

#[async_trait]
impl<L: Store> Leadership for CountingLog<L> {
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.log.claim_leader_task(duty, lease, now).await
    }
}

#[async_trait]
impl<L: Store> Store for CountingLog<L> {
    fn is_exclusive(&self) -> bool {
        // A shared log makes the engine compare heads, because another process may have written.
        !self.is_shared && self.log.is_exclusive()
    }

    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.log.store_id().await
    }

    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError> {
        self.log.usage(project).await
    }

    async fn check_space(&self) -> Result<(), StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StoreError::OutOfSpace("the disk is full"));
        }
        self.log.check_space().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.log.check().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.log.close().await
    }
}
