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
    /// The session has no collapsed span with this id.
    SpanNotFound {
        /// The id as sent by the caller.
        id: Box<str>,
    },
    /// The session has no such tool call.
    CallNotFound {
        /// The call key, if the request named one.
        call_key: Option<CallKey>,
        /// The provider's id of the call, if the request named one.
        tool_use_id: Option<String>,
    },
    /// A session with this name already exists.
    SessionExists {
        /// The name of the session.
        session: SessionKey,
    },
    /// The session is the parent of other sessions.
    SessionHasSubagents {
        /// The name of the session.
        session: SessionKey,
        /// The number of child sessions.
        subagents: usize,
    },
    /// A message with the same id and different content exists.
    MessageConflict {
        /// The id of the message.
        id: MessageId,
        /// The digest of the stored message.
        stored: Digest,
        /// The digest of the message in the request.
        given: Digest,
    },
    /// The request id was used before with a different body.
    RequestConflict {
        /// The request id, if known.
        request_id: Option<String>,
        /// The digest of the earlier request.
        stored: Digest,
        /// The digest of this request.
        given: Digest,
    },
    /// The session is not at the revision expected by the caller.
    RevisionMismatch {
        /// The revision expected by the caller.
        expected: Revision,
        /// The session's current revision.
        current: Revision,
    },
    /// The view changed since the given etag was issued.
    ViewChanged {
        /// The session's current revision.
        current: Revision,
    },
    /// The message is not visible in the view.
    MessageNotVisible {
        /// The id of the message.
        id: MessageId,
        /// The reason for not showing the message.
        visibility: Visibility,
    },
    /// At least one of the snip targets cannot be snipped.
    NotSnippable {
        /// The rejected targets with their reasons.
        targets: Vec<RejectedTarget>,
    },
    /// The session has not reached the requested revision.
    RevisionNotFound {
        /// The requested revision.
        revision: Revision,
        /// The session's current revision.
        current: Revision,
    },
    /// The restored view would exceed the block threshold.
    RestoreOverBlock {
        /// The size of the restored view, in tokens.
        tokens: u64,
        /// The block threshold, in tokens.
        block: u64,
    },
    /// The session's policy disables the operation.
    DisabledByPolicy {
        /// The path of the policy setting.
        setting: &'static str,
    },
    /// A compaction would have no effect.
    NothingToCompact {
        /// The reason for skipping the compaction.
        skip: SkipReason,
    },
    /// The model returned no acceptable summary.
    NoSummary {
        /// The reason as an enum value.
        why: CompactionFailureReason,
        /// The reason as text for people, including a remedy.
        detail: String,
        /// The name of the model.
        model: String,
    },
    /// A hook vetoed the compaction.
    HookVetoed {
        /// The name of the hook.
        hook: &'static str,
        /// The reason returned by the hook.
        reason: String,
    },
    /// A hook failed, and its failure rule aborts the compaction.
    HookFailed {
        /// The name of the hook.
        hook: &'static str,
        /// The failure as text.
        detail: String,
    },
    /// Several tool calls share the given id.
    AmbiguousCall {
        /// The path of the field that contains the id.
        field: String,
        /// The tool calls with this id.
        candidates: Vec<ToolCall>,
    },
    /// The call key and the id in the request name different tool calls.
    CallMismatch {
        /// The call key from the request.
        call_key: CallKey,
        /// The id from the request.
        tool_use_id: String,
    },
    /// The caller may not use the requested summary model.
    ModelNotAllowed {
        /// The path of the field that contains the model name.
        field: String,
        /// The name of the model.
        model: String,
    },
    /// Too many stored results are waiting for their messages.
    TooManyPendingResults {
        /// The maximum number of pending results.
        limit: usize,
    },
    /// The stored result does not exist.
    ResultNotFound {
        /// The call key or the reference of the result.
        name: String,
    },
    /// The tool call already has a different stored result.
    ResultConflict {
        /// The call key, if the message of the call is in the session.
        call: Option<CallKey>,
        /// The digest of the stored result.
        stored: String,
        /// The digest of the result in the request.
        given: String,
    },
    /// The service has no tool with this name.
    ToolNotFound {
        /// The name of the tool.
        tool: String,
    },
    /// A part of the request exceeds its size limit.
    TooLarge {
        /// The path of the part in the request.
        field: String,
        /// The actual size.
        actual: usize,
        /// The maximum size, in the same unit.
        limit: usize,
    },
    /// The working state would exceed the limit of the policy.
    WorkingStateTooLarge {
        /// The resulting size, in bytes.
        bytes: u64,
        /// The maximum size, in bytes.
        limit: u64,
    },
    /// The complete request exceeds the size limit.
    RequestTooLarge {
        /// The size in bytes, as far as announced or received.
        actual: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The decoded request would exceed the memory limit per call.
    RequestTooComplex {
        /// The memory limit per call, in bytes.
        limit: usize,
    },
    /// The credential is missing, invalid or rejected.
    Unauthenticated {
        /// The reason for the rejection.
        why: AuthError,
    },
    /// The principal has access to the project, but lacks the required right.
    PermissionDenied {
        /// The required right.
        right: Right,
        /// The project. `None` if the right is required in all projects.
        project: Option<ProjectId>,
    },
    /// The project belongs to another tenant.
    ProjectNotFound {
        /// The name of the project.
        project: ProjectId,
    },
    /// The server is overloaded and shed the call.
    Overloaded {
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// A quota of the project or of the server is exhausted.
    QuotaExceeded(QuotaExceeded),
    /// The call exceeded its own deadline or the server's request timeout.
    DeadlineExceeded,
    /// The store temporarily cannot read or write.
    StoreUnavailable {
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The history changed while the call was reading it.
    HistoryChanged {
        /// The name of the session.
        session: SessionKey,
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The disk of the store is full or read-only.
    StoreFull {
        /// The cause and its remedy.
        why: &'static str,
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The server is starting or shutting down.
    ShuttingDown {
        /// The delay before a retry. Another replica may answer immediately.
        retry_after: Duration,
    },
    /// The method is in the contract, but this version does not implement it.
    NotImplemented {
        /// The full method name, `package.Service/Method`.
        method: String,
    },
    /// A fault of the service. The source is logged and never returned to the caller.
    Internal {
        /// The failed operation. Completes the sentence "failed to …".
        doing: &'static str,
        /// The cause, if known.
        source: Option<BoxError>,
    },
}

impl ServiceError {
    /// Creates an [`Self::Invalid`] error for a field.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            what: what.into(),
        }
    }

    /// Creates an [`Self::Internal`] error for the operation `doing`.
    pub fn internal(doing: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Internal {
            doing,
            source: Some(source.into()),
        }
    }

    /// Creates an [`Self::InvalidPayload`] error for the payload in `field`.
    pub fn payload(field: impl Into<String>, payload: &[u8], error: CodecError) -> Self {
        Self::InvalidPayload {
            field: field.into(),
            byte_offset: byte_offset(payload, &error),
            path: error.path,
            what: error.error.to_string(),
        }
    }

    /// Adds the request id to a [`Self::RequestConflict`]. The domain error contains only digests.
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
        // Lines and columns are relative to the parsed fragment. Only an empty path means the whole payload.
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
        // A turn and a message have different reasons for the same rejection.
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
