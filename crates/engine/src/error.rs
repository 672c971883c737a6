//! Errors while a session is read or changed.

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
    #[error("there is no session {0}")]
    SessionNotFound(SessionKey),
    /// A session of this name already exists.
    #[error("there is a session {0} already")]
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
    Expired,
    /// An earlier session of that name is still being removed.
    #[error("an earlier session {0} is still being removed")]
    SessionDeleting(SessionKey),
    /// Another writer committed first in every attempt.
    #[error("the session is being changed from elsewhere: try again")]
    Contended,
    /// The log no longer holds the position that was read.
    #[error(
        "{0} is not the session that was read: it was deleted and created again, or the store went on from an \
         earlier state; read it again from its beginning"
    )]
    HistoryChanged(SessionKey),
    /// The session is not at the position that the deletion expected.
    #[error("{0} has changed since it was looked at")]
    RevisionConflict(SessionKey),
}
