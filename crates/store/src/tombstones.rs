//! Tombstones: the records of deleted sessions until all their data is removed.

use async_trait::async_trait;
use palimpsest_core::ids::{SessionKey, Timestamp};

use crate::{Lease, StoreError};

/// The record of a deleted session until all its data is removed. The deletion writes it atomically, so
/// a crash never loses a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The deleted session.
    pub key: SessionKey,
    /// The incarnation that was deleted.
    pub incarnation: u64,
    /// The time of the deletion.
    pub at: Timestamp,
    /// The lease at the time of the deletion, or the lease of the process that removes the data. A worker
    /// with this lease may still write `summary.md` until the lease is released or expires.
    pub lease: Option<Lease>,
}

/// The tombstones of all deleted sessions.
#[async_trait]
pub trait Tombstones: Send + Sync + 'static {
    /// Returns the tombstone of a session name, if one exists.
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError>;

    /// Returns up to `limit` tombstones after `after`, ordered by name.
    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError>;

    /// Takes the right to remove the remaining data of a deleted session, and returns true on success.
    /// Returns false while another owner's lease on the tombstone is valid. That includes the lease that a
    /// worker held at the deletion.
    ///
    /// While the claim is valid, no other process removes data under this name, which a new session may
    /// use later. [`WorkQueue::release`](crate::WorkQueue::release) ends the claim.
    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Removes a tombstone after all data in other places was removed. Returns false while the engine still
    /// holds records of the session. The caller retries later.
    ///
    /// Also returns false if another owner holds the tombstone's lease. The caller's own claim has expired
    /// then, and another process removes the data. A missing tombstone, or one of another incarnation, is
    /// not an error.
    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError>;
}
