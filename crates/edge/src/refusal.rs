//! The error type of this crate for calls. Each port maps it to the errors of its protocol.

use std::time::Duration;

use palimpsest_core::ids::{ProjectId, SessionKey};

use crate::access::Right;

/// The reason for rejecting a call before its handler runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session does not exist, or belongs to another tenant.
    #[error("the session {0} does not exist for this credential")]
    SessionNotFound(SessionKey),
    /// The project belongs to another tenant.
    #[error("projects/{0} does not exist for this credential")]
    ProjectNotFound(ProjectId),
    /// The credential lacks a right in the project.
    #[error("the credential does not have the right {right} in projects/{project}")]
    Forbidden {
        /// The required right.
        right: Right,
        /// The project of the call.
        project: ProjectId,
    },
    /// A limit on concurrent work or on memory is reached.
    #[error("the server is overloaded")]
    Overloaded {
        /// The delay after which the caller should retry.
        retry_after: Duration,
    },
}
