//! Everything that can go wrong with a call, and how the domain's refusals become part of it.
//!
//! `status` turns it into what goes over the wire, the only place that does. A store's errors are
//! told apart where the store is called, because only there it is known which call may be repeated.

mod status;
#[cfg(test)]
#[expect(
    clippy::needless_raw_string_hashes,
    reason = "as expect-test writes them"
)]
mod tests;

use std::error::Error;
use std::time::Duration;

use palimpsest_core::codec::CodecError;
use palimpsest_core::command::{Conflict, Rejection, SnipRejection, SnipTarget};
use palimpsest_core::ids::{CallKey, CompactionKey, MessageId, ProjectId, Revision, SessionKey};
use palimpsest_core::json::JsonError;
use palimpsest_core::message::Digest;
use palimpsest_engine::quotas::QuotaExceeded;
use palimpsest_proto::context::v1::{
    CompactionFailureReason, ErrorReason, SkipReason, TokenReport, ToolCall, Visibility,
};

use crate::access::{AuthError, Right};
use crate::convert::{self, FieldError, FieldProblem, InvalidPageToken, PatternError};

/// Any error, for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a call is refused.
///
/// What an error holds is said to the caller, except for the source of [`Self::Internal`]. Fields
/// and what is wrong with them must be free of message content.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// A field is missing or wrong.
    Invalid {
        /// Its path in the request.
        field: String,
        /// Completes a sentence that begins with the field.
        what: String,
    },
    /// The bytes of the call are no message of the method's type.
    MalformedRequest,
    /// A payload is not JSON, or not of its format.
    InvalidPayload {
        /// The path of the payload in the request.
        field: String,
        /// A path into the payload; empty for the payload as a whole.
        path: String,
        /// Completes a sentence that begins with the path.
        what: String,
        /// Where in the payload, where that is known.
        byte_offset: Option<usize>,
    },
    /// A regular expression does not compile.
    InvalidPattern {
        /// Its path in the request.
        field: String,
        /// Completes a sentence that begins with the field.
        what: String,
        /// Where in the pattern, in characters.
        char_offset: usize,
    },
    /// A page token is malformed, or from a request with other filters.
    InvalidPageToken,
    /// There is no such session, or it is another tenant's.
    SessionNotFound {
        /// Its name.
        session: SessionKey,
    },
    /// The session must be kept.
    SessionOnHold {
        /// Its name.
        session: SessionKey,
    },
    /// An earlier session of that name was deleted and is still being removed.
    SessionDeleting {
        /// Its name.
        session: SessionKey,
        /// When it may be gone.
        retry_after: Duration,
    },
    /// The session has no such message or block.
    MessageNotFound {
        /// The message.
        id: MessageId,
        /// The block, where the message is there and the block is not.
        block_index: Option<u32>,
    },
    /// A message is to follow one that the session does not have.
    ParentNotFound {
        /// The index of the message in the call, from 0.
        index: usize,
        /// The missing message.
        id: MessageId,
    },
    /// No such compaction is under way.
    CompactionNotFound {
        /// Its key.
        key: CompactionKey,
    },
    /// No delegated compaction has this token, or not any more.
    DelegationNotFound {
        /// The compaction, where the token says so.
        key: Option<CompactionKey>,
    },
    /// Another compaction of the session runs.
    CompactionRunning {
        /// Which.
        key: CompactionKey,
    },
    /// What a compaction summarised was changed meanwhile.
    RangeChanged {
        /// Which.
        key: CompactionKey,
        /// The session's revision.
        current: Revision,
    },
    /// The provider refused the prompt, and nothing more can leave it.
    PromptTooLong {
        /// What it has.
        tokens: Box<TokenReport>,
    },
    /// The session has no such folded span.
    SpanNotFound {
        /// Its id, as it was given.
        id: Box<str>,
    },
    /// The session has no such call.
    CallNotFound {
        /// The key, where it was asked for.
        call_key: Option<CallKey>,
        /// The provider's id, where it was asked for.
        tool_use_id: Option<String>,
    },
    /// A session has this name.
    SessionExists {
        /// Its name.
        session: SessionKey,
    },
    /// Other sessions name this one as their parent.
    SessionHasSubagents {
        /// Its name.
        session: SessionKey,
        /// How many they are.
        subagents: usize,
    },
    /// A message has this id and other content.
    MessageConflict {
        /// The id.
        id: MessageId,
        /// What is there.
        stored: Digest,
        /// What was given.
        given: Digest,
    },
    /// A call with this request id and another body was made before.
    RequestConflict {
        /// The id, where it is known.
        request_id: Option<String>,
        /// What was asked then.
        stored: Digest,
        /// What is asked now.
        given: Digest,
    },
    /// The session is not at the revision that the caller expects.
    RevisionMismatch {
        /// What the caller thought.
        expected: Revision,
        /// What is so.
        current: Revision,
    },
    /// The view of an etag has changed.
    ViewChanged {
        /// The session's revision.
        current: Revision,
    },
    /// The message is not in the view.
    MessageNotVisible {
        /// The message.
        id: MessageId,
        /// Why not.
        visibility: Visibility,
    },
    /// Some of what was to be snipped cannot be.
    NotSnippable {
        /// What, and why.
        targets: Vec<RejectedTarget>,
    },
    /// The session has not been at this revision.
    RevisionNotFound {
        /// The revision.
        revision: Revision,
        /// The session's own.
        current: Revision,
    },
    /// The view that would come back is over the block threshold.
    RestoreOverBlock {
        /// What it would have.
        tokens: u64,
        /// Where requests are blocked.
        block: u64,
    },
    /// The policy turns it off.
    DisabledByPolicy {
        /// The setting's path.
        setting: &'static str,
    },
    /// There is nothing that could be compacted.
    NothingToCompact {
        /// Why.
        skip: SkipReason,
    },
    /// The model that was asked for wrote no summary that could be taken.
    NoSummary {
        /// Why.
        why: CompactionFailureReason,
        /// The same for a person, with what to do about it.
        detail: String,
        /// The model.
        model: String,
    },
    /// A hook does not want the compaction.
    HookVetoed {
        /// Which hook.
        hook: &'static str,
        /// Its reason.
        reason: String,
    },
    /// A hook failed, and its rule says to stop.
    HookFailed {
        /// Which hook.
        hook: &'static str,
        /// How it failed.
        detail: String,
    },
    /// Several calls share the id.
    AmbiguousCall {
        /// The field that names it.
        field: String,
        /// The calls.
        candidates: Vec<ToolCall>,
    },
    /// A call is named by a key and by an id that is another's.
    CallMismatch {
        /// The key.
        call_key: CallKey,
        /// The id.
        tool_use_id: String,
    },
    /// A model for summaries that the caller may not choose.
    ModelNotAllowed {
        /// The path of the field that names it.
        field: String,
        /// Its name.
        model: String,
    },
    /// Too many stored results wait for their messages.
    TooManyPendingResults {
        /// How many may wait.
        limit: usize,
    },
    /// There is no such result.
    ResultNotFound {
        /// The call's key, or the reference.
        name: String,
    },
    /// The call has another stored result.
    ResultConflict {
        /// The call, when its message is there.
        call: Option<CallKey>,
        /// What is there.
        stored: String,
        /// What was given.
        given: String,
    },
    /// The service has no such tool.
    ToolNotFound {
        /// Its name.
        tool: String,
    },
    /// A part of the call is larger than the server takes.
    TooLarge {
        /// Its path in the request.
        field: String,
        /// Its size.
        actual: usize,
        /// The limit.
        limit: usize,
    },
    /// The working state would be larger than the policy allows.
    WorkingStateTooLarge {
        /// What it would have.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The whole call is larger than the server takes.
    RequestTooLarge {
        /// Its size, as far as it was announced.
        actual: usize,
        /// The limit.
        limit: usize,
    },
    /// The call would take more memory than the server gives one, once it is decoded.
    RequestTooComplex {
        /// Bytes that it may take.
        limit: usize,
    },
    /// The caller has not said who they are, or not so that it is taken.
    Unauthenticated {
        /// Why.
        why: AuthError,
    },
    /// The caller may see the project, and not do this there.
    PermissionDenied {
        /// What they would have to be allowed.
        right: Right,
        /// Where; everywhere, when it is about all projects at once.
        project: Option<ProjectId>,
    },
    /// The project is another tenant's.
    ProjectNotFound {
        /// Which.
        project: ProjectId,
    },
    /// The server has too much to do.
    Overloaded {
        /// When to try again.
        retry_after: Duration,
    },
    /// A quota is used up.
    QuotaExceeded(QuotaExceeded),
    /// The call took longer than its deadline, or than the server allows.
    DeadlineExceeded,
    /// The store cannot read or write now.
    StoreUnavailable {
        /// When to try again.
        retry_after: Duration,
    },
    /// The store does not hold the history that the call began to read any more.
    HistoryChanged {
        /// The session.
        session: SessionKey,
        /// When to try again.
        retry_after: Duration,
    },
    /// The store's disk is full, or takes no writes.
    StoreFull {
        /// Why, and what to do about it.
        why: &'static str,
        /// When to try again.
        retry_after: Duration,
    },
    /// The server is going down or still starting.
    ShuttingDown {
        /// When to try again; another replica may answer at once.
        retry_after: Duration,
    },
    /// The method is part of the contract and not of this version.
    NotImplemented {
        /// Its full name, `package.Service/Method`.
        method: String,
    },
    /// A fault of the service. The caller learns no more than that; the source is logged.
    Internal {
        /// What was being done; completes "failed to …".
        doing: &'static str,
        /// What went wrong, where it is known.
        source: Option<BoxError>,
    },
}

impl ServiceError {
    /// A wrong field.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            what: what.into(),
        }
    }

    /// A fault of the service while `doing`.
    pub fn internal(doing: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Internal {
            doing,
            source: Some(source.into()),
        }
    }

    /// What could not be read of the payload at `field`.
    pub fn payload(field: impl Into<String>, payload: &[u8], error: CodecError) -> Self {
        Self::InvalidPayload {
            field: field.into(),
            byte_offset: byte_offset(payload, &error),
            path: error.path,
            what: error.error.to_string(),
        }
    }

    /// Names the request of a conflict: the domain knows only its digests.
    #[must_use]
    pub fn with_request_id(mut self, id: &str) -> Self {
        if let Self::RequestConflict { request_id, .. } = &mut self {
            *request_id = Some(id.to_owned());
        }
        self
    }
}

fn byte_offset(payload: &[u8], error: &CodecError) -> Option<usize> {
    match error.error {
        JsonError::Utf8 { at } => Some(at),
        // Lines count from the start of what was parsed, which is all of it only at the top.
        JsonError::Syntax { line, column, .. } if error.path.is_empty() => {
            let lines = payload.split_inclusive(|byte| *byte == b'\n');
            let start: usize = lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
            Some((start + column.saturating_sub(1)).min(payload.len()))
        }
        _ => None,
    }
}

impl From<FieldError> for ServiceError {
    fn from(error: FieldError) -> Self {
        let field = error.path;
        match error.problem {
            FieldProblem::Missing => Self::invalid(field, "must be set"),
            FieldProblem::Invalid(what) => Self::Invalid { field, what },
            FieldProblem::TooLarge { limit, actual } => Self::TooLarge {
                field,
                actual,
                limit,
            },
            FieldProblem::Payload { path, error } => Self::InvalidPayload {
                field,
                byte_offset: match error {
                    JsonError::Utf8 { at } => Some(at),
                    _ => None,
                },
                path,
                what: error.to_string(),
            },
        }
    }
}

impl From<PatternError> for ServiceError {
    fn from(error: PatternError) -> Self {
        match error {
            PatternError::Field(error) => error.into(),
            PatternError::Syntax { field, char_offset } => Self::InvalidPattern {
                field,
                what: "is not a regular expression".to_owned(),
                char_offset,
            },
            PatternError::Empty { field } => Self::InvalidPattern {
                field,
                what: "matches the empty string: write it so that it matches one character or \
                       more, such as `a+` in place of `a*`"
                    .to_owned(),
                char_offset: 0,
            },
        }
    }
}

impl From<InvalidPageToken> for ServiceError {
    fn from(InvalidPageToken: InvalidPageToken) -> Self {
        Self::InvalidPageToken
    }
}

/// Something that was to be snipped and cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTarget {
    /// The path of the field that names it.
    pub field: String,
    /// What was named.
    pub name: String,
    /// Why it cannot be.
    pub reason: ErrorReason,
    /// Where it is, when that is why.
    pub visibility: Option<Visibility>,
    /// The pin that holds it, when that is why.
    pub pin: Option<Box<str>>,
}

impl From<SnipTarget> for RejectedTarget {
    fn from(target: SnipTarget) -> Self {
        let is_turn = target.field.starts_with("turn_ids");
        Self {
            visibility: match target.refused {
                SnipRejection::NotVisible(standing) => Some(convert::visibility(standing)),
                SnipRejection::AlreadySnipped if !is_turn => Some(Visibility::Snipped),
                _ => None,
            },
            reason: convert::refused(target.refused, is_turn),
            field: target.field,
            name: target.name,
            pin: target.pin,
        }
    }
}

impl From<Rejection> for ServiceError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Invalid { field, what } => Self::Invalid { field, what },
            Rejection::TooLarge {
                field,
                limit,
                actual,
            } => Self::TooLarge {
                field,
                actual,
                limit,
            },
            Rejection::Conflict(Conflict::Message {
                id,
                recorded,
                given,
            }) => Self::MessageConflict {
                id,
                stored: recorded,
                given,
            },
            Rejection::Conflict(Conflict::Request { recorded, given }) => Self::RequestConflict {
                request_id: None,
                stored: recorded,
                given,
            },
            Rejection::RevisionMismatch { expected, current } => {
                Self::RevisionMismatch { expected, current }
            }
            Rejection::MessageNotFound { id } => Self::MessageNotFound {
                id,
                block_index: None,
            },
            Rejection::ParentNotFound { index, id } => Self::ParentNotFound { index, id },
            Rejection::CompactionNotFound { key } => Self::CompactionNotFound { key },
            Rejection::SpanNotFound { id } => Self::SpanNotFound { id },
            Rejection::NotVisible { id } => Self::MessageNotVisible {
                id,
                visibility: Visibility::Rewound,
            },
            Rejection::NotSnippable(targets) => Self::NotSnippable {
                targets: targets.into_iter().map(RejectedTarget::from).collect(),
            },
            Rejection::RevisionNotFound(revision, current) => {
                Self::RevisionNotFound { revision, current }
            }
            Rejection::OverBlock { tokens, block } => Self::RestoreOverBlock { tokens, block },
            Rejection::Conflict(Conflict::Result {
                call,
                recorded,
                given,
            }) => Self::ResultConflict {
                call,
                stored: recorded.into(),
                given: given.into(),
            },
            Rejection::CallNotFound(call) => Self::CallNotFound {
                call_key: Some(call),
                tool_use_id: None,
            },
            Rejection::CallMismatch { call, id } => Self::CallMismatch {
                call_key: call,
                tool_use_id: id.into(),
            },
            // The service that ran the command knows more of them than their keys.
            Rejection::AmbiguousCall(calls) => Self::AmbiguousCall {
                field: "call.tool_use_id".into(),
                candidates: calls.into_iter().map(convert::keyed_call).collect(),
            },
            Rejection::WorkingStateTooLarge { bytes, limit } => {
                Self::WorkingStateTooLarge { bytes, limit }
            }
            Rejection::TooManyPendingResults(limit) => Self::TooManyPendingResults { limit },
            // Whoever runs a command reads the contents and asks again, so this is never told.
            not_held @ Rejection::ContentNotLoaded => Self::internal("decide a command", not_held),
        }
    }
}
