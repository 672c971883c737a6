//! Effects: work outside the session that a decision calls for.
//!
//! A decision only describes its effects. The caller performs each kind at its time, see [`Effect`].

use std::borrow::Cow;
use std::sync::Arc;

use crate::event::{StoredResult, Trigger, UnboundResult};
use crate::ids::Timestamp;
use crate::levels::results::file_content;
use crate::message::{Block, Message, ToolResult};
use crate::session::{Call, ContentNotLoaded, Session};

/// Work outside the session, at the time at which the caller performs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Before the commit: stores a file that an event of the decision names. If the file cannot be stored, the command
    /// is decided again with `can_store: false`.
    StoreFile(StoreFile),
    /// With the commit: enqueues the session for a worker, which processes session memory at this time or later.
    MemoryDue(Timestamp),
    /// After the commit: wakes the worker of this process, because session memory is due now. A lost wake-up only costs
    /// time, because workers poll the queue.
    WakeWorker,
    /// After the commit: begins work on the session. The caller of the transaction receives its follow-ups and begins
    /// them. A lost follow-up is found again by the next `CheckThresholds`, because the state still
    /// shows that the work is due.
    FollowUp(FollowUp),
}

/// Work that a prepared view calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUp {
    /// Compacts the view.
    Compact(Trigger),
    /// Selects spans for a later collapse (level 4).
    StageSpans,
    /// Writes a summary before a compaction needs it.
    PrepareSummary,
}

/// A result to store in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFile {
    /// The name of the file. No other command uses the same name.
    pub file: Box<str>,
    /// Size of the file, in bytes.
    pub bytes: u64,
    source: Source,
}

/// The result that a file contains. Shared, so that a decision copies no content.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A block of an appended message.
    Block(Arc<Message>, u16),
    /// A result whose message was not appended yet.
    Offered(Arc<ToolResult>),
}

impl StoreFile {
    /// Returns the effect that stores the result of a call.
    ///
    /// # Errors
    ///
    /// Returns an error if the call has no result in the view, or if its content is not in memory.
    pub(crate) fn of_call(
        session: &Session,
        stored: &StoredResult,
    ) -> Result<Self, ContentNotLoaded> {
        let call = session.calls().get(stored.call);
        let (message, block) = call.and_then(Call::result).ok_or(ContentNotLoaded)?;
        let message = Arc::clone(session.transcript().require_content(message)?);
        Ok(Self {
            file: stored.file.clone(),
            bytes: stored.bytes,
            source: Source::Block(message, block),
        })
    }

    /// Returns the effect that stores a result before its message is appended.
    pub(crate) fn offered(kept: &UnboundResult, result: Arc<ToolResult>) -> Self {
        Self {
            file: kept.file.clone(),
            bytes: kept.bytes,
            source: Source::Offered(result),
        }
    }

    /// Builds the content of the file: the text of the result, or its blocks as indented JSON.
    pub fn content(&self) -> Cow<'_, str> {
        match &self.source {
            Source::Offered(result) => file_content(result),
            Source::Block(message, block) => match message.blocks.get(usize::from(*block)) {
                Some(Block::ToolResult(result)) => file_content(result),
                _ => unreachable!("the result of a call is a result block"),
            },
        }
    }
}
