//! The mapping of session and store errors to API errors.

use std::time::Duration;

use palimpsest_core::ids::Revision;
use palimpsest_engine::sessions::SessionsError;
use palimpsest_store::StoreError;

use crate::errors::ServiceError;

/// The retry delay after a store failure: 5 s. The store needs a restart or more space. Another replica may answer
/// earlier.
const RESTART: Duration = Duration::from_secs(5);
/// The retry delay for failed reads and contended sessions: 200 ms.
pub(super) const SOON: Duration = Duration::from_millis(200);

impl From<SessionsError> for ServiceError {
    fn from(error: SessionsError) -> Self {
        match error {
            // Errors that may disappear on their own carry a retry delay. All others need a change by the caller or
            // the operator.
            SessionsError::Rejected(rejection) => rejection.into(),
            SessionsError::NotFound(session) => Self::SessionNotFound { session },
            SessionsError::Exists(session) => Self::SessionExists { session },
            SessionsError::Deleting(session) => Self::SessionDeleting {
                session,
                retry_after: SOON,
            },
            SessionsError::Contended | SessionsError::Moved(_) => {
                Self::StoreUnavailable { retry_after: SOON }
            }
            SessionsError::HistoryChanged(session) => Self::HistoryChanged {
                session,
                retry_after: SOON,
            },
            SessionsError::Store(error) => error.into(),
            SessionsError::Quota(exceeded) => Self::QuotaExceeded(exceeded),
            SessionsError::Expired => Self::DeadlineExceeded,
            error @ SessionsError::Unreadable { .. } => Self::internal("read a session", error),
        }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            // The store does not know which revision the caller expected.
            StoreError::Conflict { current } => Self::RevisionMismatch {
                expected: Revision::ZERO,
                current,
            },
            StoreError::TooLarge { len, max, .. } => Self::TooLarge {
                field: "messages".to_owned(),
                actual: len,
                limit: max,
            },
            StoreError::Closed => Self::ShuttingDown {
                retry_after: RESTART,
            },
            // Storage failures are logged here, because the caller gets only a retryable status.
            StoreError::Read(_) => {
                tracing::warn!(%error, "failed to read the store");
                Self::StoreUnavailable { retry_after: SOON }
            }
            StoreError::Short(_) => {
                tracing::warn!(%error, "the store could not write");
                Self::StoreUnavailable { retry_after: SOON }
            }
            StoreError::Unreachable(_) | StoreError::Setup(_) => {
                tracing::warn!(%error, "the store cannot be reached");
                Self::StoreUnavailable { retry_after: SOON }
            }
            StoreError::Full(why) => Self::StoreFull {
                why,
                retry_after: RESTART,
            },
            StoreError::Failed(_) => {
                tracing::error!(%error, "the store takes no more writes");
                Self::StoreUnavailable {
                    retry_after: RESTART,
                }
            }
            error => Self::internal("use the store", error),
        }
    }
}
