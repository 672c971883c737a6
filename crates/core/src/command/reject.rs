//! The reasons for rejecting a command. A rejected command changes nothing.
//!
//! The server returns the texts to callers, so they name fields and settings of the contract.

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
    /// A size exceeds a limit of the server or the policy.
    #[error("{field} has {actual} bytes, and the limit is {limit} bytes: send less content")]
    TooLarge {
        /// The path of the field.
        field: String,
        /// The limit in bytes.
        limit: usize,
        /// The given size in bytes.
        actual: usize,
    },
    /// The message id exists with other content.
    #[error("message {id} already exists with other content: use another id for the new message")]
    MessageConflict {
        /// The id of the message.
        id: MessageId,
        /// The digest of the stored message.
        stored: Digest,
        /// The digest of the given message.
        given: Digest,
    },
    /// The request id was used with another body.
    #[error("this request_id was used with another body: use a new request_id for each request")]
    RequestConflict {
        /// The request id.
        request_id: Box<str>,
        /// The digest of the earlier body.
        stored: Digest,
        /// The digest of the given body.
        given: Digest,
    },
    /// The call has another result.
    #[error(
        "{} already has another result: use a new call for the new result",
        .call.map_or_else(|| "the call".to_owned(), |call| format!("call {call}"))
    )]
    ResultConflict {
        /// The call. `None` if its message was not appended yet.
        call: Option<CallKey>,
        /// The digest of the stored result.
        stored: Box<str>,
        /// The digest of the given result.
        given: Box<str>,
    },
    /// The session is not at the revision that the caller expects.
    #[error(
        "the session is at revision {current}, not at {expected}: read the session again, then retry"
    )]
    RevisionMismatch {
        /// The revision that the caller expects.
        expected: Revision,
        /// The session's current revision.
        current: Revision,
    },
    /// The requested revision is later than the current one.
    #[error("the session has no revision {revision}: it is at revision {current}")]
    RevisionNotFound {
        /// The requested revision.
        revision: Revision,
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
    #[error(
        "messages[{index}].metadata.parent_id: the session has no message {id}. Append that message \
         first, or omit parent_id"
    )]
    ParentNotFound {
        /// The index of the message in the call, starting at 0.
        index: usize,
        /// The id of the missing parent.
        id: MessageId,
    },
    /// The message left the view.
    #[error("message {id} is not in the view: choose a visible message")]
    MessageNotVisible {
        /// The id of the message.
        id: MessageId,
        /// The visibility of the message.
        visibility: Visibility,
    },
    /// The array belongs to another conversation than the session.
    #[error("the array belongs to another conversation: send it under another session name")]
    OtherArray {
        /// The name of its lane.
        lane: String,
        /// True if the array is a branch of the session's own conversation.
        is_branch: bool,
    },
    /// The array leaves the array of a session that was found by content. Such a session is forked.
    #[error("the array belongs to a fork of the session: send it under another session name")]
    ArrayForks {
        /// The last message that both conversations share. `None` if they share no response, so that they can have equal
        /// beginnings by chance.
        shared: Option<MessageId>,
    },
    /// A comparison needs the original of a message that is not in memory.
    #[error("message {id} is not in memory")]
    OriginalNotLoaded {
        /// The id of the message.
        id: MessageId,
    },
    /// The session has no call with this key.
    #[error("the session has no such tool call: append the message with the call first")]
    CallNotFound(CallKey),
    /// The given key and the given id belong to different calls.
    #[error("call {call} has another tool_use_id: omit one of the two")]
    CallMismatch {
        /// The call with the given key.
        call: CallKey,
        /// The given id.
        id: Box<str>,
    },
    /// Several calls share the given id.
    #[error("several calls share this tool_use_id: use call_key")]
    AmbiguousCall(Vec<CallKey>),
    /// The compaction is not running.
    #[error("the compaction is not running: it has finished, has failed, or never started")]
    CompactionNotFound {
        /// The key of the compaction.
        key: CompactionKey,
    },
    /// The session has no collapsed span with this id.
    #[error(
        "the session has no such collapsed span: use the id in its placeholder or in SpansCollapsed"
    )]
    SpanNotFound {
        /// The id as given.
        id: Box<str>,
    },
    /// At least one target of a snip cannot be removed.
    #[error(
        "nothing was snipped: {} cannot be snipped",
        .0.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ")
    )]
    NotSnippable(Vec<SnipTarget>),
    /// The view would exceed the block threshold.
    #[error(
        "the view would have {tokens} tokens, and requests are blocked at {block}: choose a later \
         revision, or set force"
    )]
    RestoreOverBlock {
        /// Tokens that the view would have.
        tokens: u64,
        /// The block threshold, in tokens.
        block: u64,
    },
    /// The working state would exceed the policy's limit.
    #[error(
        "the working state would have {bytes} bytes, and the limit is {limit}: remove entries, or \
         raise limits.max_working_state_bytes"
    )]
    WorkingStateTooLarge {
        /// The size that the working state would have, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The policy disables session memory.
    #[error("the session's policy disables this: see {setting}")]
    MemoryDisabled {
        /// The setting of the policy.
        setting: &'static str,
    },
    /// Session memory has another version than the edited one.
    #[error(
        "session memory has version {current}, not {expected}: read it again, then edit the current text"
    )]
    MemoryVersionMismatch {
        /// The version that the caller edited.
        expected: u64,
        /// The current version.
        current: u64,
    },
    /// The session has the maximum number of pending persist decisions.
    #[error("{0} stored results wait for their messages: append these messages first")]
    TooManyPendingResults(usize),
    /// The decision needs contents that are not in memory. The caller loads them and repeats the command.
    #[error("older messages of the session are not in memory")]
    ContentNotLoaded,
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

impl Rejection {
    /// Creates a rejection of an invalid field.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            what: what.into(),
        }
    }

    /// Rejects a count above a limit. `unit` is the plural noun for the counted things.
    pub(super) fn at_most(
        (actual, limit): (usize, usize),
        unit: &str,
        field: impl Into<String>,
    ) -> Result<(), Self> {
        if actual <= limit {
            return Ok(());
        }
        let what = format!("must have at most {limit} {unit}, has {actual}");
        Err(Self::invalid(field, what))
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
    pub rejection: SnipRejection,
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
