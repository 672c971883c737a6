//! The embedded store engine, based on sled 0.34.7. It has one tree, one commit thread, and one sync
//! per group.
//!
//! Modules compensate for sled's limits: `files` adds the missing syncs, `write_sync` replaces a weak one,
//! and `open` detects corruption that sled ignores. `commit` adds group commit, and `shared` hides changes until they are durable.

mod batch;
mod commit;
mod compact;
mod files;
mod folder_swap;
mod garbage;
mod group;
mod job;
mod keys;
mod leases;
mod open;
mod options;
mod queued;
mod read;
mod shared;
mod space;
mod stats;
mod subagents;
#[cfg(test)]
mod tests;
mod tips;
mod usage;
mod write_error;
#[cfg(target_os = "linux")]
mod write_sync;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use self::commit::Committer;
use self::files::DurableFiles;
use self::group::{ChangeError, Sequences, WriteGroup};
use self::job::{DiskUse, WriteJob};
use self::queued::QueuedJob;
use self::shared::Shared;
use crate::head_record::{
    check_batch, check_files, check_lease, check_lookup, check_parents, check_snapshot,
};
use crate::leader_tasks::LeaderTasks;
use crate::{
    ArrayIndex, Batch, DueChange, DueQuery, DueSession, FileIntents, Frame, IntentPage, Leadership,
    Lease, Position, RowPage, SessionHead, SessionLog, StorageUsage, Store, StoreError, StoreId,
    StoredSnapshot, SubagentIndex, Tombstone, Tombstones, WorkQueue,
};

pub use self::batch::PendingWrites;
pub use self::compact::{CompactReport, compact_store};
pub use self::folder_swap::{copy_for_reading, swap_folder};
pub use self::options::SledOptions;
pub use self::queued::{Observer, OptionalObserver};
pub use self::stats::EngineStats;

/// The maximum number of queued changes. Further callers wait, so that a slow disk causes backpressure.
const QUEUE: usize = 1024;

/// A log in a local folder. Dropping it blocks until accepted changes are complete.
#[derive(Debug)]
pub struct SledLog {
    queue: Mutex<Option<mpsc::Sender<QueuedJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Shared>,
    duties: LeaderTasks,
    id: StoreId,
}

impl SledLog {
    /// Opens or creates a store. The call blocks up to about two seconds while another process holds the
    /// lock. After a crash, it also blocks while sled reads the writes since the last open.
    pub fn open(options: &SledOptions) -> Result<Self, StoreError> {
        let (opened, lock) = open::open(options)?;
        let shared = Shared::new(opened.db, lock);
        let counts = Sequences {
            sequence: opened.sequence,
            incarnation: opened.incarnation,
        };
        Self::start(shared, (counts, opened.id), opened.files, options.clone())
    }

    fn start(
        shared: Shared,
        (counts, id): (Sequences, StoreId),
        files: DurableFiles,
        options: SledOptions,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(shared);
        let path = options.dir.clone();
        let (sender, queue) = mpsc::channel(QUEUE);
        let committer = Committer::new(Arc::clone(&shared), files, counts, queue, options)?;
        let thread = thread::Builder::new()
            .name("store-commit".into())
            .spawn(move || committer.run())
            .map_err(|source| StoreError::Io {
                doing: "start the commit thread of",
                path,
                source,
            })?;
        Ok(Self {
            queue: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            shared,
            duties: LeaderTasks::default(),
            id,
        })
    }

    /// Returns the counters of the engine, for metrics.
    pub fn stats(&self) -> EngineStats {
        self.shared.counters.read()
    }

    async fn submit<T: Send + 'static>(
        &self,
        disk: DiskUse,
        change: impl FnOnce(&mut WriteGroup<'_>) -> Result<T, ChangeError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.shared.check_open()?;
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or(StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        // Counted before the send, because the commit thread may take the job, and count it down, at once.
        self.shared.counters.count_queued();
        // The send waits while the queue is full. It fails only after the commit thread has ended.
        let job = QueuedJob::new(WriteJob::new(disk, change, reply));
        if queue.send(job).await.is_err() {
            self.shared.counters.count_unqueued(1);
            return Err(self.closed_error());
        }
        // The commit thread ends when all senders are dropped, so do not hold one while waiting.
        drop(queue);
        answer.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    fn closed_error(&self) -> StoreError {
        match self.shared.check_open() {
            Err(error) => error,
            Ok(()) => StoreError::Failed("the commit thread ended".into()),
        }
    }

    /// Runs a read on a blocking thread. Reads may wait for the disk or for a batch that is being applied.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl Fn(&Shared) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        // Two attempts: the second one follows the reopening of the store.
        for last in [false, true] {
            self.shared.check_open()?;
            let (shared, read) = (Arc::clone(&self.shared), read.clone());
            match spawn_blocking(move || read(&shared)).await {
                // sled stops reading after a full disk. A check makes the commit thread reopen the store, and the
                // read is retried once.
                Ok(Err(StoreError::OutOfSpace(_))) if !last => drop(self.check().await),
                Ok(result) => return result,
                Err(error) => return Err(StoreError::Read(error.to_string())),
            }
        }
        Err(self.closed_error())
    }

    fn take_thread(&self) -> Option<JoinHandle<()>> {
        drop(
            self.queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        // Reject new calls. Jobs that are already queued are still committed.
        self.shared.close();
        self.thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for SledLog {
    fn drop(&mut self) {
        if let Some(thread) = self.take_thread() {
            // A panic was already recorded in the shared state.
            drop(thread.join());
        }
    }
}

#[async_trait]
impl SessionLog for SledLog {
    async fn head(&self, key: &SessionKey) -> Result<Option<SessionHead>, StoreError> {
        let key = key.clone();
        self.blocking(move |shared| read::head(shared, &key)).await
    }

    async fn read(
        &self,
        key: &SessionKey,
        after: Position,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError> {
        let key = key.clone();
        self.blocking(move |shared| read::frames(shared, &key, after, max_bytes))
            .await
    }

    async fn append(&self, key: &SessionKey, batch: Batch) -> Result<Position, StoreError> {
        check_batch(&batch)?;
        let key = key.clone();
        let size = DiskUse::Grows(batch.frame.len() + batch.list_row.len());
        self.submit(size, move |group| group.append(&key, &batch))
            .await
    }

    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let key = key.clone();
        self.submit(DiskUse::Frees, move |group| {
            group.delete(&key, expected, at)
        })
        .await
    }

    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<StoredSnapshot>, StoreError> {
        let key = key.clone();
        self.blocking(move |shared| read::snapshot(shared, &key, incarnation))
            .await
    }

    async fn put_snapshot(
        &self,
        key: &SessionKey,
        at: Position,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        check_snapshot(&bytes)?;
        let key = key.clone();
        self.submit(DiskUse::Grows(bytes.len()), move |group| {
            group.put_snapshot(&key, at, &bytes)
        })
        .await
    }

    async fn list_rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let (project, after) = (project.cloned(), after.cloned());
        self.blocking(move |shared| read::rows(shared, project.as_ref(), after.as_ref(), limit))
            .await
    }
}

#[async_trait]
impl ArrayIndex for SledLog {
    async fn find_by_tip(
        &self,
        project: &ProjectId,
        scope: Digest,
        digests: &[Digest],
    ) -> Result<Option<SessionKey>, StoreError> {
        check_lookup(digests)?;
        let (project, digests) = (project.clone(), digests.to_vec());
        self.blocking(move |shared| tips::find(shared, &project, scope, &digests))
            .await
    }
}

#[async_trait]
impl SubagentIndex for SledLog {
    async fn subagents(
        &self,
        parents: &[SessionKey],
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        check_parents(parents)?;
        let (parents, after) = (parents.to_vec(), after.cloned());
        self.blocking(move |shared| subagents::find(shared, &parents, after.as_ref(), limit))
            .await
    }
}

#[async_trait]
impl WorkQueue for SledLog {
    async fn due(
        &self,
        query: DueQuery<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueSession>, StoreError> {
        let each = query.max_per_project;
        self.blocking(move |shared| read::due(shared, now, limit, each))
            .await
    }

    async fn claim(
        &self,
        key: &SessionKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let key = key.clone();
        self.submit(DiskUse::Grows(0), move |group| {
            group.claim(&key, &lease, now)
        })
        .await
    }

    async fn release(
        &self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, StoreError> {
        let (key, owner) = (key.clone(), owner.to_owned());
        self.submit(DiskUse::Frees, move |group| {
            group.release(&key, &owner, next)
        })
        .await
    }
}

#[async_trait]
impl Tombstones for SledLog {
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError> {
        let key = key.clone();
        self.blocking(move |shared| read::tombstone(shared, &key))
            .await
    }

    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError> {
        let after = after.cloned();
        self.blocking(move |shared| read::tombstones(shared, after.as_ref(), limit))
            .await
    }

    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let key = key.clone();
        // The removal of data must be able to begin on a full disk, because it frees space.
        self.submit(DiskUse::Frees, move |group| {
            group.claim_removal(&key, incarnation, lease, now)
        })
        .await
    }

    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError> {
        let (key, owner) = (key.clone(), owner.to_owned());
        self.submit(DiskUse::Frees, move |group| {
            group.forget(&key, incarnation, &owner)
        })
        .await
    }
}

#[async_trait]
impl FileIntents for SledLog {
    async fn declare_intents(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        check_files(&files)?;
        let key = key.clone();
        self.submit(DiskUse::Grows(0), move |group| {
            group.declare_intents(&key, &files, at)
        })
        .await
    }

    async fn list_intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<IntentPage, StoreError> {
        let after = after.map(|(key, file)| (key.clone(), Box::from(file)));
        self.blocking(move |shared| read::intents(shared, after.as_ref(), limit))
            .await
    }

    async fn revoke_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        let (key, file) = (key.clone(), Box::<str>::from(file));
        // A sweep revokes an intent before it removes the file, so a full disk must not reject the call.
        self.submit(DiskUse::Frees, move |group| {
            group.revoke_intent(&key, &file, before)
        })
        .await
    }

    async fn complete_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError> {
        let (key, file) = (key.clone(), Box::<str>::from(file));
        self.submit(DiskUse::Frees, move |group| {
            group.complete_intent(&key, &file)
        })
        .await
    }
}

#[async_trait]
impl Leadership for SledLog {
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        Ok(self.duties.claim(duty, lease, now))
    }
}

#[async_trait]
impl Store for SledLog {
    fn is_exclusive(&self) -> bool {
        true
    }

    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.shared.check_open()?;
        Ok(self.id)
    }

    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError> {
        let project = project.cloned();
        self.blocking(move |shared| usage::read(&shared.db()?, project.as_ref()))
            .await
    }

    async fn check_space(&self) -> Result<(), StoreError> {
        // A check makes the commit thread measure the space again.
        if self.shared.is_full() {
            return self.check().await;
        }
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        let canary = |group: &mut WriteGroup<'_>| group.canary();
        // The canary counts as growth, so it fails on a full disk in the same way as an append.
        self.submit(DiskUse::Grows(0), canary).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        if let Some(thread) = self.take_thread() {
            // The join waits for the last sync, which would block the runtime.
            let joined = spawn_blocking(move || thread.join()).await;
            // A panic of the commit thread is reported as a failure.
            if !matches!(joined, Ok(Ok(()))) {
                return Err(self.closed_error());
            }
        }
        match self.shared.failure() {
            Some(reason) => Err(StoreError::Failed(reason)),
            None => Ok(()),
        }
    }
}
