//! The interface between the worker and the owner of the sessions.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_core::command::{FailMemoryUpdate, RecordMemoryVersion};
use palimpsest_core::ids::{Ordinal, Revision, SessionKey, Timestamp};
use palimpsest_core::message::Message;
use palimpsest_core::policy::{SessionMemoryPolicy, SummaryPolicy};
use palimpsest_core::session::SessionMemory;

/// The state of a session that the worker needs to decide and to write an update.
#[derive(Debug, Clone)]
pub struct MemoryJob {
    /// The session's revision.
    pub revision: Revision,
    /// True if the policy enables session memory.
    pub is_enabled: bool,
    /// Time at which an update is due, or `None` if no update is needed.
    pub due: Option<Timestamp>,
    /// The current session memory, with its last failure.
    pub session_memory: SessionMemory,
    /// True if the text mentions messages that were removed from the view by a rewind or a snip.
    pub is_invalidated: bool,
    /// The last message that an update may read now.
    pub readable_through: Option<Ordinal>,
    /// The policy of session memory: its limits.
    pub memory: SessionMemoryPolicy,
    /// The policy of summaries: the model and the redaction of secrets.
    pub summary: SummaryPolicy,
}

impl MemoryJob {
    /// Returns the number of the latest version. 0 if there is none.
    pub(crate) fn version_number(&self) -> u64 {
        let version = self.session_memory.version.as_ref();
        version.map_or(0, |version| version.number)
    }
}

/// A page of messages in the order of the session.
#[derive(Debug, Clone, Default)]
pub struct MessagePage {
    /// The messages of the page, without rewound or snipped ones.
    pub messages: Vec<Arc<Message>>,
    /// The message after which the next page begins, or `None` on the last page.
    pub next: Option<Ordinal>,
}

/// An error of the host. Its text never contains content of a conversation.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The session does not exist any more.
    #[error("the session was deleted")]
    SessionNotFound,
    /// The session rejected the text, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The session could not be read or written.
    #[error("failed to reach the session: {0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// Access to sessions for the worker.
#[async_trait]
pub trait SessionHost: Send + Sync + 'static {
    /// Returns the state of a session, or `None` if the session does not exist.
    async fn job(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError>;

    /// Returns the state as this worker left it, for later steps of a pass. Changes of other writers are detected by
    /// the next write or by [`Self::job`].
    async fn job_cached(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        self.job(key).await
    }

    /// Returns the messages after `after`, up to `to`. The page has about `max_bytes` bytes and at least one message.
    async fn messages(
        &self,
        key: &SessionKey,
        after: Option<Ordinal>,
        to: Ordinal,
        max_bytes: usize,
    ) -> Result<MessagePage, HostError>;

    /// Records the start of an update, after the template if session memory has no version yet. Returns the state
    /// after the start, or `None` if no update is due any more.
    async fn begin(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError>;

    /// Records a version, together with a failure that occurred before it. `began` is the start of the update, or
    /// `None` for an edit.
    ///
    /// Returns false if another writer was faster, if an edit changes nothing, or if the session does not have the
    /// update that `began` names.
    async fn commit(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failed: Option<FailMemoryUpdate>,
        update: RecordMemoryVersion,
    ) -> Result<bool, HostError>;

    /// Records a failure, unless the session does not have the update that `began` names.
    async fn fail(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failure: FailMemoryUpdate,
    ) -> Result<(), HostError>;

    /// Records that the file contains the text, after an earlier failure to write it.
    async fn file_written(&self, key: &SessionKey) -> Result<(), HostError>;
}
