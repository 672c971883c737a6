//! The stamp that identifies retries of a request.

use crate::message::Digest;

/// The method of a request. Request ids are unique per method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestMethod {
    /// `AppendMessages`.
    Append,
    /// `PrepareContext`.
    Prepare,
    /// `CreateSession`.
    Create,
    /// `ForkSession`.
    Fork,
    /// `UpdateSession`.
    Update,
    /// `RewindSession`.
    Rewind,
    /// `Snip`.
    Snip,
    /// `Compact`.
    Compact,
    /// `RestoreContext`.
    Restore,
    /// `PersistToolResult`.
    Persist,
    /// `UpdateWorkingState`.
    Working,
    /// `UpdateSessionMemory`.
    Memory,
    /// `CommitSummary`.
    Commit,
    /// `CommitSummary`, identified by its token and not by a request id.
    Delegation,
}

/// Identifies a request, so that a retry is recognized.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestStamp {
    /// The caller's request id.
    pub id: Box<str>,
    /// The method.
    pub method: RequestMethod,
    /// The digest of the request's body. A retry must have the same body.
    pub digest: Digest,
}
