//! The complete storage contract of a store engine, and the parts that concern the store as a whole.

use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use tokio::sync::broadcast;

use crate::{
    ArrayIndex, FileIntents, Lease, SessionLog, StoreError, StoreId, SubagentIndex, Tombstones,
    WorkQueue,
};

/// The storage usage of one project or of all projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageUsage {
    /// The number of sessions.
    pub sessions: u64,
    /// The size of all frames, current snapshots and blobs, in bytes. The space on disk is larger.
    pub bytes: u64,
    /// The time since the count started. Changes made during this time may be missing.
    pub age: Duration,
}

/// Leader tasks, which one process at a time runs for the whole store.
#[async_trait]
pub trait Leadership: Send + Sync + 'static {
    /// Takes or renews a leader task, which one process at a time runs for the whole store. Returns true if
    /// the caller is the leader. The claim expires at the lease deadline.
    ///
    /// A claim with more than twice the requested time remaining came from a wrong clock, and may be taken
    /// over.
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
}

/// A store engine. A caller that needs one role only takes that role, such as `Arc<dyn WorkQueue>`.
///
/// - Every change of one session is atomic, and durable when its call returns `Ok`. Reads return only
///   durable data.
/// - Changes of different sessions are independent. An engine may store each session on another machine.
/// - A rejected call ([`StoreError::Conflict`] and the like) has changed nothing.
/// - The outcome of a failed call ([`StoreError::Failed`], [`StoreError::Unreachable`],
///   [`StoreError::Closed`]) is unknown. Callers compare the position to find out.
/// - Dropping a call's future does not undo its change.
#[async_trait]
pub trait Store:
    SessionLog + ArrayIndex + SubagentIndex + WorkQueue + Tombstones + FileIntents + Leadership
{
    /// Returns true if no other process can have the log open. Operations left unfinished by an earlier
    /// process are then orphaned.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Returns the identity of the log. It never changes.
    async fn store_id(&self) -> Result<StoreId, StoreError>;

    /// Subscribes to notifications that other processes changed sessions. Returns `None` if the engine has
    /// no other processes. A hint may be lost or outdated; callers must verify against the log.
    fn subscribe_hints(&self) -> Option<broadcast::Receiver<SessionKey>> {
        None
    }

    /// Returns the storage usage of one project or of all projects without reading every session. Engines
    /// that cannot count atomically may return an earlier count: one minute old, or as old as a new count
    /// takes.
    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError>;

    /// Fails with [`StoreError::OutOfSpace`] if the store has no space for a write. The check is cheap while space
    /// is available. Callers use it before they store something else, such as a blob.
    async fn check_space(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes a canary durably, to verify that the engine accepts writes.
    async fn check(&self) -> Result<(), StoreError>;

    /// Completes accepted calls and rejects later ones. The process can exit safely afterwards.
    async fn close(&self) -> Result<(), StoreError>;
}
