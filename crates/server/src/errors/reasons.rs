//! The constructors of errors that the server itself finds: one for each reason, with its text, metadata and details.

use std::time::Duration;

use palimpsest_core::command::{SnipRejection, SnipTarget};
use palimpsest_core::ids::{CompactionKey, MessageId, ProjectId, Revision, SessionKey};
use palimpsest_core::json::JsonError;
use palimpsest_proto::context::v1::{
    CallCandidates, CompactionFailureReason, ErrorReason as Reason, RejectedTarget as OutTarget,
    RejectedTargets, SkipReason, TokenReport, ToolCall, Visibility,
};
use tonic::Code;

use super::{BoxError, Fault, RETRY_SOON, ServiceError, code};
use crate::access::{AuthError, Right};
use crate::convert;

pub(super) const SESSION_TYPE: &str = "palimpsest.context.v1.Session";

/// The maximum number of rejected targets in the details.
const MAX_TARGETS: usize = 100;

/// Fields, payloads and sizes of a request.
impl ServiceError {
    /// A field is missing or invalid. `what` is the predicate of a sentence whose subject is the field.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        let (field, what) = (field.into(), what.into());
        Self::new(Reason::InvalidField, format!("{field} {what}")).field(&field, &what)
    }

    /// The bytes of the request do not decode as the method's request message.
    pub(crate) fn malformed_request() -> Self {
        let message = "the request is not a message of this method's request type: generate \
                       the client from the same .proto files as the server, whose reflection \
                       shows them";
        // The empty path refers to the request as a whole.
        Self::new(Reason::InvalidField, message)
            .field("", "is not a message of this method's request type")
    }

    /// A stream of requests has another number of messages than one.
    pub(crate) fn other_message_count() -> Self {
        let message =
            "a call of this method has exactly one request message: send it in one envelope";
        Self::new(Reason::MethodNotImplemented, message)
    }

    /// The body of a request with JSON is invalid. `problem` completes a sentence that starts with the body.
    pub(crate) fn invalid_body(problem: &str) -> Self {
        // The empty path refers to the request as a whole.
        Self::new(Reason::InvalidField, format!("the body {problem}")).field("", problem)
    }

    /// The payload in `field` is not valid JSON, or violates its format at `path`. The path is empty for the payload as
    /// a whole.
    pub(super) fn invalid_payload(field: &str, path: &str, error: &JsonError) -> Self {
        let what = match path {
            "" => error.to_string(),
            path => format!("{path} {error}"),
        };
        let byte_offset = match error {
            JsonError::Utf8 { at } => Some(at),
            _ => None,
        };
        let message = format!("the payload in {field} is invalid: {what}");
        Self::new(Reason::InvalidPayload, message)
            .field(field, &what)
            .meta("field", field)
            .meta_if("byte_offset", byte_offset)
    }

    /// A regular expression does not compile. The position is in characters.
    pub(super) fn invalid_pattern(field: &str, what: &str, char_offset: usize) -> Self {
        let message = format!("{field} {what} (at character {char_offset})");
        Self::new(Reason::InvalidPattern, message)
            .field(field, what)
            .meta("field", field)
            .meta("char_offset", &char_offset)
    }

    /// The page token is malformed, or was issued for a request with other filters.
    pub(crate) fn invalid_page_token() -> Self {
        let message = "page_token is not from a request with the same filters, or the history has \
                       changed since: start again without a token";
        Self::new(Reason::InvalidPageToken, message).field(
            "page_token",
            "is not from a request with the same filters, or the history has changed since",
        )
    }

    /// The caller may not use the summary model that `field` names.
    pub(crate) fn model_not_allowed(field: &str, model: &str) -> Self {
        let message = format!(
            "the model {model} is not allowed for summaries: omit it, or add it to \
             summarizer.allowed_models in the server's configuration"
        );
        Self::new(Reason::ModelNotAllowed, message)
            .field(field, "names a model that is not allowed")
            .meta("model", model)
    }

    /// A part of the request exceeds its size limit. Both sizes are in bytes.
    pub(super) fn too_large(field: &str, actual: usize, limit: usize) -> Self {
        let message = format!(
            "{field} has {actual} bytes, and the limit is {limit} bytes: send less content"
        );
        Self::new(Reason::MessageTooLarge, message)
            .quota(field, format!("{actual} bytes; the limit is {limit}"))
            .meta("field", field)
            .meta("size_bytes", &actual)
            .meta("limit_bytes", &limit)
    }

    /// The complete request exceeds the size limit. The size is in bytes, as far as announced or received.
    pub(crate) fn request_too_large(actual: usize, limit: usize) -> Self {
        let message = format!(
            "the request has {actual} bytes, and the limit is {limit}: split the request, or raise \
             limits.max_request_bytes"
        );
        Self::new(Reason::RequestTooLarge, message)
            .quota("request", format!("{actual} bytes; the limit is {limit}"))
            .meta("size_bytes", &actual)
            .meta("limit_bytes", &limit)
    }

    /// The decoded request would exceed the memory limit per call, in bytes.
    pub(crate) fn request_too_complex(limit: usize) -> Self {
        let message = format!(
            "the request would need more than {limit} bytes of memory: split the request, or raise \
             limits.max_request_bytes"
        );
        Self::new(Reason::RequestTooLarge, message)
            .quota("request", format!("the limit is {limit} bytes of memory"))
            .meta("limit_bytes", &limit)
    }
}

/// Access and the state of the server.
impl ServiceError {
    /// The credential is missing, invalid or rejected.
    pub(crate) fn unauthenticated(why: AuthError) -> Self {
        let remedy = match why {
            AuthError::Missing | AuthError::Several | AuthError::Scheme => {
                "send the metadata `authorization: Bearer <API key or JWT>`"
            }
            _ => "use another API key or JWT",
        };
        let message = format!("{why}: {remedy}");
        Self::new(Reason::Unauthenticated, message)
            .header("www-authenticate", "Bearer realm=\"palimpsest\"")
    }

    /// The principal lacks a right in the project, or in all projects if `project` is `None`.
    pub(crate) fn permission_denied(right: Right, project: Option<&ProjectId>) -> Self {
        let message = match project {
            Some(project) => format!(
                "the credential does not have the right {right} in projects/{project}: use a \
                 credential with this right"
            ),
            None => format!(
                "the credential does not have the right {right} in every project: use a \
                 credential with this right, or name a project"
            ),
        };
        Self::new(Reason::PermissionDenied, message).meta("permission", right.name())
    }

    /// The project belongs to another tenant.
    pub(crate) fn project_not_found(project: &ProjectId) -> Self {
        let message = format!(
            "projects/{project} does not exist for this credential: use a credential for this \
             project"
        );
        Self::new(Reason::ProjectNotFound, message).meta("project", &format!("projects/{project}"))
    }

    /// The server is overloaded and shed the call.
    pub(crate) fn overloaded(retry_after: Duration) -> Self {
        let message = "the server is overloaded: retry after the delay of RetryInfo";
        Self::new(Reason::Overloaded, message).retry(retry_after)
    }

    /// The call exceeded its own deadline or the server's request timeout.
    pub(crate) fn deadline_exceeded() -> Self {
        let message = "the call did not finish before its deadline: a change that has started can \
                       still take effect, so repeat the call with the same request_id and a longer \
                       deadline";
        Self::new(Reason::DeadlineExceeded, message)
    }

    /// The store temporarily cannot read or write.
    pub(crate) fn store_unavailable(retry_after: Duration) -> Self {
        let message = "the store is unavailable: retry with the same request_id after the delay of \
                       RetryInfo";
        Self::new(Reason::StoreUnavailable, message).retry(retry_after)
    }

    /// The server is starting or shutting down. Another replica may answer before the delay.
    pub(crate) fn shutting_down(retry_after: Duration) -> Self {
        let message = "the server is starting or shutting down: retry on a new connection";
        Self::new(Reason::NotServing, message).retry(retry_after)
    }

    /// The contract has the method (`package.Service/Method`), but this version does not implement it.
    pub fn not_implemented(method: &str) -> Self {
        let message = format!("this version of the server does not implement {method}");
        Self::new(Reason::MethodNotImplemented, message).meta("method", method)
    }

    /// A fault of the service with its cause. `doing` completes the sentence "failed to …".
    pub fn internal(doing: &'static str, source: impl Into<BoxError>) -> Self {
        let mut error = Self::fault(doing);
        error.0.fault = Some(Fault {
            doing,
            source: Some(source.into()),
        });
        error
    }

    /// A fault of the service without a cause. `doing` completes the sentence "failed to …".
    pub(crate) fn fault(doing: &'static str) -> Self {
        // The message contains the trace id, so it is made together with the log line.
        let mut error = Self::new(Reason::Internal, "");
        error.0.fault = Some(Fault {
            doing,
            source: None,
        });
        error
    }
}

/// Sessions, messages, tool calls and results.
impl ServiceError {
    /// The session has a hold and cannot be deleted.
    pub(crate) fn session_on_hold(session: &SessionKey) -> Self {
        let message = format!(
            "session {session} is on hold and cannot be deleted: remove the hold with \
             UpdateSession first (update_mask hold, without a hold)"
        );
        Self::new(Reason::SessionOnHold, message)
            .meta("session", session)
            .precondition(session.to_string(), "the session must not be on hold")
            .resource(SESSION_TYPE, session)
    }

    /// The session is the parent of other sessions.
    pub(crate) fn session_has_subagents(session: &SessionKey, subagents: usize) -> Self {
        let message = format!(
            "{session} has {subagents} subagent sessions: delete them first, or set \
             delete_subagents"
        );
        Self::new(Reason::SessionHasSubagents, message)
            .meta("subagents", &subagents)
            .precondition(
                session.to_string(),
                "the session must have no subagent sessions",
            )
            .resource(SESSION_TYPE, session)
    }

    /// The message is not visible in the view.
    pub(crate) fn message_not_visible(id: MessageId, visibility: Visibility) -> Self {
        let visibility = name_of(visibility);
        let message =
            format!("message {id} is not in the view ({visibility}): choose a visible message");
        Self::new(Reason::MessageNotVisible, message)
            .meta("message_id", &id)
            .meta("visibility", visibility)
            .precondition(format!("messages/{id}"), "the message must be in the view")
    }

    /// Several tool calls share the id in `field`.
    pub(crate) fn ambiguous_call(field: &str, calls: Vec<ToolCall>) -> Self {
        let what = "matches several calls: use call_key";
        Self::new(Reason::AmbiguousToolUseId, format!("{field} {what}"))
            .field(field, what)
            .own_detail("CallCandidates", &CallCandidates { calls })
    }

    /// The call has no result. The name is its key, its id or the reference of the result.
    pub(crate) fn result_not_found(name: &str) -> Self {
        let message = format!(
            "call {name} does not exist or has no result: check the name, or append the result first"
        );
        Self::new(Reason::ResultNotFound, message).meta("call_key", name)
    }

    /// The service has no tool with this name, or the policy disables it.
    pub(crate) fn tool_not_found(tool: &str) -> Self {
        let message = "the service has no such tool, or the policy disables it: see ListTools";
        Self::new(Reason::ToolNotFound, message).meta("tool_name", tool)
    }
}

/// Views and levels.
impl ServiceError {
    /// The view changed since its etag was issued.
    pub(crate) fn view_changed(current: Revision) -> Self {
        let message = "the view of this etag has changed: call PrepareContext again";
        Self::new(Reason::ViewChanged, message).meta("current_revision", &current)
    }

    /// The session's policy disables the operation. `setting` is the path of the policy's setting.
    pub(crate) fn disabled_by_policy(setting: &str) -> Self {
        let message = format!("the session's policy disables this: see {setting}");
        Self::new(Reason::DisabledByPolicy, message)
            .meta("setting", setting)
            .precondition(format!("policy/{setting}"), "the policy must allow it")
    }

    /// At least one target cannot be snipped. Code and reason are those of the first target.
    pub(crate) fn not_snippable(targets: &[RejectedTarget]) -> Self {
        // A status has a single code, so the first target determines code and message. The details list all targets.
        let first = targets.first();
        let reason = first.map_or(Reason::TurnNotFound, |target| target.reason);
        let name = first.map(|target| target.name.as_str()).unwrap_or_default();
        let is_turn = first.is_some_and(|target| target.field.starts_with("turn_ids"));
        let snipped = Some(Visibility::Snipped);
        let why = match reason {
            Reason::TurnNotFound | Reason::MessageNotFound => "the session does not contain it",
            Reason::TurnForeign => "it belongs to the session's parent or to a subagent",
            Reason::TurnAlreadySnipped => "it is already snipped",
            // A snipped message has a general reason, so only its visibility identifies the case.
            _ if first.and_then(|target| target.visibility) == snipped => "it is already snipped",
            Reason::Pinned => "it is pinned or contains pinned content: remove the pin first",
            Reason::TurnIsCurrent => "it is the current turn: snip its messages or blocks instead",
            _ => "it is no longer in the view",
        };
        let others = match targets.len() {
            0 | 1 => String::new(),
            more => format!(", and {} more", more - 1),
        };
        let message =
            format!("nothing was snipped: {name} cannot be snipped, because {why}{others}");
        let error = Self::new(reason, message);
        // The name of a block consists of the message id, `#` and the index.
        let error = match name.split_once('#') {
            _ if is_turn => error.meta("turn_id", name),
            None => error.meta("message_id", name),
            Some((message, block)) => error.meta("message_id", message).meta("block_index", block),
        };
        let targets = targets.iter().take(MAX_TARGETS).map(|target| OutTarget {
            field: target.field.clone(),
            reason: target.reason.into(),
        });
        let targets = RejectedTargets {
            targets: targets.collect(),
        };
        let error = error
            .meta_if(
                "visibility",
                first.and_then(|it| it.visibility).map(name_of),
            )
            .meta_if("pin_id", first.and_then(|it| it.pin.as_deref()))
            .own_detail("RejectedTargets", &targets);
        match code(reason) {
            Code::FailedPrecondition => {
                let field = first.map(|target| target.field.as_str());
                error.precondition(field.unwrap_or_default(), why)
            }
            _ => error,
        }
    }
}

/// Compactions, summaries and hooks.
impl ServiceError {
    /// The token of a delegated compaction is unknown or no longer valid. The key is that in the token, if any.
    pub(crate) fn delegation_not_found(key: Option<CompactionKey>) -> Self {
        let message = "no compaction waits for this token: it has finished, has failed, has \
                       expired, or has another token; call Compact again";
        Self::new(Reason::DelegationNotFound, message).meta_if("compaction_id", key)
    }

    /// Another compaction of the session is in progress.
    pub(crate) fn compaction_running(key: CompactionKey) -> Self {
        let message = "another compaction of the session is running: wait for its end, which \
                       WatchSession reports";
        Self::new(Reason::CompactionRunning, message)
            .meta("compaction_id", &key)
            .precondition("compaction", "no other compaction can be running")
    }

    /// The summarized messages changed while the compaction was in progress.
    pub(crate) fn range_changed(key: CompactionKey, current: Revision) -> Self {
        let message = "the view changed while its summary was written, and nothing was compacted: \
                       call Compact again";
        Self::new(Reason::CompactionRangeChanged, message)
            .meta("compaction_id", &key)
            .meta("current_revision", &current)
    }

    /// The provider rejected the prompt as too long, and no more content can be removed. `compacts` is false if the policy
    /// turns automatic compaction off.
    pub(crate) fn prompt_too_long(tokens: &TokenReport, compacts: bool) -> Self {
        let message = if compacts {
            "the provider rejected the prompt as too long, and no level can reduce the view further: snip the largest \
             content, or use a model with a larger window; appended messages are kept"
        } else {
            "the provider rejected the prompt as too long, and the policy turns automatic compaction off \
             (autocompact.enabled): call Compact, or use a model with a larger window; appended messages are kept"
        };
        Self::new(Reason::PromptTooLong, message).own_detail("TokenReport", tokens)
    }

    /// A compaction would have no effect.
    pub(crate) fn nothing_to_compact(skip: SkipReason) -> Self {
        let name = skip.as_str_name();
        let skip = name.strip_prefix("SKIP_REASON_").unwrap_or(name);
        let message = format!("the view cannot be reduced ({skip}): send it unchanged");
        Self::new(Reason::NothingToCompact, message)
            .meta("skip_reason", skip)
            .precondition("view", "the view must contain something to compact")
    }

    /// The model returned no acceptable summary. `detail` is for people and includes a remedy.
    pub(crate) fn no_summary(why: CompactionFailureReason, detail: &str, model: &str) -> Self {
        use CompactionFailureReason as Why;

        let message = format!("nothing was compacted: {detail}");
        // UNAVAILABLE makes clients retry. A rejected summary would be rejected again without a change.
        if matches!(why, Why::ModelUnavailable | Why::Expired) {
            return Self::new(Reason::ModelUnavailable, message).meta("model", model);
        }
        // The store could not return the messages, so a retry can succeed without any change.
        if why == Why::InputUnreadable {
            return Self::new(Reason::StoreUnavailable, message).retry(RETRY_SOON);
        }
        let name = why.as_str_name();
        let name = name.strip_prefix("COMPACTION_FAILURE_REASON_");
        Self::new(Reason::SummaryRejected, message)
            .meta("failure_reason", name.unwrap_or_default())
            .precondition("summary", "the summary must be accepted")
    }

    /// A hook vetoed the compaction. The reason is that of the hook.
    pub(crate) fn hook_vetoed(hook: &str, reason: &str) -> Self {
        let message = format!("the hook {hook} vetoed the compaction: {reason}");
        Self::new(Reason::HookVetoed, message)
            .meta("hook", hook)
            .meta("reason", reason)
            .precondition(
                format!("hooks/{hook}"),
                "the hook must not veto the compaction",
            )
    }

    /// A hook failed, and its failure rule aborts the compaction.
    pub(crate) fn hook_failed(hook: &str, detail: &str) -> Self {
        let message = format!(
            "the hook {hook} failed, and the session's policy stops the compaction: fix the hook, \
             or set its on_failure to CONTINUE; the hook returned: {detail}"
        );
        Self::new(Reason::HookFailed, message)
            .meta("hook", hook)
            .precondition(format!("hooks/{hook}"), "the hook must succeed")
    }
}

/// A snip target that was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RejectedTarget {
    /// The path of the field that names the target.
    pub(crate) field: String,
    /// The name of the target in the request.
    pub(crate) name: String,
    /// The reason for the rejection.
    pub(crate) reason: Reason,
    /// The visibility of the target, if the visibility is the reason.
    pub(crate) visibility: Option<Visibility>,
    /// The pin that protects the target, if the pin is the reason.
    pub(crate) pin: Option<Box<str>>,
}

impl From<SnipTarget> for RejectedTarget {
    fn from(target: SnipTarget) -> Self {
        // A turn and a message have different reasons for the same rejection.
        let is_turn = target.field.starts_with("turn_ids");
        Self {
            visibility: match target.rejection {
                SnipRejection::NotVisible(standing) => Some(convert::visibility(standing)),
                SnipRejection::AlreadySnipped if !is_turn => Some(Visibility::Snipped),
                _ => None,
            },
            reason: convert::snip_rejection_reason(target.rejection, is_turn),
            field: target.field,
            name: target.name,
            pin: target.pin,
        }
    }
}

/// Returns the name of a visibility without its enum prefix.
fn name_of(visibility: Visibility) -> &'static str {
    let name = visibility.as_str_name();
    name.strip_prefix("VISIBILITY_").unwrap_or(name)
}
