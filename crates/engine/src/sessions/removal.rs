//! Deletion of sessions. One change removes the log and leaves a tombstone. The other data is removed after it, and
//! the tombstone last. An interrupted removal is resumed from the tombstone.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_store::blobs::{BlobError, Blobs, RemovalCount};
use palimpsest_store::{Lease, Position, StoreError, Tombstone, crash_point, error_chain};
use tokio::time::{Instant, sleep, timeout};

use super::{MAX_ATTEMPTS, Sessions};
use crate::EngineError;
use crate::call::CurrentCall;

/// Interval at which a removal is retried while something blocks it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a creation waits for the removal of an earlier session of the same name.
const NAME_WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Duration of the removal claim if several processes share a store, and the time that a process works under it. The
/// work stops well before the claim expires.
const CLAIM_TIME: Duration = Duration::from_secs(20);
const REMOVAL_LEASE: Duration = Duration::from_secs(12);

/// Removals in progress in this process. They prevent a second removal of a name that the first one has just
/// released.
#[derive(Debug, Default)]
pub(super) struct RemovalsInProgress(Mutex<HashSet<SessionKey>>);

struct RemovalGuard<'a>(&'a RemovalsInProgress, &'a SessionKey);

impl RemovalsInProgress {
    fn take<'a>(&'a self, key: &'a SessionKey) -> Option<RemovalGuard<'a>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The guard is created only after a successful insert, because dropping a guard takes the lock and removes
        // the key.
        keys.insert(key.clone()).then(|| RemovalGuard(self, key))
    }
}

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        let mut keys = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.remove(self.1);
    }
}

impl Sessions {
    /// Deletes a session and its log, and starts the removal of its other data. Returns false if the session does not
    /// exist.
    ///
    /// `check` runs on the current session, and again if another writer changed it. With `expected`, only the session
    /// at that position is deleted. Any other state fails with [`EngineError::RevisionConflict`]: a later session of the name,
    /// or a store that lost commits.
    pub async fn delete(
        &self,
        key: &SessionKey,
        expected: Option<Position>,
        mut check: impl FnMut(&Session) -> Result<(), Rejection>,
    ) -> Result<bool, EngineError> {
        let handle = self.cache.handle(key);
        // Under the lock, no command of this process is between its decision and its commit.
        let mut state = self.lock(&handle, key).await;
        for _ in 0..MAX_ATTEMPTS {
            let Some(loaded) = state.load(&self.reader, key).await? else {
                return Ok(false);
            };
            // As for every change: an expired call deletes nothing.
            if !CurrentCall::may_start_change() {
                return Err(EngineError::DeadlineExceeded);
            }
            check(&loaded.session)?;
            let stands = loaded.position();
            if expected.is_some_and(|expected| !expected.matches(stands)) {
                return Err(EngineError::RevisionConflict(key.clone()));
            }
            // The session leaves memory before the log is deleted, so a failed deletion cannot leave outdated state
            // behind.
            state.forget();
            match self.log.delete(key, stands, self.clock.now()).await {
                Err(StoreError::Conflict { .. }) => continue,
                deleted => deleted?,
            }
            crash_point("delete.begun");
            // The session no longer exists for callers. The other data is removed in the background.
            handle.notify_deletion();
            // The notification is kept while the task is busy, so the task misses no deletion.
            self.deletions.notify_one();
            return Ok(true);
        }
        Err(EngineError::Contended)
    }

    /// Returns true if a call or a watcher uses the session.
    pub fn is_in_use(&self, key: &SessionKey) -> bool {
        self.cache.is_in_use(key)
    }

    /// Removes the remaining data of a deleted session. Returns false if data remains after `timeout`; a background
    /// task continues then. Returns true if the name has no tombstone.
    pub async fn finish_removal(
        &self,
        key: &SessionKey,
        timeout: Duration,
    ) -> Result<bool, EngineError> {
        let until = Instant::now() + timeout;
        // Several attempts may be needed, and the log line reports the sum of all of them.
        let mut all = RemovalCount::default();
        loop {
            let Some(tombstone) = self.log.tombstone(key).await? else {
                return Ok(true);
            };
            match self.remove_once(&tombstone, &mut all).await {
                Ok(true) => {
                    tracing::info!(
                        session = %key,
                        incarnation = tombstone.incarnation,
                        files = all.files,
                        bytes = all.bytes,
                        "a deleted session is gone"
                    );
                    return Ok(true);
                }
                Ok(false) => {}
                Err(RemovalError::Store(error)) => return Err(error.into()),
                // The tombstone stays, so a background task retries the removal.
                Err(RemovalError::Blobs(error)) => {
                    tracing::warn!(session = %key, error = %error_chain(&error), "failed to remove the files of a deleted session; it is tried again");
                    return Ok(false);
                }
            }
            if Instant::now() + POLL_INTERVAL > until {
                return Ok(false);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Attempts the removal once. Returns false if another process or task works on it, if a worker may still write
    /// `summary.md`, or if log records remain.
    async fn remove_once(
        &self,
        tombstone: &Tombstone,
        all: &mut RemovalCount,
    ) -> Result<bool, RemovalError> {
        let key = &tombstone.key;
        let now = self.clock.now();
        let is_others = |it: &Lease| it.is_valid(now) && it.owner != self.process;
        if tombstone.lease.as_ref().is_some_and(is_others) {
            return Ok(false);
        }
        let Some(_held) = self.removals.take(key) else {
            return Ok(false);
        };
        // The tombstone may be outdated: the name can have been released and used again. Other processes may also
        // remove the session. In an exclusive store only the lease of an earlier process has to be taken over.
        let is_anothers = |it: &Lease| it.owner != self.process;
        let needs_claim =
            self.reader.is_shared() || tombstone.lease.as_ref().is_some_and(is_anothers);
        let is_mine = if needs_claim {
            let lease = Lease {
                owner: self.process.clone(),
                until: now.plus(CLAIM_TIME),
            };
            let claim = self
                .log
                .claim_removal(key, tombstone.incarnation, lease, now);
            claim.await?
        } else {
            self.log.tombstone(key).await?.as_ref() == Some(tombstone)
        };
        if !is_mine {
            return Ok(false);
        }
        if let Some(blobs) = &self.blobs {
            // Files that remain after this time are removed under another claim.
            let removing = timeout(REMOVAL_LEASE, self.remove_files(blobs, tombstone)).await;
            match removing {
                Ok(Ok(Some(removed))) => *all += removed,
                Ok(Err(error)) => return Err(error),
                Ok(Ok(None)) | Err(_) => return Ok(false),
            }
        }
        // All files are gone, so the tombstone can go. In the reverse order a crash would leave files that nothing
        // refers to.
        crash_point("delete.removed");
        let forgotten = self
            .log
            .forget(key, tombstone.incarnation, &self.process)
            .await?;
        crash_point("delete.forgotten");
        Ok(forgotten)
    }

    /// Removes the files of a deleted session. Returns `None` if the tombstone is gone.
    ///
    /// This process may be suspended at any point for longer than its claim. Therefore the tombstone is read after
    /// the files are listed. A tombstone that still exists proves that no new session of the name existed, so every
    /// listed file belongs to the deleted session. Files of later sessions have other names.
    async fn remove_files(
        &self,
        blobs: &Blobs,
        tombstone: &Tombstone,
    ) -> Result<Option<RemovalCount>, RemovalError> {
        let found = blobs.list_session_files(&tombstone.key).await?;
        crash_point("delete.listed");
        let now = self.log.tombstone(&tombstone.key).await?;
        if now.is_none_or(|now| now.incarnation != tombstone.incarnation) {
            return Ok(None);
        }
        Ok(Some(blobs.remove_listed(found).await?))
    }

    /// Removes the remains of an earlier session from a name, so that a new session can use the name.
    pub(crate) async fn free_name(&self, key: &SessionKey) -> Result<(), EngineError> {
        if self.finish_removal(key, NAME_WAIT_TIMEOUT).await? {
            return Ok(());
        }
        Err(EngineError::SessionDeleting(key.clone()))
    }
}

#[derive(Debug, thiserror::Error)]
enum RemovalError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use bytes::Bytes;
    use palimpsest_conformance::MemoryLog;
    use palimpsest_core::ids::Timestamp;
    use palimpsest_core::limits::Limits;
    use palimpsest_store::{Batch, DueChange, SessionLog as _, Store, Tombstones as _};

    use super::super::DefaultPolicies;
    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn creation() -> Batch {
        Batch {
            expected: Position::START,
            events: NonZeroU32::MIN,
            frame: Bytes::from_static(b"never read"),
            list_row: Bytes::new(),
            parent: None,
            due: DueChange::Keep,
            blob_bytes: 0,
            completed_intents: Vec::new(),
            tips: None,
        }
    }

    /// A process was suspended after it had claimed the removal. Meanwhile another process finished the removal, and a
    /// new session of the same name stored a file.
    #[tokio::test]
    async fn a_removal_that_continues_after_its_claim_ended_keeps_files_of_the_new_session() {
        let log = Arc::new(MemoryLog::new());
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1))) as Arc<dyn Clock>;
        let sessions = Sessions::new(
            Arc::clone(&log) as Arc<dyn Store>,
            clock,
            Arc::new(Limits::default()),
            DefaultPolicies::default(),
            1 << 20,
        );
        let blobs = Blobs::in_memory();
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        let at = log.append(&key, creation()).await.unwrap();
        let text = Bytes::from_static(b"text");
        blobs.put_file(&key, "old.txt", text.clone()).await.unwrap();
        log.delete(&key, at, Timestamp::from_millis(2))
            .await
            .unwrap();
        let tombstone = log.tombstone(&key).await.unwrap().unwrap();

        let removed = sessions.remove_files(&blobs, &tombstone).await.unwrap();
        assert_eq!(removed.unwrap().files, 1);
        assert!(log.forget(&key, at.incarnation, "other").await.unwrap());
        log.append(&key, creation()).await.unwrap();
        blobs.put_file(&key, "new.txt", text).await.unwrap();

        let removed = sessions.remove_files(&blobs, &tombstone).await.unwrap();
        assert!(removed.is_none(), "{removed:?}");
        assert_eq!(blobs.stored_bytes(&key).await.unwrap(), 4);
    }
}
