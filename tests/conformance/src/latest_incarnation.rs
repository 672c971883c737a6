//! Test helpers that address the current session of a name, whatever its incarnation.

use async_trait::async_trait;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};

use palimpsest_store::{Batch, Frame, Position, SessionLog, StoreError, StoredSnapshot};

/// An incarnation that no session has.
// The largest value that also fits a signed column of a database.
const NOBODY: u64 = u64::MAX >> 1;

/// Variants of [`SessionLog`] methods for the current incarnation of a name.
#[async_trait]
pub trait LatestIncarnation: SessionLog {
    /// Returns the start position of the current session, or of a session that does not exist.
    async fn of(&self, key: &SessionKey) -> Result<Position, StoreError> {
        let head = self.head(key).await?;
        Ok(Position {
            incarnation: head.map_or(NOBODY, |head| head.incarnation),
            ..Position::START
        })
    }

    /// Appends at the batch's revision. The incarnation of the batch is ignored.
    async fn append_to(&self, key: &SessionKey, mut batch: Batch) -> Result<Revision, StoreError> {
        batch.expected = match batch.expected.revision {
            // A session that does not exist has no incarnation yet.
            Revision::ZERO => Position::START,
            revision => self.of(key).await?.at(revision),
        };
        Ok(self.append(key, batch).await?.revision)
    }

    /// Reads frames of the current session.
    async fn frames_of(
        &self,
        key: &SessionKey,
        after: Revision,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError> {
        let after = self.of(key).await?.at(after);
        self.read(key, after, max_bytes).await
    }

    /// Returns the snapshot of the current session.
    async fn snapshot_of(&self, key: &SessionKey) -> Result<Option<StoredSnapshot>, StoreError> {
        let of = self.of(key).await?;
        self.snapshot(key, of.incarnation).await
    }

    /// Deletes the current session. Returns false if none exists.
    async fn delete_of(&self, key: &SessionKey, at: Timestamp) -> Result<bool, StoreError> {
        match self.head(key).await? {
            Some(head) => self.delete(key, head.position(), at).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Replaces the snapshot of the current session.
    async fn put_snapshot_of(
        &self,
        key: &SessionKey,
        snapshot: StoredSnapshot,
    ) -> Result<(), StoreError> {
        let at = self.of(key).await?.at(snapshot.at);
        self.put_snapshot(key, at, snapshot.bytes).await
    }
}

impl<L: SessionLog + ?Sized> LatestIncarnation for L {}
