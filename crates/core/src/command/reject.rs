//! Why a command is refused. A refused command changes nothing.

use crate::event::Visibility;
use crate::ids::{CallKey, CompactionKey, MessageId, Revision};
use crate::message::Digest;
use crate::policy::OverlayError;
use crate::session::ContentNotLoaded;

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A field is missing or wrong.
    #[error("{field} {what}")]
    Invalid {
        /// The path of the field.
        field: String,
        /// What is wrong with it; completes a sentence that begins with the field.
        what: String,
    },
    /// More than the server takes.
    #[error("{field} is too large: {actual}, and the limit is {limit}")]
    TooLarge {
        /// The path of the field.
        field: String,
        /// The limit.
        limit: usize,
        /// What was given.
        actual: usize,
    },
    /// The same name stands for something else already.
    #[error(transparent)]
    Conflict(Conflict),
    /// The session went on meanwhile.
    #[error("the session is at revision {current}, not at {expected}: read it again and retry")]
    RevisionMismatch {
        /// What the caller thought.
        expected: Revision,
        /// What is so.
        current: Revision,
    },
    /// There is no such message.
    #[error("the session has no message {id}")]
    MessageNotFound {
        /// The id.
        id: MessageId,
    },
    /// A message follows one that is neither in the session nor in the same call.
    #[error("messages[{index}].metadata.parent_id: the session has no message {id}")]
    ParentNotFound {
        /// The index of the message in the call, from 0.
        index: usize,
        /// The id of the missing one.
        id: MessageId,
    },
    /// No such compaction is under way.
    #[error("{key} is not under way: it has finished, has failed, or never began")]
    CompactionNotFound {
        /// Its key.
        key: CompactionKey,
    },
    /// There is no such folded span.
    #[error("the session has no folded span {id}")]
    SpanNotFound {
        /// The id, as it was given.
        id: Box<str>,
    },
    /// The message has left the view.
    #[error("message {id} is not in the view any more: name one that is")]
    NotVisible {
        /// The id.
        id: MessageId,
    },
    /// Something that was to be snipped cannot be.
    #[error(
        "{} cannot be removed: nothing was",
        .0.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ")
    )]
    NotSnippable(Vec<SnipTarget>),
    /// There is no event with this revision to go back to.
    #[error("the session has no revision {0}: it is at revision {1}")]
    RevisionNotFound(Revision, Revision),
    /// The view would be over the block threshold.
    #[error("the view would have {tokens} tokens, and requests are blocked from {block} on")]
    OverBlock {
        /// What it would have.
        tokens: u64,
        /// Where requests are blocked.
        block: u64,
    },
    /// The decision needs contents that are not in memory: to be asked again when they are.
    #[error("older messages of the session are not in memory")]
    ContentNotLoaded,
    /// There is no such call.
    #[error("the session has no call {0}")]
    CallNotFound(CallKey),
    /// A call was named by a key and by an id that is another's.
    #[error("call {call} has another tool_use_id than the one given: leave one of the two out")]
    CallMismatch {
        /// The call of the key.
        call: CallKey,
        /// The id.
        id: Box<str>,
    },
    /// Several calls share an id.
    #[error("several calls share this tool_use_id: name one by its call_key")]
    AmbiguousCall(Vec<CallKey>),
    /// The working state would be larger than the policy allows.
    #[error("the working state would have {bytes} bytes, and the limit is {limit}: remove entries")]
    WorkingStateTooLarge {
        /// What it would have.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many results wait for their messages.
    #[error("{0} stored results wait for their messages: append some of them first")]
    TooManyPendingResults(usize),
}

impl From<OverlayError> for Rejection {
    fn from(error: OverlayError) -> Self {
        Self::invalid(error.path, error.what)
    }
}

impl From<ContentNotLoaded> for Rejection {
    fn from(ContentNotLoaded: ContentNotLoaded) -> Self {
        Self::ContentNotLoaded
    }
}

/// The same name stands for something else already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// A message with this id says something else.
    #[error("message {id} is there already and says something else: give the new one another id")]
    Message {
        /// The id.
        id: MessageId,
        /// What is there.
        recorded: Digest,
        /// What was given.
        given: Digest,
    },
    /// A request with this id asked for something else.
    #[error("this request_id was used for another body: give each request its own")]
    Request {
        /// What was asked then.
        recorded: Digest,
        /// What is asked now.
        given: Digest,
    },
    /// The call has another result.
    #[error("the call has another result: give the new one a call of its own")]
    Result {
        /// The call, when its message is there.
        call: Option<CallKey>,
        /// What is there, in short.
        recorded: Box<str>,
        /// What was given, in short.
        given: Box<str>,
    },
}

impl Rejection {
    /// A wrong field.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            what: what.into(),
        }
    }
}

/// Something that was to be snipped and cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnipTarget {
    /// The path of the field that names it.
    pub field: String,
    /// What was named.
    pub name: String,
    /// Why it cannot be.
    pub refused: SnipRejection,
    /// The pin that holds it or a part of it, when that is why.
    pub pin: Option<Box<str>>,
}

/// Why something cannot be snipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnipRejection {
    /// The session never had it.
    NotFound,
    /// It was snipped before.
    AlreadySnipped,
    /// It left the view in another way; a block may be hidden in a message that has not.
    NotVisible(Visibility),
    /// It is the turn that is going on.
    IsCurrent,
    /// It is pinned, or something is that would leave with it.
    Pinned,
}
