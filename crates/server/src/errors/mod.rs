//! The error type of all services, and its conversions from domain errors.
//!
//! The submodule `status` is the only place that converts a [`ServiceError`] to a gRPC status. Store errors are
//! converted at the call site, because only the call site can tell if the call may be retried.

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

/// Any error, boxed for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The reason for rejecting or failing a call.
///
/// All fields are returned to the caller, except the source of [`Self::Internal`]. Field paths and their
/// descriptions must not contain message content.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// A request field is missing or invalid.
    Invalid {
        /// The path of the field in the request.
        field: String,
        /// The predicate of a sentence whose subject is the field path.
        what: String,
    },
    /// The request bytes do not decode as the method's request message.
    MalformedRequest,
    /// A payload is not valid JSON, or violates its format.
    InvalidPayload {
        /// The path of the payload in the request.
        field: String,
        /// The path inside the payload. Empty for the payload as a whole.
        path: String,
        /// The predicate of a sentence whose subject is the path.
        what: String,
        /// The byte offset of the error in the payload, if known.
        byte_offset: Option<usize>,
    },
    /// A regular expression does not compile.
    InvalidPattern {
        /// The path of the field in the request.
        field: String,
        /// The predicate of a sentence whose subject is the field path.
        what: String,
        /// The position of the error in the pattern, in characters.
        char_offset: usize,
    },
    /// A page token is malformed, or was issued for a request with other filters.
    InvalidPageToken,
    /// The session does not exist, or belongs to another tenant.
    SessionNotFound {
        /// The name of the session.
        session: SessionKey,
    },
    /// The session has a hold and cannot be deleted.
    SessionOnHold {
        /// The name of the session.
        session: SessionKey,
    },
    /// A deleted session of the same name still has data that is being removed.
    SessionDeleting {
        /// The name of the session.
        session: SessionKey,
        /// The delay after which the removal may have finished.
        retry_after: Duration,
    },
    /// The session has no such message or block.
    MessageNotFound {
        /// The id of the requested message.
        id: MessageId,
        /// The index of the missing block. `None` if the message itself is missing.
        block_index: Option<u32>,
    },
    /// The parent of a new message is not in the session.
    ParentNotFound {
        /// The index of the message in the call, zero-based.
        index: usize,
        /// The id of the missing parent.
        id: MessageId,
    },
    /// No compaction with this key is in progress.
    CompactionNotFound {
        /// The key of the requested compaction.
        key: CompactionKey,
    },
    /// The token of a delegated compaction is unknown or no longer valid.
    DelegationNotFound {
        /// The compaction, if the token contains its key.
        key: Option<CompactionKey>,
    },
    /// Another compaction of the session is in progress.
    CompactionRunning {
        /// The key of the running compaction.
        key: CompactionKey,
    },
    /// The summarized messages changed while the compaction was in progress.
    RangeChanged {
        /// The key of the compaction.
        key: CompactionKey,
        /// The session's current revision.
        current: Revision,
    },
    /// The provider rejected the prompt as too long, and no more content can be removed.
    PromptTooLong {
        /// The token counts of the current view.
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
        // Lines and columns are relative to the parsed fragment. Only at an empty path is the fragment the whole payload.
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
        // Field paths arrive complete, so the conversion keeps them and maps only the kind of problem.
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

/// A snip target that was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTarget {
    /// The path of the field that names the target.
    pub field: String,
    /// The name of the target in the request.
    pub name: String,
    /// The reason for the rejection.
    pub reason: ErrorReason,
    /// The visibility of the target, if the visibility is the reason.
    pub visibility: Option<Visibility>,
    /// The pin that protects the target, if the pin is the reason.
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
            // The rejection contains only call keys. The service that ran the command has the full data of the calls.
            Rejection::AmbiguousCall(calls) => Self::AmbiguousCall {
                field: "call.tool_use_id".into(),
                candidates: calls.into_iter().map(convert::keyed_call).collect(),
            },
            Rejection::WorkingStateTooLarge { bytes, limit } => {
                Self::WorkingStateTooLarge { bytes, limit }
            }
            Rejection::TooManyPendingResults(limit) => Self::TooManyPendingResults { limit },
            // Callers of a command load the missing content and retry, so this error never reaches a client.
            not_held @ Rejection::ContentNotLoaded => Self::internal("decide a command", not_held),
        }
    }
}
