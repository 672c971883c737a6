//! Errors while a session is read or changed. The server returns the texts to callers.

use std::error::Error;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::StoreError;
use palimpsest_store::encoding::DecodeError;

use crate::quotas::QuotaExceeded;

/// An error while a session is read or changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The core rejected the command.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The session does not exist.
    #[error("session {0} does not exist: create it, or append to it, first")]
    SessionNotFound(SessionKey),
    /// A session of this name already exists.
    #[error("session {0} already exists: use it, or choose another name")]
    SessionExists(SessionKey),
    /// The log could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records of the log cannot be decoded.
    #[error("the log of {key} {error}")]
    Unreadable {
        /// The session.
        key: SessionKey,
        /// The decoding error.
        error: DecodeError,
    },
    /// The project or the server is at a storage quota.
    #[error("a quota is used up")]
    QuotaExceeded(QuotaExceeded),
    /// The deadline of the call passed before the session's lock was acquired.
    #[error("the call's time was over before its turn came")]
    DeadlineExceeded,
    /// An earlier session of that name is still being removed.
    #[error("session {0} was deleted and its files are still being removed")]
    SessionDeleting(SessionKey),
    /// The session has a hold and cannot be deleted.
    #[error("the session {0} is on hold")]
    SessionOnHold(SessionKey),
    /// The session is the parent of other sessions.
    #[error("the session {session} has {subagents} subagent sessions")]
    HasSubagents {
        /// The session.
        session: SessionKey,
        /// The number of subagent sessions on all levels.
        subagents: usize,
    },
    /// Another writer committed first in every attempt.
    #[error("the session is being changed from elsewhere: try again")]
    Contended,
    /// The log no longer holds the position that was read.
    #[error(
        "the history of {0} changed during the read, by a failover or a new creation: discard the \
         received data and read the session again"
    )]
    HistoryChanged(SessionKey),
    /// The session is not at the position that the deletion expected.
    #[error("{0} has changed since it was looked at")]
    RevisionConflict(SessionKey),
    /// The blob store cannot be read at the moment.
    #[error("the blob store cannot be read; try again")]
    BlobsUnavailable,
    /// A fault of the service.
    #[error("failed to {doing}")]
    Internal {
        /// The failed operation. Completes the sentence "failed to …".
        doing: &'static str,
        /// The cause, if known.
        source: Option<BoxError>,
    },
}

/// Any error, boxed for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

impl EngineError {
    /// Creates an [`Self::Internal`] error for the operation `doing`.
    pub fn internal(doing: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Internal {
            doing,
            source: Some(source.into()),
        }
    }
}
