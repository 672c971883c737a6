//! The reasons for rejecting a command. A rejected command changes nothing.

use crate::event::Visibility;
use crate::ids::{CallKey, CompactionKey, MessageId, Revision};
use crate::message::Digest;
use crate::policy::OverlayError;
use crate::session::ContentNotLoaded;

/// The reason for rejecting a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A field is missing or invalid.
    #[error("{field} {what}")]
    Invalid {
        /// The path of the field.
        field: String,
        /// The problem, as the end of a sentence that begins with the field.
        what: String,
    },
    /// A value exceeds a limit of the server or the policy.
    #[error("{field} is too large: {actual}, and the limit is {limit}")]
    TooLarge {
        /// The path of the field.
        field: String,
        /// The limit.
        limit: usize,
        /// The given value.
        actual: usize,
    },
    /// An id is used already for other content.
    #[error(transparent)]
    Conflict(Conflict),
    /// The session is not at the revision that the caller expects.
    #[error("the session is at revision {current}, not at {expected}: read it again and retry")]
    RevisionMismatch {
        /// The revision that the caller expects.
        expected: Revision,
        /// The session's current revision.
        current: Revision,
    },
    /// The session does not contain the message.
    #[error("the session has no message {id}")]
    MessageNotFound {
        /// The id of the message.
        id: MessageId,
    },
    /// The parent of a message is neither in the session nor in the same call.
    #[error("messages[{index}].metadata.parent_id: the session has no message {id}")]
    ParentNotFound {
        /// The index of the message in the call, starting at 0.
        index: usize,
        /// The id of the missing parent.
        id: MessageId,
    },
    /// The compaction is not running.
    #[error("{key} is not under way: it has finished, has failed, or never began")]
    CompactionNotFound {
        /// The key of the compaction.
        key: CompactionKey,
    },
    /// The session has no collapsed span with this id.
    #[error("the session has no folded span {id}")]
    SpanNotFound {
        /// The id as given.
        id: Box<str>,
    },
    /// The message left the view.
    #[error("message {id} is not in the view any more: name one that is")]
    NotVisible {
        /// The id of the message.
        id: MessageId,
    },
    /// At least one target of a snip cannot be removed.
    #[error(
        "{} cannot be removed: nothing was",
        .0.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ")
    )]
    NotSnippable(Vec<SnipTarget>),
    /// The requested revision is later than the current one. Contains both, in this order.
    #[error("the session has no revision {0}: it is at revision {1}")]
    RevisionNotFound(Revision, Revision),
    /// The view would exceed the block threshold.
    #[error("the view would have {tokens} tokens, and requests are blocked from {block} on")]
    OverBlock {
        /// Tokens that the view would have.
        tokens: u64,
        /// The block threshold, in tokens.
        block: u64,
    },
    /// The decision needs contents that are not in memory. The caller loads them and repeats the command.
    #[error("older messages of the session are not in memory")]
    ContentNotLoaded,
    /// The session has no call with this key.
    #[error("the session has no call {0}")]
    CallNotFound(CallKey),
    /// The given key and the given id belong to different calls.
    #[error("call {call} has another tool_use_id than the one given: leave one of the two out")]
    CallMismatch {
        /// The call with the given key.
        call: CallKey,
        /// The given id.
        id: Box<str>,
    },
    /// Several calls share the given id.
    #[error("several calls share this tool_use_id: name one by its call_key")]
    AmbiguousCall(Vec<CallKey>),
    /// The working state would exceed the policy's limit.
    #[error("the working state would have {bytes} bytes, and the limit is {limit}: remove entries")]
    WorkingStateTooLarge {
        /// The size that the working state would have, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The session has the maximum number of pending persist decisions.
    #[error("{0} stored results wait for their messages: append some of them first")]
    TooManyPendingResults(usize),
}

impl From<OverlayError> for Rejection {
    fn from(error: OverlayError) -> Self {
        Self::invalid(error.path, error.message)
    }
}

impl From<ContentNotLoaded> for Rejection {
    fn from(ContentNotLoaded: ContentNotLoaded) -> Self {
        Self::ContentNotLoaded
    }
}

/// An id is used already for other content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The message id exists with other content.
    #[error("message {id} is there already and says something else: give the new one another id")]
    Message {
        /// The id of the message.
        id: MessageId,
        /// The digest of the stored message.
        recorded: Digest,
        /// The digest of the given message.
        given: Digest,
    },
    /// The request id was used with another body.
    #[error("this request_id was used for another body: give each request its own")]
    Request {
        /// The digest of the earlier body.
        recorded: Digest,
        /// The digest of the given body.
        given: Digest,
    },
    /// The call has another result.
    #[error("the call has another result: give the new one a call of its own")]
    Result {
        /// The call. `None` if its message was not appended yet.
        call: Option<CallKey>,
        /// The digest of the stored result.
        recorded: Box<str>,
        /// The digest of the given result.
        given: Box<str>,
    },
}

impl Rejection {
    /// Creates a rejection of an invalid field.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            what: what.into(),
        }
    }
}

/// A target of a snip that cannot be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnipTarget {
    /// The path of the field that names the target.
    pub field: String,
    /// The name of the target as given.
    pub name: String,
    /// The reason.
    pub refused: SnipRejection,
    /// The id of the pin that protects the target or a part of it, if that is the reason.
    pub pin: Option<Box<str>>,
}

/// The reason why a target cannot be snipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnipRejection {
    /// The session does not contain the target.
    NotFound,
    /// The target was snipped before.
    AlreadySnipped,
    /// The target is hidden for another reason. A block can be hidden in a visible message.
    NotVisible(Visibility),
    /// The target is the current user turn.
    IsCurrent,
    /// The target is pinned, or a part that would leave with it is pinned.
    Pinned,
}
