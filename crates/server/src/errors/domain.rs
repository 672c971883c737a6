//! The conversions from the errors of the lower layers. Each match names every variant.

use std::time::Duration;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::Revision;
use palimpsest_edge::refusal::Refusal;
use palimpsest_engine::EngineError;
use palimpsest_engine::compaction::CompactionError;
use palimpsest_engine::quotas::{Quota, QuotaExceeded};
use palimpsest_proto::context::v1::ErrorReason as Reason;
use palimpsest_store::StoreError;

use super::ServiceError;
use super::reasons::{RejectedTarget, SESSION_TYPE};
use crate::convert::{self, FieldError, FieldProblem, InvalidPageToken, PatternError};

/// The retry delay after a store failure: 5 s. The store needs a restart or more space. Another replica may answer
/// earlier.
const RETRY_AFTER_RESTART: Duration = Duration::from_secs(5);
/// The retry delay for failed reads and contended sessions: 200 ms.
pub(crate) const RETRY_SOON: Duration = Duration::from_millis(200);

/// The maximum number of characters of an invalid id in an error.
const MAX_ID_CHARS: usize = 64;

const CALL_TYPE: &str = "palimpsest.context.v1.ToolCall";
const MESSAGE_TYPE: &str = "palimpsest.context.v1.Message";

impl From<FieldError> for ServiceError {
    fn from(error: FieldError) -> Self {
        let field = error.path;
        match error.problem {
            FieldProblem::Missing => Self::invalid(field, "must be set"),
            FieldProblem::Invalid(what) => Self::invalid(field, what),
            FieldProblem::TooLarge { limit, actual } => Self::too_large(&field, actual, limit),
            FieldProblem::Payload { path, error } => Self::invalid_payload(&field, &path, &error),
        }
    }
}

impl From<PatternError> for ServiceError {
    fn from(error: PatternError) -> Self {
        match error {
            PatternError::Field(error) => error.into(),
            PatternError::Syntax { field, char_offset } => {
                Self::invalid_pattern(&field, "is not a regular expression", char_offset)
            }
            PatternError::Empty { field } => {
                let what = "matches the empty string: write it so that it matches one character \
                            or more, such as `a+` in place of `a*`";
                Self::invalid_pattern(&field, what, 0)
            }
        }
    }
}

impl From<InvalidPageToken> for ServiceError {
    fn from(InvalidPageToken: InvalidPageToken) -> Self {
        Self::invalid_page_token()
    }
}

/// Calls that the edge rejected.
impl From<Refusal> for ServiceError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // The same error as for a missing session, so that a tenant cannot probe the names of others.
            Refusal::SessionNotFound(session) => EngineError::SessionNotFound(session).into(),
            Refusal::ProjectNotFound(project) => Self::project_not_found(&project),
            Refusal::Forbidden { right, project } => Self::permission_denied(right, Some(&project)),
            Refusal::Overloaded { retry_after } => Self::overloaded(retry_after),
        }
    }
}

/// Rejected commands. The text of a rejection is the message of its status.
impl From<Rejection> for ServiceError {
    fn from(rejection: Rejection) -> Self {
        let text = rejection.to_string();
        let error = |reason| Self::new(reason, text);
        match rejection {
            Rejection::Invalid { field, what } => Self::invalid(field, what),
            Rejection::TooLarge {
                field,
                limit,
                actual,
            } => Self::too_large(&field, actual, limit),
            Rejection::MessageConflict { id, stored, given } => error(Reason::MessageConflict)
                .meta("message_id", &id)
                .digests(&stored, &given)
                .resource(MESSAGE_TYPE, &id),
            Rejection::RequestConflict {
                request_id,
                stored,
                given,
            } => error(Reason::RequestConflict)
                .meta("request_id", &request_id)
                .digests(&stored, &given),
            Rejection::ResultConflict {
                call,
                stored,
                given,
            } => error(Reason::ResultConflict)
                .meta_if("call_key", call)
                .digests(&stored, &given),
            Rejection::RevisionMismatch { expected, current } => error(Reason::RevisionMismatch)
                .meta("expected_revision", &expected)
                .meta("current_revision", &current),
            Rejection::RevisionNotFound { revision, current } => error(Reason::RevisionNotFound)
                .meta("revision", &revision)
                .meta("current_revision", &current),
            Rejection::MessageNotFound { id } => error(Reason::MessageNotFound)
                .meta("message_id", &id)
                .resource(MESSAGE_TYPE, &id),
            Rejection::ParentNotFound { index, id } => error(Reason::MessageNotFound)
                .meta("message_id", &id)
                .meta("field", &format!("messages[{index}].metadata.parent_id"))
                .resource(MESSAGE_TYPE, &id),
            Rejection::MessageNotVisible { id, visibility } => {
                Self::message_not_visible(id, convert::visibility(visibility))
            }
            // The engine loads the original and decides again.
            Rejection::OriginalNotLoaded { .. } => Self::fault("load the original of a message"),
            Rejection::OtherArray { .. } | Rejection::ArrayForks { .. } => Self::invalid(
                "payload",
                "belongs to another conversation than the session: send it under another session name",
            ),
            Rejection::CallNotFound(call) => error(Reason::CallNotFound)
                .meta("call_key", &call)
                .resource(CALL_TYPE, &call),
            Rejection::CallMismatch { call, id } => error(Reason::CallMismatch)
                .field(
                    "call.tool_use_id",
                    "is not that of the call with this call_key",
                )
                .meta("call_key", &call)
                .meta("tool_use_id", &id),
            // The rejection contains only call keys. The service that ran the command has the full data of the calls.
            Rejection::AmbiguousCall(calls) => {
                let calls = calls.into_iter().map(convert::keyed_call).collect();
                Self::ambiguous_call("call.tool_use_id", calls)
            }
            Rejection::CompactionNotFound { key } => {
                error(Reason::DelegationNotFound).meta("compaction_id", &key)
            }
            Rejection::SpanNotFound { id } => {
                // The id names no span, so the caller can have sent any text.
                let id: String = id.chars().take(MAX_ID_CHARS).collect();
                error(Reason::CollapseNotFound).meta("collapse_id", &id)
            }
            Rejection::NotSnippable(targets) => {
                let targets: Vec<_> = targets.into_iter().map(RejectedTarget::from).collect();
                Self::not_snippable(&targets)
            }
            Rejection::RestoreOverBlock { tokens, block } => error(Reason::RestoreOverBlock)
                .meta("tokens", &tokens)
                .meta("block_at_tokens", &block)
                .precondition("view", "the view must be below the block threshold"),
            Rejection::WorkingStateTooLarge { bytes, limit } => error(Reason::WorkingStateTooLarge)
                .quota(
                    "working_state",
                    format!("{bytes} bytes; the limit is {limit}"),
                )
                .meta("size_bytes", &bytes)
                .meta("limit_bytes", &limit),
            Rejection::MemoryDisabled { setting } => Self::disabled_by_policy(setting),
            Rejection::MemoryVersionMismatch { expected, current } => {
                error(Reason::MemoryVersionMismatch)
                    .meta("expected_version", &expected)
                    .meta("current_version", &current)
            }
            Rejection::TooManyPendingResults(limit) => error(Reason::QuotaExceeded)
                .quota("call", format!("at most {limit} results can wait"))
                .meta("quota", "waiting_results")
                .meta("limit", &limit),
            // Callers of a command load the missing content and retry, so this error never reaches a client.
            Rejection::ContentNotLoaded => Self::internal("decide a command", rejection),
        }
    }
}

/// Errors of the engine. Only those that may disappear on their own have a retry delay.
impl From<EngineError> for ServiceError {
    fn from(error: EngineError) -> Self {
        let text = error.to_string();
        let new = |reason| Self::new(reason, text.as_str());
        match error {
            EngineError::Rejected(rejection) => rejection.into(),
            EngineError::SessionNotFound(session) => new(Reason::SessionNotFound)
                .meta("session", &session)
                .resource(SESSION_TYPE, &session),
            EngineError::SessionExists(session) => new(Reason::SessionExists)
                .meta("session", &session)
                .resource(SESSION_TYPE, &session),
            EngineError::SessionDeleting(session) => {
                let remedy = "retry after the delay of RetryInfo, or choose another name";
                Self::new(Reason::SessionDeleting, format!("{text}: {remedy}"))
                    .meta("session", &session)
                    .retry(RETRY_SOON)
            }
            EngineError::SessionOnHold(session) => Self::session_on_hold(&session),
            EngineError::HasSubagents { session, subagents } => {
                Self::session_has_subagents(&session, subagents)
            }
            // A retry reads the current history.
            EngineError::HistoryChanged(_) => new(Reason::StoreUnavailable).retry(RETRY_SOON),
            EngineError::Contended
            | EngineError::RevisionConflict(_)
            | EngineError::BlobsUnavailable => Self::store_unavailable(RETRY_SOON),
            EngineError::Store(error) => error.into(),
            EngineError::QuotaExceeded(exceeded) => exceeded.into(),
            EngineError::DeadlineExceeded => Self::deadline_exceeded(),
            EngineError::Internal {
                doing,
                source: Some(source),
            } => Self::internal(doing, source),
            EngineError::Internal {
                doing,
                source: None,
            } => Self::fault(doing),
            EngineError::Unreadable { .. } => Self::internal("read a session", error),
        }
    }
}

impl From<CompactionError> for ServiceError {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Engine(error) => error.into(),
            CompactionError::DelegationNotFound { key } => Self::delegation_not_found(key),
            CompactionError::NoSummary {
                reason,
                detail,
                model,
            } => Self::no_summary(convert::failure_reason(reason), &detail, &model),
            CompactionError::HookVetoed { hook, reason } => Self::hook_vetoed(hook.name(), &reason),
            CompactionError::HookFailed { hook, detail } => Self::hook_failed(hook.name(), &detail),
        }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            // The store does not know which revision the caller expected.
            StoreError::Conflict { current } => Rejection::RevisionMismatch {
                expected: Revision::ZERO,
                current,
            }
            .into(),
            StoreError::TooLarge { len, max, .. } => Self::too_large("messages", len, max),
            StoreError::Closed => Self::shutting_down(RETRY_AFTER_RESTART),
            // Storage failures are logged here, because the caller gets only a retryable status.
            StoreError::Read(_) => {
                tracing::warn!(%error, "failed to read the store");
                Self::store_unavailable(RETRY_SOON)
            }
            StoreError::OutOfResources(_) => {
                tracing::warn!(%error, "the store could not write");
                Self::store_unavailable(RETRY_SOON)
            }
            StoreError::Unreachable(_) | StoreError::Setup(_) => {
                tracing::warn!(%error, "the store cannot be reached");
                Self::store_unavailable(RETRY_SOON)
            }
            StoreError::OutOfSpace(why) => {
                // Not logged for each call: the canary and the engine log the change of the state.
                let message = format!("the store rejects writes and serves reads: {why}");
                Self::new(Reason::StoreFull, message).retry(RETRY_AFTER_RESTART)
            }
            StoreError::Failed(_) => {
                tracing::error!(%error, "the store accepts no more writes");
                Self::store_unavailable(RETRY_AFTER_RESTART)
            }
            error => Self::internal("use the store", error),
        }
    }
}

/// An exhausted quota: its scope, its setting and a remedy.
impl From<QuotaExceeded> for ServiceError {
    fn from(exceeded: QuotaExceeded) -> Self {
        let QuotaExceeded {
            project,
            quota,
            limit,
            retry_after,
        } = exceeded;
        let name = quota.name();
        // The setting differs by scope: limits of a project and of the whole server have separate names.
        let (scope, setting) = match project {
            Some(project) => (format!("projects/{project}"), format!("quotas.{name}")),
            None => ("all projects".to_owned(), format!("quotas.server.{name}")),
        };
        // Rates recover by themselves, so the remedy is to wait. Other quotas need an action of the caller.
        let wait = "wait for the delay of RetryInfo";
        let delete = "delete sessions that are no longer needed";
        let (reason, what, help) = match quota {
            Quota::Requests => (Reason::RequestRateExceeded, "calls per second", wait),
            Quota::Bytes => (Reason::ByteRateExceeded, "request bytes per second", wait),
            Quota::Calls => (
                Reason::ConcurrencyExceeded,
                "concurrent calls",
                "wait until a call ends",
            ),
            Quota::Watches => (
                Reason::ConcurrencyExceeded,
                "concurrent watches",
                "end a watch first",
            ),
            Quota::Sessions => (Reason::QuotaExceeded, "sessions", delete),
            Quota::StoredBytes => (Reason::QuotaExceeded, "stored bytes", delete),
        };
        let message =
            format!("{scope} can have at most {limit} {what}: {help}, or raise {setting}");
        let error = Self::new(reason, message)
            .quota(&scope, format!("{setting} is {limit}"))
            .meta("quota", &setting)
            .meta("limit", &limit);
        match retry_after {
            Some(after) => error.retry(after),
            None => error,
        }
    }
}

impl ServiceError {
    /// Adds the digests of two contents with one id.
    fn digests(self, stored: &impl ToString, given: &impl ToString) -> Self {
        self.meta("stored_digest", stored)
            .meta("given_digest", given)
    }
}
