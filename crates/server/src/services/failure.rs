//! The mapping of session and store errors to API errors.

use std::time::Duration;

use palimpsest_core::ids::Revision;
use palimpsest_engine::EngineError;
use palimpsest_engine::compaction::CompactionError;
use palimpsest_store::StoreError;

use crate::convert;
use crate::errors::ServiceError;

/// The retry delay after a store failure: 5 s. The store needs a restart or more space. Another replica may answer
/// earlier.
const RESTART: Duration = Duration::from_secs(5);
/// The retry delay for failed reads and contended sessions: 200 ms.
pub(super) const SOON: Duration = Duration::from_millis(200);

impl From<EngineError> for ServiceError {
    fn from(error: EngineError) -> Self {
        match error {
            // Errors that may disappear on their own carry a retry delay. All others need a change by the caller or
            // the operator.
            EngineError::Rejected(rejection) => rejection.into(),
            EngineError::SessionNotFound(session) => Self::SessionNotFound { session },
            EngineError::SessionExists(session) => Self::SessionExists { session },
            EngineError::SessionDeleting(session) => Self::SessionDeleting {
                session,
                retry_after: SOON,
            },
            EngineError::Contended | EngineError::RevisionConflict(_) => {
                Self::StoreUnavailable { retry_after: SOON }
            }
            EngineError::HistoryChanged(session) => Self::HistoryChanged {
                session,
                retry_after: SOON,
            },
            EngineError::Store(error) => error.into(),
            EngineError::QuotaExceeded(exceeded) => Self::QuotaExceeded(exceeded),
            EngineError::Expired => Self::DeadlineExceeded,
            EngineError::BlobsUnavailable => Self::StoreUnavailable { retry_after: SOON },
            EngineError::Internal { doing, source } => Self::Internal { doing, source },
            error @ EngineError::Unreadable { .. } => Self::internal("read a session", error),
        }
    }
}

impl From<CompactionError> for ServiceError {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Engine(error) => error.into(),
            CompactionError::DelegationNotFound { key } => Self::DelegationNotFound { key },
            CompactionError::NoSummary { why, detail, model } => Self::NoSummary {
                why: convert::why_failed(why),
                detail: detail.into(),
                model: model.into(),
            },
            CompactionError::HookVetoed { hook, reason } => Self::HookVetoed {
                hook: hook.name(),
                reason: reason.into(),
            },
            CompactionError::HookFailed { hook, detail } => Self::HookFailed {
                hook: hook.name(),
                detail: detail.into(),
            },
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
