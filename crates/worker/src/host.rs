//! What the worker needs of whoever has the sessions.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_core::command::{FailMemory, UpdateMemory};
use palimpsest_core::ids::{Ordinal, Revision, SessionKey, Timestamp};
use palimpsest_core::message::Message;
use palimpsest_core::policy::{SessionMemoryPolicy, SummaryPolicy};
use palimpsest_core::session::SessionMemory;

/// What there is to do for a session, and upon what.
#[derive(Debug, Clone)]
pub struct MemoryJob {
    /// The session's revision.
    pub revision: Revision,
    /// Whether its policy wants a summary at all.
    pub wanted: bool,
    /// When an update of the text is due.
    pub due: Option<Timestamp>,
    /// The text as it is, and what became of it.
    pub session_memory: SessionMemory,
    /// Whether the text speaks of messages that were taken back.
    pub is_false: bool,
    /// The last message that an update may read now.
    pub reach: Option<Ordinal>,
    /// How the summary is kept.
    pub memory: SessionMemoryPolicy,
    /// Who writes it.
    pub summary: SummaryPolicy,
}

/// Messages in the order of the session.
#[derive(Debug, Clone, Default)]
pub struct MessagePage {
    /// Those of them that nobody has taken back.
    pub messages: Vec<Arc<Message>>,
    /// After which message to go on; none when that were all.
    pub next: Option<Ordinal>,
}

/// Why the host could not do something. No text of these repeats what a conversation says.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The session is gone.
    #[error("the session is gone")]
    Gone,
    /// The text is not taken, for this reason.
    #[error("{0}")]
    Refused(String),
    /// It could not be read or written.
    #[error("failed to reach the session: {0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// Who has the sessions.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// What there is to do for a session; none when it is gone.
    async fn job(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError>;

    /// The same as this worker left it, for the steps after the first: what others wrote since is met when it writes,
    /// and at the next look.
    async fn job_cached(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        self.job(key).await
    }

    /// The messages after one, up to another, about `max_bytes` of them and at least one.
    async fn messages(
        &self,
        key: &SessionKey,
        after: Option<Ordinal>,
        to: Ordinal,
        max_bytes: usize,
    ) -> Result<MessagePage, HostError>;

    /// Records that an update begins; where there is no text yet, the template first. What there is to do
    /// then; none when nothing is any more.
    async fn begin(&self, key: &SessionKey, template: &str)
    -> Result<Option<MemoryJob>, HostError>;

    /// Records a version, and before it what failed on the way, together. False when somebody else has
    /// written meanwhile, when a person's text says what is there already, or when the session knows nothing of the
    /// update that the version comes of, if it comes of one that `began`.
    async fn commit(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failed: Option<FailMemory>,
        update: UpdateMemory,
    ) -> Result<bool, HostError>;

    /// Records a failure, unless it is one of an update that the session knows nothing of.
    async fn fail(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failure: FailMemory,
    ) -> Result<(), HostError>;

    /// Records that the file holds the text, after it was said not to.
    async fn filed(&self, key: &SessionKey) -> Result<(), HostError>;
}
