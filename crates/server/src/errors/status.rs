//! The table from errors to gRPC statuses. The snapshots in `tests.rs` contain every status.

use std::collections::HashMap;
use std::time::Duration;

use palimpsest_engine::quotas::{Quota, QuotaExceeded};
use palimpsest_proto::context::v1::{
    CallCandidates, CompactionFailureReason, ErrorReason, RejectedTarget as OutTarget,
    RejectedTargets, Visibility,
};
use palimpsest_store::error_chain;
use prost::Message;
use prost_types::Any;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _, pb};

use super::{RejectedTarget, ServiceError};
use crate::telemetry::TraceId;

/// The domain of every `ErrorInfo`.
pub(crate) const DOMAIN: &str = "palimpsest";

/// The maximum size of a status message, in bytes. Some clients hang on headers of 16 KiB.
const MAX_MESSAGE_BYTES: usize = 1_023;
/// The maximum size of a text in the details, in bytes.
const MAX_DETAIL_BYTES: usize = 512;

const SESSION_TYPE: &str = "palimpsest.context.v1.Session";
const MESSAGE_TYPE: &str = "palimpsest.context.v1.Message";
const CALL_TYPE: &str = "palimpsest.context.v1.ToolCall";

/// The contents of a gRPC status.
struct StatusBuilder {
    code: Code,
    reason: &'static str,
    message: String,
    metadata: Vec<(&'static str, String)>,
    details: ErrorDetails,
    /// A detail message of this package.
    own: Option<Any>,
    /// A metadata header in addition to the status.
    header: Option<(&'static str, &'static str)>,
}

impl StatusBuilder {
    fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
        let name = reason.as_str_name();
        Self {
            code,
            reason: name.strip_prefix("ERROR_REASON_").unwrap_or(name),
            message: message.into(),
            metadata: Vec::new(),
            details: ErrorDetails::new(),
            own: None,
            header: None,
        }
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }

    fn meta(mut self, key: &'static str, value: &(impl ToString + ?Sized)) -> Self {
        self.metadata
            .push((key, truncate_bytes(&value.to_string(), MAX_DETAIL_BYTES)));
        self
    }

    fn meta_if(self, key: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.meta(key, &value),
            None => self,
        }
    }

    fn field(mut self, path: &str, what: &str) -> Self {
        let [path, what] = [path, what].map(|text| truncate_bytes(text, MAX_DETAIL_BYTES));
        self.details.add_bad_request_violation(path, what);
        self
    }

    fn resource(mut self, kind: &str, name: &impl ToString) -> Self {
        let name = truncate_bytes(&name.to_string(), MAX_DETAIL_BYTES);
        self.details.set_resource_info(kind, name, "", "");
        self
    }

    fn retry(mut self, after: Duration) -> Self {
        self.details.set_retry_info(Some(after));
        self
    }

    fn quota(mut self, subject: &str, what: String) -> Self {
        let subject = truncate_bytes(subject, MAX_DETAIL_BYTES);
        self.details.add_quota_failure_violation(subject, what);
        self
    }

    fn precondition(mut self, subject: String, what: &str) -> Self {
        self.details
            .add_precondition_failure_violation(self.reason, subject, what);
        self
    }

    fn own(mut self, name: &str, detail: &impl Message) -> Self {
        self.own = Some(Any {
            type_url: format!("type.googleapis.com/palimpsest.context.v1.{name}"),
            value: detail.encode_to_vec(),
        });
        self
    }

    fn into_status(mut self) -> Status {
        let metadata: HashMap<_, _> = self
            .metadata
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        self.details.set_error_info(self.reason, DOMAIN, metadata);
        let message = truncate_bytes(&self.message, MAX_MESSAGE_BYTES);
        let status = Status::with_error_details(self.code, message, self.details);
        let mut status = match self.own {
            Some(own) => with_detail(&status, own),
            None => status,
        };
        if let Some((name, value)) = self.header {
            let value = MetadataValue::from_static(value);
            status.metadata_mut().insert(name, value);
        }
        status
    }
}

/// Adds a detail of a non-standard type to a status.
fn with_detail(status: &Status, detail: Any) -> Status {
    // `tonic-types` builds only the standard details, so the encoded status is decoded to add another one.
    let Ok(mut rich) = pb::Status::decode(status.details()) else {
        return status.clone();
    };
    rich.details.push(detail);
    let details = rich.encode_to_vec();
    Status::with_details(status.code(), status.message(), details.into())
}

/// Builds the error of an exhausted quota: its scope, its setting and a remedy.
fn quota(exceeded: &QuotaExceeded) -> StatusBuilder {
    let QuotaExceeded {
        project,
        quota,
        limit,
        retry_after,
    } = exceeded;
    let name = quota.name();
    // The setting differs by scope: limits of a project and of the whole server have separate names.
    let (whose, setting) = match project {
        Some(project) => (format!("projects/{project}"), format!("quotas.{name}")),
        None => ("all projects".to_owned(), format!("quotas.server.{name}")),
    };
    // Rates recover by themselves, so the remedy is to wait. Other quotas need an action of the caller.
    let (reason, what, help) = match quota {
        Quota::Requests => (
            ErrorReason::RequestRateExceeded,
            "calls per second",
            "wait for the delay of RetryInfo",
        ),
        Quota::Bytes => (
            ErrorReason::ByteRateExceeded,
            "request bytes per second",
            "wait for the delay of RetryInfo",
        ),
        Quota::Calls => (
            ErrorReason::ConcurrencyExceeded,
            "concurrent calls",
            "wait until a call ends",
        ),
        Quota::Watches => (
            ErrorReason::ConcurrencyExceeded,
            "concurrent watches",
            "end a watch first",
        ),
        Quota::Sessions => (
            ErrorReason::QuotaExceeded,
            "sessions",
            "delete sessions that are no longer needed",
        ),
        Quota::StoredBytes => (
            ErrorReason::QuotaExceeded,
            "stored bytes",
            "delete sessions that are no longer needed",
        ),
    };
    let message = format!("{whose} can have at most {limit} {what}: {help}, or raise {setting}");
    let refusal = StatusBuilder::new(Code::ResourceExhausted, reason, message)
        .quota(&whose, format!("{setting} is {limit}"))
        .meta("quota", &setting)
        .meta("limit", limit);
    match retry_after {
        Some(after) => refusal.retry(*after),
        None => refusal,
    }
}

/// Shortens a text to at most `max` bytes, at a character boundary.
fn truncate_bytes(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    // The ellipsis counts towards the limit.
    let mut end = max - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        status_builder(error).into_status()
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "one table of all errors reads better than its parts"
)]
fn status_builder(error: ServiceError) -> StatusBuilder {
    use ErrorReason as Reason;
    use ServiceError as E;
    match error {
        E::Invalid { field, what } => StatusBuilder::new(
            Code::InvalidArgument,
            Reason::InvalidField,
            format!("{field} {what}"),
        )
        .field(&field, &what),
        E::MalformedRequest => {
            let what = "is not a message of this method's request type";
            let message = "the request is not a message of this method's request type: generate \
                           the client from the same .proto files as the server, whose reflection \
                           shows them";
            // The empty path refers to the request as a whole.
            StatusBuilder::new(Code::InvalidArgument, Reason::InvalidField, message).field("", what)
        }
        E::InvalidPayload {
            field,
            path,
            what,
            byte_offset,
        } => {
            let what = if path.is_empty() {
                what
            } else {
                format!("{path} {what}")
            };
            StatusBuilder::new(
                Code::InvalidArgument,
                Reason::InvalidPayload,
                format!("the payload in {field} is invalid: {what}"),
            )
            .field(&field, &what)
            .meta("field", &field)
            .meta_if("byte_offset", byte_offset)
        }
        E::InvalidPattern {
            field,
            what,
            char_offset,
        } => StatusBuilder::new(
            Code::InvalidArgument,
            Reason::InvalidPattern,
            format!("{field} {what} (at character {char_offset})"),
        )
        .field(&field, &what)
        .meta("field", &field)
        .meta("char_offset", &char_offset),
        E::ModelNotAllowed { field, model } => StatusBuilder::new(
            Code::InvalidArgument,
            Reason::ModelNotAllowed,
            format!(
                "the model {model} is not allowed for summaries: omit it, or add it to summarizer.allowed_models in the server's configuration"
            ),
        )
        .field(&field, "names a model that is not allowed")
        .meta("model", &model),
        E::InvalidPageToken => StatusBuilder::new(
            Code::InvalidArgument,
            Reason::InvalidPageToken,
            "page_token is not from a request with the same filters: start again without a token",
        )
        .field("page_token", "is not from a request with the same filters"),
        E::SessionNotFound { session } => StatusBuilder::new(
            Code::NotFound,
            Reason::SessionNotFound,
            format!("session {session} does not exist: create it, or append to it, first"),
        )
        .meta("session", &session)
        .resource(SESSION_TYPE, &session),
        E::SessionDeleting {
            session,
            retry_after,
        } => StatusBuilder::new(
            Code::Unavailable,
            Reason::SessionDeleting,
            format!(
                "session {session} was deleted and its files are still being removed: retry after the delay of RetryInfo, or choose another name"
            ),
        )
        .meta("session", &session)
        .retry(retry_after),
        E::SessionOnHold { session } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::SessionOnHold,
            format!(
                "session {session} is on hold and cannot be deleted: remove the hold with UpdateSession first (update_mask hold, without a hold)"
            ),
        )
        .meta("session", &session)
        .precondition(session.to_string(), "the session must not be on hold")
        .resource(SESSION_TYPE, &session),
        E::SessionHasSubagents { session, subagents } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::SessionHasSubagents,
            format!("{subagents} sessions name {session} as their parent: delete them first, or set delete_subagents"),
        )
        .meta("subagents", &subagents)
        .resource(SESSION_TYPE, &session),
        E::CompactionNotFound { key } => StatusBuilder::new(
            Code::NotFound,
            Reason::DelegationNotFound,
            "the compaction is not running: it has finished, has failed, or never started",
        )
        .meta("compaction_id", &key),
        E::DelegationNotFound { key } => {
            let refusal = StatusBuilder::new(
                Code::NotFound,
                Reason::DelegationNotFound,
                "no compaction waits for this token: it has finished, has failed, has expired, or has another token; call Compact again",
            );
            match key {
                Some(key) => refusal.meta("compaction_id", &key),
                None => refusal,
            }
        }
        E::CompactionRunning { key } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::CompactionRunning,
            "another compaction of the session is running: wait for its end, which WatchSession reports",
        )
        .meta("compaction_id", &key)
        .precondition("compaction".into(), "no other compaction can be running"),
        E::RangeChanged { key, current } => StatusBuilder::new(
            Code::Aborted,
            Reason::CompactionRangeChanged,
            "the view changed while its summary was written, and nothing was compacted: call Compact again",
        )
        .meta("compaction_id", &key)
        .meta("current_revision", &current),
        E::PromptTooLong { tokens } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::PromptTooLong,
            "the provider rejected the prompt as too long, and no level can reduce the view further: snip the largest content, or use a model with a larger window; appended messages are kept",
        )
        .own("TokenReport", &*tokens),
        E::SpanNotFound { id } => {
            let id: String = id.chars().take(MAX_ID_CHARS).collect();
            StatusBuilder::new(
                Code::NotFound,
                Reason::CollapseNotFound,
                "the session has no such collapsed span: use the id in its placeholder or in SpansCollapsed",
            )
            .meta("collapse_id", &id)
        }
        E::ParentNotFound { index, id } => StatusBuilder::new(
            Code::NotFound,
            Reason::MessageNotFound,
            format!(
                "messages[{index}].metadata.parent_id: the session has no message {id}. Append that message first, or omit parent_id"
            ),
        )
        .meta("message_id", &id)
        .meta("field", &format!("messages[{index}].metadata.parent_id"))
        .resource(MESSAGE_TYPE, &id),
        E::MessageNotFound { id, block_index } => StatusBuilder::new(
            Code::NotFound,
            Reason::MessageNotFound,
            match block_index {
                Some(index) => format!("message {id} has no block {index}"),
                None => format!("the session has no message {id}"),
            },
        )
        .meta("message_id", &id)
        .meta_if("block_index", block_index)
        .resource(MESSAGE_TYPE, &id),
        E::CallNotFound {
            call_key,
            tool_use_id,
        } => {
            let key = call_key.map(|key| key.to_string());
            let name = key
                .clone()
                .or_else(|| tool_use_id.clone())
                .unwrap_or_default();
            StatusBuilder::new(
                Code::NotFound,
                Reason::CallNotFound,
                "the session has no such tool call: append the message with the call first",
            )
            .meta_if("call_key", key)
            .meta_if("tool_use_id", tool_use_id)
            .resource(CALL_TYPE, &name)
        }
        E::SessionExists { session } => StatusBuilder::new(
            Code::AlreadyExists,
            Reason::SessionExists,
            format!("session {session} already exists: use it, or choose another name"),
        )
        .meta("session", &session)
        .resource(SESSION_TYPE, &session),
        E::MessageConflict { id, stored, given } => StatusBuilder::new(
            Code::AlreadyExists,
            Reason::MessageConflict,
            format!("message {id} already exists with other content: use another id for the new message"),
        )
        .meta("message_id", &id)
        .meta("stored_digest", &stored)
        .meta("given_digest", &given)
        .resource(MESSAGE_TYPE, &id),
        E::RequestConflict {
            request_id,
            stored,
            given,
        } => StatusBuilder::new(
            Code::AlreadyExists,
            Reason::RequestConflict,
            "this request_id was used with another body: use a new request_id for each request",
        )
        .meta_if("request_id", request_id)
        .meta("stored_digest", &stored)
        .meta("given_digest", &given),
        E::RevisionMismatch { expected, current } => StatusBuilder::new(
            Code::Aborted,
            Reason::RevisionMismatch,
            format!(
                "the session is at revision {current}, not at {expected}: read the session again, then retry"
            ),
        )
        .meta("expected_revision", &expected)
        .meta("current_revision", &current),
        E::ViewChanged { current } => StatusBuilder::new(
            Code::Aborted,
            Reason::ViewChanged,
            "the view of this etag has changed: call PrepareContext again",
        )
        .meta("current_revision", &current),
        E::MessageNotVisible { id, visibility } => {
            let visibility = name_of(visibility);
            StatusBuilder::new(
                Code::FailedPrecondition,
                Reason::MessageNotVisible,
                format!("message {id} is not in the view ({visibility}): choose a visible message"),
            )
            .meta("message_id", &id)
            .meta("visibility", &visibility)
            .precondition(format!("messages/{id}"), "the message must be in the view")
        }
        E::NotSnippable { targets } => not_snippable(&targets),
        E::RevisionNotFound { revision, current } => StatusBuilder::new(
            Code::NotFound,
            Reason::RevisionNotFound,
            format!("the session has no revision {revision}: it is at revision {current}"),
        )
        .meta("revision", &revision)
        .meta("current_revision", &current),
        E::RestoreOverBlock { tokens, block } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::RestoreOverBlock,
            format!(
                "the view would have {tokens} tokens, and requests are blocked at {block}: choose a later revision, or set force"
            ),
        )
        .meta("tokens", &tokens)
        .meta("block_at_tokens", &block)
        .precondition("view".into(), "the view must be below the block threshold"),
        E::DisabledByPolicy { setting } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::DisabledByPolicy,
            format!("the session's policy disables this: see {setting}"),
        )
        .meta("setting", setting)
        .precondition(format!("policy/{setting}"), "the policy must allow it"),
        E::NothingToCompact { skip } => {
            let name = skip.as_str_name();
            let skip = name.strip_prefix("SKIP_REASON_").unwrap_or(name);
            StatusBuilder::new(
                Code::FailedPrecondition,
                Reason::NothingToCompact,
                format!("the view cannot be reduced ({skip}): send it unchanged"),
            )
            .meta("skip_reason", skip)
            .precondition("view".into(), "the view must contain something to compact")
        }
        E::NoSummary { why, detail, model } => no_summary(why, &detail, &model),
        E::HookVetoed { hook, reason } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::HookVetoed,
            format!("the hook {hook} vetoed the compaction: {reason}"),
        )
        .meta("hook", hook)
        .meta("reason", &reason)
        .precondition(format!("hooks/{hook}"), "the hook must not veto the compaction"),
        E::HookFailed { hook, detail } => StatusBuilder::new(
            Code::FailedPrecondition,
            Reason::HookFailed,
            format!(
                "the hook {hook} failed, and the session's policy stops the compaction: fix the hook, or set its on_failure to CONTINUE; the hook returned: {detail}"
            ),
        )
        .meta("hook", hook)
        .precondition(format!("hooks/{hook}"), "the hook must succeed"),
        E::AmbiguousCall { field, candidates } => {
            let what = "matches several calls: use call_key";
            StatusBuilder::new(
                Code::InvalidArgument,
                Reason::AmbiguousToolUseId,
                format!("{field} {what}"),
            )
            .field(&field, what)
            .own("CallCandidates", &CallCandidates { calls: candidates })
        }
        E::CallMismatch {
            call_key,
            tool_use_id,
        } => StatusBuilder::new(
            Code::InvalidArgument,
            Reason::CallMismatch,
            format!("call {call_key} has another tool_use_id: omit one of the two"),
        )
        .field("call.tool_use_id", "is not that of the call with this call_key")
        .meta("call_key", &call_key)
        .meta("tool_use_id", &tool_use_id),
        E::TooManyPendingResults { limit } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::QuotaExceeded,
            format!(
                "{limit} stored results wait for their messages: append these messages first"
            ),
        )
        .quota("call", format!("at most {limit} results can wait"))
        .meta("quota", &"waiting_results")
        .meta("limit", &limit),
        E::ResultNotFound { name } => StatusBuilder::new(
            Code::NotFound,
            Reason::ResultNotFound,
            format!("call {name} has no result: append the result first"),
        )
        .meta("call_key", &name),
        E::ResultConflict {
            call,
            stored,
            given,
        } => StatusBuilder::new(
            Code::AlreadyExists,
            Reason::ResultConflict,
            match call {
                Some(call) => format!("call {call} already has another result: use a new call for the new result"),
                None => "the call already has another result: use a new call for the new result".into(),
            },
        )
        .meta_if("call_key", call)
        .meta("stored_digest", &stored)
        .meta("given_digest", &given),
        E::ToolNotFound { tool } => StatusBuilder::new(
            Code::NotFound,
            Reason::ToolNotFound,
            "the service has no such tool, or the policy disables it: see ListTools",
        )
        .meta("tool_name", &tool),
        E::TooLarge {
            field,
            actual,
            limit,
        } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::MessageTooLarge,
            format!("{field} is too large ({actual}; the limit is {limit}): send less content"),
        )
        .quota(&field, format!("{actual}; the limit is {limit}"))
        .meta("field", &field)
        .meta("size_bytes", &actual)
        .meta("limit_bytes", &limit),
        E::WorkingStateTooLarge { bytes, limit } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::WorkingStateTooLarge,
            format!(
                "the working state would have {bytes} bytes, and the limit is {limit}: remove entries, or raise limits.max_working_state_bytes"
            ),
        )
        .quota("working_state", format!("{bytes} bytes; the limit is {limit}"))
        .meta("size_bytes", &bytes)
        .meta("limit_bytes", &limit),
        E::RequestTooLarge { actual, limit } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::RequestTooLarge,
            format!(
                "the request has {actual} bytes, and the limit is {limit}: split the request, or raise limits.max_request_bytes"
            ),
        )
        .quota("request", format!("{actual} bytes; the limit is {limit}"))
        .meta("size_bytes", &actual)
        .meta("limit_bytes", &limit),
        E::RequestTooComplex { limit } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::RequestTooLarge,
            format!(
                "the request would need more than {limit} bytes of memory: split the request, or raise limits.max_request_bytes"
            ),
        )
        .quota("request", format!("the limit is {limit} bytes of memory"))
        .meta("limit_bytes", &limit),
        E::Unauthenticated { why } => StatusBuilder::new(
            Code::Unauthenticated,
            Reason::Unauthenticated,
            format!("{why}: send the metadata `authorization: Bearer <API key or JWT>`"),
        )
        .header("www-authenticate", "Bearer realm=\"palimpsest\""),
        E::PermissionDenied { right, project } => StatusBuilder::new(
            Code::PermissionDenied,
            Reason::PermissionDenied,
            match project {
                Some(project) => format!(
                    "the credential does not have the right {right} in projects/{project}: use a credential with this right"
                ),
                None => format!(
                    "the credential does not have the right {right} in every project: use a credential with this right, or name a project"
                ),
            },
        )
        .meta("permission", right.name()),
        E::ProjectNotFound { project } => StatusBuilder::new(
            Code::NotFound,
            Reason::ProjectNotFound,
            format!("projects/{project} does not exist for this credential: use a credential for this project"),
        )
        .meta("project", &format!("projects/{project}")),
        E::QuotaExceeded(exceeded) => quota(&exceeded),
        E::StoreFull { why, retry_after } => StatusBuilder::new(
            Code::Unavailable,
            Reason::StoreFull,
            format!("the store rejects writes and serves reads: {why}"),
        )
        .retry(retry_after),
        E::Overloaded { retry_after } => StatusBuilder::new(
            Code::ResourceExhausted,
            Reason::Overloaded,
            "the server is overloaded: retry after the delay of RetryInfo",
        )
        .retry(retry_after),
        E::DeadlineExceeded => StatusBuilder::new(
            Code::DeadlineExceeded,
            Reason::DeadlineExceeded,
            "the call did not finish before its deadline: a change that has started can still take effect, so repeat the call with the same request_id and a longer deadline",
        ),
        E::StoreUnavailable { retry_after } => StatusBuilder::new(
            Code::Unavailable,
            Reason::StoreUnavailable,
            "the store is unavailable: retry with the same request_id after the delay of RetryInfo",
        )
        .retry(retry_after),
        E::HistoryChanged {
            session,
            retry_after,
        } => StatusBuilder::new(
            Code::Unavailable,
            Reason::StoreUnavailable,
            format!(
                "the history of {session} changed during the read, by a failover or a new creation: discard the received data and read the session again"
            ),
        )
        .retry(retry_after),
        E::ShuttingDown { retry_after } => StatusBuilder::new(
            Code::Unavailable,
            Reason::NotServing,
            "the server is starting or shutting down: retry on a new connection",
        )
        .retry(retry_after),
        E::NotImplemented { method } => StatusBuilder::new(
            Code::Unimplemented,
            Reason::MethodNotImplemented,
            format!("this version of the server does not implement {method}"),
        )
        .meta("method", &method),
        E::Internal { doing, source } => {
            // The only place that logs the source. The trace id in the reply leads an operator to this log line.
            let trace_id = TraceId::current();
            tracing::error!(
                trace_id = trace_id.as_ref().map(tracing::field::display),
                error = source.as_deref().map(|source| error_chain(source)),
                "failed to {doing}"
            );
            let hint = match trace_id {
                Some(id) => format!("see trace_id {id} in the server's log"),
                None => "see the server's log".to_owned(),
            };
            StatusBuilder::new(
                Code::Internal,
                Reason::Internal,
                format!("internal error: {hint}"),
            )
            .meta_if("trace_id", trace_id)
        }
    }
}

/// The maximum number of rejected targets in the details.
const MAX_TARGETS: usize = 100;
/// The maximum number of characters of an invalid id in an error.
const MAX_ID_CHARS: usize = 64;

/// Returns the name of a visibility without its enum prefix.
fn name_of(visibility: Visibility) -> &'static str {
    let name = visibility.as_str_name();
    name.strip_prefix("VISIBILITY_").unwrap_or(name)
}

/// Builds the error of a missing summary. An unavailable model allows a retry, a rejected summary does not.
fn no_summary(why: CompactionFailureReason, detail: &str, model: &str) -> StatusBuilder {
    use CompactionFailureReason as Why;
    use ErrorReason as Reason;

    let message = format!("nothing was compacted: {detail}");
    // UNAVAILABLE makes clients retry. A rejected summary would be rejected again without a change.
    if matches!(why, Why::ModelUnavailable | Why::Expired) {
        return StatusBuilder::new(Code::Unavailable, Reason::ModelUnavailable, message)
            .meta("model", model);
    }
    let name = why.as_str_name();
    let name = name.strip_prefix("COMPACTION_FAILURE_REASON_");
    StatusBuilder::new(Code::FailedPrecondition, Reason::SummaryRejected, message)
        .meta("failure_reason", name.unwrap_or_default())
        .precondition("summary".into(), "the model's summary must be accepted")
}

/// Builds the error of rejected snip targets. Code and reason are those of the first target.
fn not_snippable(targets: &[RejectedTarget]) -> StatusBuilder {
    use ErrorReason as Reason;
    // A status has a single code, so the first target determines code and message. The details list all targets.
    let first = targets.first();
    let reason = first.map_or(Reason::TurnNotFound, |target| target.reason);
    let name = first.map(|target| target.name.as_str()).unwrap_or_default();
    let is_turn = first.is_some_and(|target| target.field.starts_with("turn_ids"));
    let snipped = Some(Visibility::Snipped);
    let (code, why) = match reason {
        Reason::TurnNotFound | Reason::MessageNotFound => {
            (Code::NotFound, "the session does not contain it")
        }
        Reason::TurnForeign => (
            Code::NotFound,
            "it belongs to the session's parent or to a subagent",
        ),
        Reason::TurnAlreadySnipped => (Code::FailedPrecondition, "it is already snipped"),
        // A snipped message has a general reason, so only its visibility identifies the case.
        _ if first.and_then(|target| target.visibility) == snipped => {
            (Code::FailedPrecondition, "it is already snipped")
        }
        Reason::Pinned => (
            Code::FailedPrecondition,
            "it is pinned or contains pinned content: remove the pin first",
        ),
        Reason::TurnIsCurrent => (
            Code::FailedPrecondition,
            "it is the current turn: snip its messages or blocks instead",
        ),
        _ => (Code::FailedPrecondition, "it is no longer in the view"),
    };
    let others = match targets.len() {
        0 | 1 => String::new(),
        more => format!(", and {} more", more - 1),
    };
    let refusal = StatusBuilder::new(
        code,
        reason,
        format!("nothing was snipped: {name} cannot be snipped, because {why}{others}"),
    );
    // The name of a block consists of the message id, `#` and the index.
    let refusal = match name.split_once('#') {
        _ if is_turn => refusal.meta("turn_id", name),
        None => refusal.meta("message_id", name),
        Some((message, block)) => refusal
            .meta("message_id", message)
            .meta("block_index", block),
    };
    let refusal = match first.and_then(|target| target.visibility) {
        Some(visibility) => refusal.meta("visibility", name_of(visibility)),
        None => refusal,
    };
    let refusal = match first.and_then(|target| target.pin.as_deref()) {
        Some(pin) => refusal.meta("pin_id", pin),
        None => refusal,
    };
    let refusal = refusal.own(
        "RejectedTargets",
        &RejectedTargets {
            targets: targets
                .iter()
                .take(MAX_TARGETS)
                .map(|target| OutTarget {
                    field: target.field.clone(),
                    reason: target.reason.into(),
                })
                .collect(),
        },
    );
    match code {
        Code::FailedPrecondition => refusal.precondition(
            first.map(|target| target.field.clone()).unwrap_or_default(),
            why,
        ),
        _ => refusal,
    }
}
