//! The index of subagents: sessions are found by their parent.

use async_trait::async_trait;
use palimpsest_core::ids::SessionKey;

use crate::StoreError;

/// The maximum number of parents of one lookup.
pub const MAX_LOOKUP_PARENTS: usize = 1000;

/// The index of subagents. The append that creates a session adds it, and the deletion of the session removes it.
#[async_trait]
pub trait SubagentIndex: Send + Sync + 'static {
    /// Returns up to `limit` sessions after `after`, ordered by name, whose parent is one of `parents`. These are of one
    /// project, and at most [`MAX_LOOKUP_PARENTS`]. Fewer than `limit` sessions mean that no more follow. Unreadable
    /// sessions are skipped.
    ///
    /// Fails if a part of the store does not answer, because no session may be missed.
    async fn subagents(
        &self,
        parents: &[SessionKey],
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>, StoreError>;
}
