//! Errors of a compaction.

use palimpsest_core::event::{CompactionFailureReason, Hook};
use palimpsest_core::ids::CompactionKey;

use crate::EngineError;

/// An error of a compaction.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The session could not be read or changed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The token of a delegated compaction is unknown or no longer valid.
    #[error("no delegated compaction has this token; compact again")]
    DelegationNotFound {
        /// The compaction, if the token contains its key.
        key: Option<CompactionKey>,
    },
    /// The caller's model returned no acceptable summary.
    #[error("the summary was rejected: {detail}")]
    NoSummary {
        /// The reason.
        reason: CompactionFailureReason,
        /// The reason as text, including a remedy.
        detail: Box<str>,
        /// The name of the model.
        model: Box<str>,
    },
    /// A hook vetoed the compaction.
    #[error("the hook {} vetoed the compaction", hook.name())]
    HookVetoed {
        /// The hook.
        hook: Hook,
        /// The reason that the hook returned.
        reason: Box<str>,
    },
    /// A hook failed, and its failure rule stops the compaction.
    #[error("the hook {} failed", hook.name())]
    HookFailed {
        /// The hook.
        hook: Hook,
        /// The failure as text.
        detail: Box<str>,
    },
}

impl CompactionError {
    /// Creates the error for required data that could not be read.
    pub(super) const fn content_lost() -> Self {
        Self::Engine(EngineError::Internal {
            doing: "read the messages of a compaction",
            source: None,
        })
    }
}
