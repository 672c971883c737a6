//! The stamp by which the retry of a request is recognised.

use crate::message::Digest;

/// The method that a request called; a request id counts within one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestMethod {
    /// `AppendMessages`.
    Append,
    /// `PrepareContext`.
    Prepare,
    /// `CreateSession`.
    Create,
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
    /// `CommitSummary`.
    Commit,
    /// `CommitSummary`, by its token in place of a request id.
    Delegation,
}

/// What a caller says so that its retry is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestStamp {
    /// The caller's id.
    pub id: Box<str>,
    /// The method.
    pub method: RequestMethod,
    /// The body.
    pub digest: Digest,
}
