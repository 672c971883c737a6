//! The end of a session: its log goes in one change that leaves a tombstone, everything else after it,
//! and the tombstone last. Whatever interrupts that, the tombstone says what is still to be done.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::session::Session;
use palimpsest_store::blobs::{BlobError, Blobs, RemovalCount};
use palimpsest_store::{Lease, Position, StoreError, Tombstone, crash_point, error_chain};
use tokio::time::{Instant, sleep, timeout};

use super::{MAX_ATTEMPTS, Sessions, SessionsError};
use crate::call::CurrentCall;

/// How often it is looked whether what stands in the way of a removal is gone.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a creation waits for an earlier session of its name to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the right to remove what is left of a session is one process's, where several share a store; and how
/// long it works under it, so that it has stopped well before.
const CLAIM_MS: i64 = 20_000;
const WORK: Duration = Duration::from_secs(12);

/// Removals that are under way in this process, so that none of them works on a name that another has
/// just given free.
#[derive(Debug, Default)]
pub(super) struct RemovalsInProgress(Mutex<HashSet<SessionKey>>);

struct RemovalGuard<'a>(&'a RemovalsInProgress, &'a SessionKey);

impl RemovalsInProgress {
    fn take<'a>(&'a self, key: &'a SessionKey) -> Option<RemovalGuard<'a>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Made only when it is to be held: dropping one takes the lock.
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
    /// Deletes a session and its log, and begins the removal of everything else; false when there was
    /// none. `check` is asked about the session as it is then, and again when somebody else has changed it. With
    /// `expected`, only the session at that position is deleted: a later one of the same name, and one that the store
    /// holds in place of what it lost, fail with [`SessionsError::Moved`].
    pub async fn delete(
        &self,
        key: &SessionKey,
        expected: Option<Position>,
        mut check: impl FnMut(&Session) -> Result<(), Rejection>,
    ) -> Result<bool, SessionsError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        for _ in 0..MAX_ATTEMPTS {
            let Some(loaded) = state.load(&self.reader, key).await? else {
                return Ok(false);
            };
            // As for every change: who has given up by now deletes nothing.
            if !CurrentCall::begins() {
                return Err(SessionsError::Expired);
            }
            check(&loaded.session)?;
            let stands = loaded.position();
            if expected.is_some_and(|expected| !expected.agrees(stands)) {
                return Err(SessionsError::Moved(key.clone()));
            }
            state.forget();
            match self.log.delete(key, stands, self.clock.now()).await {
                Err(StoreError::Conflict { .. }) => continue,
                deleted => deleted?,
            }
            crash_point("delete.begun");
            handle.announce_deletion();
            self.deletions.notify_one();
            return Ok(true);
        }
        Err(SessionsError::Contended)
    }

    /// Whether somebody follows the session's changes or works on it right now.
    pub fn is_in_use(&self, key: &SessionKey) -> bool {
        self.cache.is_in_use(key)
    }

    /// Removes what is left of a deleted session. False when that is not all done after `patience`:
    /// the background goes on with it. A name that has no tombstone has nothing left.
    pub async fn removed(
        &self,
        key: &SessionKey,
        patience: Duration,
    ) -> Result<bool, SessionsError> {
        let until = Instant::now() + patience;
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
                Err(RemovalError::Blobs(error)) => {
                    tracing::warn!(session = %key, error = %error_chain(&error), "failed to remove the files of a deleted session; it is tried again");
                    return Ok(false);
                }
            }
            if Instant::now() + LOOK_AGAIN > until {
                return Ok(false);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// One try. False when somebody else is at it, when a worker may still write the session's
    /// `summary.md`, or while the log's records are not gone.
    async fn remove_once(
        &self,
        tombstone: &Tombstone,
        all: &mut RemovalCount,
    ) -> Result<bool, RemovalError> {
        let key = &tombstone.key;
        let now = self.clock.now();
        let is_others = |it: &Lease| it.holds(now) && it.owner != self.process;
        if tombstone.lease.as_ref().is_some_and(is_others) {
            return Ok(false);
        }
        let Some(_held) = self.in_hand.take(key) else {
            return Ok(false);
        };
        // The name may have been given free, and taken again, just before; and other processes may be at it. Where there are
        // none, only a lease of an earlier process has to be taken over.
        let is_anothers = |it: &Lease| it.owner != self.process;
        let needs_claim =
            self.reader.is_shared() || tombstone.lease.as_ref().is_some_and(is_anothers);
        let is_mine = if needs_claim {
            let lease = Lease {
                owner: self.process.clone(),
                until: Timestamp::from_millis(now.as_millis().saturating_add(CLAIM_MS)),
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
            // What is not done by then is done under another claim.
            let removing = timeout(WORK, self.remove_files(blobs, tombstone)).await;
            match removing {
                Ok(Ok(Some(removed))) => *all += removed,
                Ok(Err(error)) => return Err(error),
                Ok(Ok(None)) | Err(_) => return Ok(false),
            }
        }
        crash_point("delete.removed");
        let forgotten = self
            .log
            .forget(key, tombstone.incarnation, &self.process)
            .await?;
        crash_point("delete.forgotten");
        Ok(forgotten)
    }

    /// Removes the files of a deleted session; none when it is gone already.
    ///
    /// This process may be suspended at any point, for longer than its claim lasts. So the tombstone is read after the
    /// files are listed: while it is there, no session of that name is, and everything that was listed is the deleted
    /// one's. Files of a later session have other names.
    async fn remove_files(
        &self,
        blobs: &Blobs,
        tombstone: &Tombstone,
    ) -> Result<Option<RemovalCount>, RemovalError> {
        let found = blobs.belongings(&tombstone.key).await?;
        crash_point("delete.listed");
        let now = self.log.tombstone(&tombstone.key).await?;
        if now.is_none_or(|now| now.incarnation != tombstone.incarnation) {
            return Ok(None);
        }
        Ok(Some(blobs.remove(found).await?))
    }

    /// Sees to it that nothing of an earlier session is left under a name that a new one wants.
    pub(super) async fn give_free(&self, key: &SessionKey) -> Result<(), SessionsError> {
        if self.removed(key, PATIENCE).await? {
            return Ok(());
        }
        Err(SessionsError::Deleting(key.clone()))
    }
}

#[derive(Debug, thiserror::Error)]
enum RemovalError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
}
