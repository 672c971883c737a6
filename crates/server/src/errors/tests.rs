use std::fmt::Write as _;

use expect_test::expect;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{CallKey, CompactionKey, MessageId, Revision, SessionKey};
use palimpsest_core::json::JsonError;
use palimpsest_core::message::Digest;
use palimpsest_engine::EngineError;
use palimpsest_engine::quotas::{Quota, QuotaExceeded};
use palimpsest_proto::context::v1::{CompactionFailureReason, TokenReport, Visibility};
use palimpsest_store::StoreError;
use tonic::Status;
use tonic_types::{ErrorDetail, StatusExt as _};

use super::*;
use crate::access::{AuthError, Right};
use crate::convert;

fn shown(status: &Status) -> String {
    let mut out = format!("{:?}: {}\n", status.code(), status.message());
    for detail in status.get_error_details_vec() {
        let line = match detail {
            ErrorDetail::ErrorInfo(info) => {
                let mut metadata: Vec<_> = info.metadata.into_iter().collect();
                // The order in a map is random, and snapshots need a stable one.
                metadata.sort();
                let pairs: Vec<_> = metadata.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!(
                    "ErrorInfo {}/{} {}",
                    info.domain,
                    info.reason,
                    pairs.join(" ")
                )
            }
            ErrorDetail::BadRequest(bad) => {
                let each = bad.field_violations.iter();
                let all: Vec<_> = each
                    .map(|v| format!("{}: {}", v.field, v.description))
                    .collect();
                format!("BadRequest {}", all.join("; "))
            }
            ErrorDetail::QuotaFailure(quota) => {
                let each = quota.violations.iter();
                let all: Vec<_> = each
                    .map(|v| format!("{}: {}", v.subject, v.description))
                    .collect();
                format!("QuotaFailure {}", all.join("; "))
            }
            ErrorDetail::PreconditionFailure(failure) => {
                let each = failure.violations.iter();
                let all: Vec<_> = each
                    .map(|v| format!("{} {}: {}", v.r#type, v.subject, v.description))
                    .collect();
                format!("PreconditionFailure {}", all.join("; "))
            }
            ErrorDetail::RetryInfo(retry) => {
                format!("RetryInfo {:?}", retry.retry_delay.unwrap_or_default())
            }
            ErrorDetail::ResourceInfo(resource) => {
                format!(
                    "ResourceInfo {} {}",
                    resource.resource_type, resource.resource_name
                )
            }
            other => format!("{other:?}"),
        };
        // An `ErrorInfo` without metadata would end with a space, which editors remove from the snapshot.
        let _ = writeln!(out, "  {}", line.trim_end());
    }
    out
}

fn id() -> MessageId {
    MessageId::parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap()
}

fn session() -> SessionKey {
    SessionKey::parse("projects/p/sessions/s").unwrap()
}

fn exceeded(quota: Quota, retry_after: Option<Duration>) -> ServiceError {
    ServiceError::from(QuotaExceeded {
        project: Some(session().project),
        quota,
        limit: 7,
        retry_after,
    })
}

/// Returns one error of each kind, in the order of the enum.
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_error() -> Vec<ServiceError> {
    use ServiceError as E;
    let [stored, given] = [b"a", b"b"].map(|text| Digest::of_bytes(text));
    let retry_after = Duration::from_millis(1_500);
    // A new variant must be added here, because the snapshot below is built from this list.
    vec![
        E::invalid("messages[3].metadata.parent_id", "must be a UUID"),
        E::malformed_request(),
        E::from(convert::FieldError {
            path: "messages[0].payload".into(),
            problem: convert::FieldProblem::Payload {
                path: "messages[3].content[0].source".into(),
                error: JsonError::Kind {
                    expected: "an object",
                },
            },
        }),
        E::invalid_pattern("pattern", "has an unclosed group", 7),
        E::model_not_allowed("overrides.model", "claude-opus"),
        E::invalid_page_token(),
        E::from(EngineError::SessionNotFound(session())),
        E::from(Rejection::ParentNotFound { index: 3, id: id() }),
        E::from(Rejection::MessageNotFound { id: id() }),
        E::from(Rejection::CallNotFound(CallKey::new(12))),
        E::from(Rejection::CallMismatch {
            call: CallKey::new(12),
            id: "toolu_1".into(),
        }),
        E::delegation_not_found(None),
        E::delegation_not_found(Some(CompactionKey::new(3))),
        E::compaction_running(CompactionKey::new(3)),
        E::range_changed(CompactionKey::new(3), Revision::new(9)),
        E::prompt_too_long(&TokenReport::default(), true),
        E::prompt_too_long(&TokenReport::default(), false),
        E::from(Rejection::TooManyPendingResults(256)),
        E::from(Rejection::ResultConflict {
            call: Some(CallKey::new(12)),
            stored: "aa".into(),
            given: "bb".into(),
        }),
        E::from(EngineError::SessionExists(session())),
        E::session_on_hold(&session()),
        E::from(EngineError::SessionDeleting(session())),
        E::from(Rejection::MessageConflict {
            id: id(),
            stored,
            given,
        }),
        E::from(Rejection::RequestConflict {
            request_id: "r1".into(),
            stored,
            given,
        }),
        E::from(Rejection::RevisionMismatch {
            expected: Revision::new(3),
            current: Revision::new(5),
        }),
        E::from(Rejection::MemoryVersionMismatch {
            expected: 3,
            current: 5,
        }),
        E::view_changed(Revision::new(5)),
        E::message_not_visible(id(), Visibility::Compacted),
        E::not_snippable(&[RejectedTarget {
            field: "turn_ids[0]".into(),
            name: "a1b2c3".into(),
            reason: ErrorReason::TurnNotVisible,
            visibility: Some(Visibility::Rewound),
            pin: None,
        }]),
        E::too_large("messages[0].content", 20, 10),
        E::from(Rejection::WorkingStateTooLarge {
            bytes: 20,
            limit: 10,
        }),
        E::request_too_large(20, 10),
        E::no_summary(
            CompactionFailureReason::ModelUnavailable,
            "the model provider cannot answer now (503); try again later",
            "m",
        ),
        E::no_summary(
            CompactionFailureReason::InputUnreadable,
            "the messages could not be read; try again",
            "m",
        ),
        E::no_summary(
            CompactionFailureReason::SummaryRefused,
            "the model refused to summarise; compact with another model",
            "m",
        ),
        E::hook_vetoed("PreCompact", "a release is going on"),
        E::hook_failed("PostCompact", "Unavailable: connection refused"),
        E::unauthenticated(AuthError::Missing),
        E::permission_denied(Right::Compact, Some(&session().project)),
        E::permission_denied(Right::Admin, None),
        E::project_not_found(&session().project),
        E::overloaded(retry_after),
        exceeded(Quota::Requests, Some(retry_after)),
        exceeded(Quota::Bytes, Some(retry_after)),
        exceeded(Quota::Calls, Some(retry_after)),
        exceeded(Quota::Watches, Some(retry_after)),
        exceeded(Quota::Sessions, None),
        E::from(QuotaExceeded {
            project: None,
            quota: Quota::StoredBytes,
            limit: 7,
            retry_after: None,
        }),
        E::deadline_exceeded(),
        E::store_unavailable(retry_after),
        E::from(EngineError::HistoryChanged(session())).retry(retry_after),
        E::from(StoreError::OutOfSpace("its disk is nearly full")).retry(retry_after),
        E::shutting_down(retry_after),
        E::not_implemented("palimpsest.context.v1.ContextService/Snip"),
        E::internal("read the log", "disk on fire"),
    ]
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn every_error_maps_to_its_status() {
    // One snapshot of all errors, so that a change of any text is visible in review.
    let table: Vec<_> = every_error()
        .into_iter()
        .map(|error| shown(&Status::from(error)))
        .collect();
    expect![[r#"
        InvalidArgument: messages[3].metadata.parent_id must be a UUID
          ErrorInfo palimpsest/INVALID_FIELD
          BadRequest messages[3].metadata.parent_id: must be a UUID
        InvalidArgument: the request is not a message of this method's request type: generate the client from the same .proto files as the server, whose reflection shows them
          ErrorInfo palimpsest/INVALID_FIELD
          BadRequest : is not a message of this method's request type
        InvalidArgument: the payload in messages[0].payload is invalid: messages[3].content[0].source must be an object
          ErrorInfo palimpsest/INVALID_PAYLOAD field=messages[0].payload
          BadRequest messages[0].payload: messages[3].content[0].source must be an object
        InvalidArgument: pattern has an unclosed group (at character 7)
          ErrorInfo palimpsest/INVALID_PATTERN char_offset=7 field=pattern
          BadRequest pattern: has an unclosed group
        InvalidArgument: the model claude-opus is not allowed for summaries: omit it, or add it to summarizer.allowed_models in the server's configuration
          ErrorInfo palimpsest/MODEL_NOT_ALLOWED model=claude-opus
          BadRequest overrides.model: names a model that is not allowed
        InvalidArgument: page_token is not from a request with the same filters, or the history has changed since: start again without a token
          ErrorInfo palimpsest/INVALID_PAGE_TOKEN
          BadRequest page_token: is not from a request with the same filters, or the history has changed since
        NotFound: session projects/p/sessions/s does not exist: create it, or append to it, first
          ErrorInfo palimpsest/SESSION_NOT_FOUND session=projects/p/sessions/s
          ResourceInfo palimpsest.context.v1.Session projects/p/sessions/s
        NotFound: messages[3].metadata.parent_id: the session has no message 01890a5d-ac96-774b-bcce-b302099a8057. Append that message first, or omit parent_id
          ErrorInfo palimpsest/MESSAGE_NOT_FOUND field=messages[3].metadata.parent_id message_id=01890a5d-ac96-774b-bcce-b302099a8057
          ResourceInfo palimpsest.context.v1.Message 01890a5d-ac96-774b-bcce-b302099a8057
        NotFound: the session has no message 01890a5d-ac96-774b-bcce-b302099a8057
          ErrorInfo palimpsest/MESSAGE_NOT_FOUND message_id=01890a5d-ac96-774b-bcce-b302099a8057
          ResourceInfo palimpsest.context.v1.Message 01890a5d-ac96-774b-bcce-b302099a8057
        NotFound: the session has no such tool call: append the message with the call first
          ErrorInfo palimpsest/CALL_NOT_FOUND call_key=c12
          ResourceInfo palimpsest.context.v1.ToolCall c12
        InvalidArgument: call c12 has another tool_use_id: omit one of the two
          ErrorInfo palimpsest/CALL_MISMATCH call_key=c12 tool_use_id=toolu_1
          BadRequest call.tool_use_id: is not that of the call with this call_key
        NotFound: no compaction waits for this token: it has finished, has failed, has expired, or has another token; call Compact again
          ErrorInfo palimpsest/DELEGATION_NOT_FOUND
        NotFound: no compaction waits for this token: it has finished, has failed, has expired, or has another token; call Compact again
          ErrorInfo palimpsest/DELEGATION_NOT_FOUND compaction_id=compaction-3
        FailedPrecondition: another compaction of the session is running: wait for its end, which WatchSession reports
          ErrorInfo palimpsest/COMPACTION_RUNNING compaction_id=compaction-3
          PreconditionFailure COMPACTION_RUNNING compaction: no other compaction can be running
        Aborted: the view changed while its summary was written, and nothing was compacted: call Compact again
          ErrorInfo palimpsest/COMPACTION_RANGE_CHANGED compaction_id=compaction-3 current_revision=9
        ResourceExhausted: the provider rejected the prompt as too long, and no level can reduce the view further: snip the largest content, or use a model with a larger window; appended messages are kept
          ErrorInfo palimpsest/PROMPT_TOO_LONG
        ResourceExhausted: the provider rejected the prompt as too long, and the policy turns automatic compaction off (autocompact.enabled): call Compact, or use a model with a larger window; appended messages are kept
          ErrorInfo palimpsest/PROMPT_TOO_LONG
        ResourceExhausted: 256 stored results wait for their messages: append these messages first
          QuotaFailure call: at most 256 results can wait
          ErrorInfo palimpsest/QUOTA_EXCEEDED limit=256 quota=waiting_results
        AlreadyExists: call c12 already has another result: use a new call for the new result
          ErrorInfo palimpsest/RESULT_CONFLICT call_key=c12 given_digest=bb stored_digest=aa
        AlreadyExists: session projects/p/sessions/s already exists: use it, or choose another name
          ErrorInfo palimpsest/SESSION_EXISTS session=projects/p/sessions/s
          ResourceInfo palimpsest.context.v1.Session projects/p/sessions/s
        FailedPrecondition: session projects/p/sessions/s is on hold and cannot be deleted: remove the hold with UpdateSession first (update_mask hold, without a hold)
          ErrorInfo palimpsest/SESSION_ON_HOLD session=projects/p/sessions/s
          PreconditionFailure SESSION_ON_HOLD projects/p/sessions/s: the session must not be on hold
          ResourceInfo palimpsest.context.v1.Session projects/p/sessions/s
        Unavailable: session projects/p/sessions/s was deleted and its files are still being removed: retry after the delay of RetryInfo, or choose another name
          RetryInfo 200ms
          ErrorInfo palimpsest/SESSION_DELETING session=projects/p/sessions/s
        AlreadyExists: message 01890a5d-ac96-774b-bcce-b302099a8057 already exists with other content: use another id for the new message
          ErrorInfo palimpsest/MESSAGE_CONFLICT given_digest=836d69d0eed52279bdede1e86df8aa2b message_id=01890a5d-ac96-774b-bcce-b302099a8057 stored_digest=57feb47890e14caeeef4fed93f6b8fce
          ResourceInfo palimpsest.context.v1.Message 01890a5d-ac96-774b-bcce-b302099a8057
        AlreadyExists: this request_id was used with another body: use a new request_id for each request
          ErrorInfo palimpsest/REQUEST_CONFLICT given_digest=836d69d0eed52279bdede1e86df8aa2b request_id=r1 stored_digest=57feb47890e14caeeef4fed93f6b8fce
        Aborted: the session is at revision 5, not at 3: read the session again, then retry
          ErrorInfo palimpsest/REVISION_MISMATCH current_revision=5 expected_revision=3
        Aborted: session memory has version 5, not 3: read it again, then edit the current text
          ErrorInfo palimpsest/MEMORY_VERSION_MISMATCH current_version=5 expected_version=3
        Aborted: the view of this etag has changed: call PrepareContext again
          ErrorInfo palimpsest/VIEW_CHANGED current_revision=5
        FailedPrecondition: message 01890a5d-ac96-774b-bcce-b302099a8057 is not in the view (COMPACTED): choose a visible message
          ErrorInfo palimpsest/MESSAGE_NOT_VISIBLE message_id=01890a5d-ac96-774b-bcce-b302099a8057 visibility=COMPACTED
          PreconditionFailure MESSAGE_NOT_VISIBLE messages/01890a5d-ac96-774b-bcce-b302099a8057: the message must be in the view
        FailedPrecondition: nothing was snipped: a1b2c3 cannot be snipped, because it is no longer in the view
          ErrorInfo palimpsest/TURN_NOT_VISIBLE turn_id=a1b2c3 visibility=REWOUND
          PreconditionFailure TURN_NOT_VISIBLE turn_ids[0]: it is no longer in the view
        ResourceExhausted: messages[0].content has 20 bytes, and the limit is 10 bytes: send less content
          QuotaFailure messages[0].content: 20 bytes; the limit is 10
          ErrorInfo palimpsest/MESSAGE_TOO_LARGE field=messages[0].content limit_bytes=10 size_bytes=20
        ResourceExhausted: the working state would have 20 bytes, and the limit is 10: remove entries, or raise limits.max_working_state_bytes
          QuotaFailure working_state: 20 bytes; the limit is 10
          ErrorInfo palimpsest/WORKING_STATE_TOO_LARGE limit_bytes=10 size_bytes=20
        ResourceExhausted: the request has 20 bytes, and the limit is 10: split the request, or raise limits.max_request_bytes
          QuotaFailure request: 20 bytes; the limit is 10
          ErrorInfo palimpsest/REQUEST_TOO_LARGE limit_bytes=10 size_bytes=20
        Unavailable: nothing was compacted: the model provider cannot answer now (503); try again later
          ErrorInfo palimpsest/MODEL_UNAVAILABLE model=m
        Unavailable: nothing was compacted: the messages could not be read; try again
          RetryInfo 200ms
          ErrorInfo palimpsest/STORE_UNAVAILABLE
        FailedPrecondition: nothing was compacted: the model refused to summarise; compact with another model
          ErrorInfo palimpsest/SUMMARY_REJECTED failure_reason=SUMMARY_REFUSED
          PreconditionFailure SUMMARY_REJECTED summary: the summary must be accepted
        FailedPrecondition: the hook PreCompact vetoed the compaction: a release is going on
          ErrorInfo palimpsest/HOOK_VETOED hook=PreCompact reason=a release is going on
          PreconditionFailure HOOK_VETOED hooks/PreCompact: the hook must not veto the compaction
        FailedPrecondition: the hook PostCompact failed, and the session's policy stops the compaction: fix the hook, or set its on_failure to CONTINUE; the hook returned: Unavailable: connection refused
          ErrorInfo palimpsest/HOOK_FAILED hook=PostCompact
          PreconditionFailure HOOK_FAILED hooks/PostCompact: the hook must succeed
        Unauthenticated: the call has no credential: send the metadata `authorization: Bearer <API key or JWT>`
          ErrorInfo palimpsest/UNAUTHENTICATED
        PermissionDenied: the credential does not have the right compact in projects/p: use a credential with this right
          ErrorInfo palimpsest/PERMISSION_DENIED permission=compact
        PermissionDenied: the credential does not have the right admin in every project: use a credential with this right, or name a project
          ErrorInfo palimpsest/PERMISSION_DENIED permission=admin
        NotFound: projects/p does not exist for this credential: use a credential for this project
          ErrorInfo palimpsest/PROJECT_NOT_FOUND project=projects/p
        ResourceExhausted: the server is overloaded: retry after the delay of RetryInfo
          RetryInfo 1.5s
          ErrorInfo palimpsest/OVERLOADED
        ResourceExhausted: projects/p can have at most 7 calls per second: wait for the delay of RetryInfo, or raise quotas.requests_per_second
          RetryInfo 1.5s
          QuotaFailure projects/p: quotas.requests_per_second is 7
          ErrorInfo palimpsest/REQUEST_RATE_EXCEEDED limit=7 quota=quotas.requests_per_second
        ResourceExhausted: projects/p can have at most 7 request bytes per second: wait for the delay of RetryInfo, or raise quotas.bytes_per_second
          RetryInfo 1.5s
          QuotaFailure projects/p: quotas.bytes_per_second is 7
          ErrorInfo palimpsest/BYTE_RATE_EXCEEDED limit=7 quota=quotas.bytes_per_second
        ResourceExhausted: projects/p can have at most 7 concurrent calls: wait until a call ends, or raise quotas.concurrent_requests
          RetryInfo 1.5s
          QuotaFailure projects/p: quotas.concurrent_requests is 7
          ErrorInfo palimpsest/CONCURRENCY_EXCEEDED limit=7 quota=quotas.concurrent_requests
        ResourceExhausted: projects/p can have at most 7 concurrent watches: end a watch first, or raise quotas.watches
          RetryInfo 1.5s
          QuotaFailure projects/p: quotas.watches is 7
          ErrorInfo palimpsest/CONCURRENCY_EXCEEDED limit=7 quota=quotas.watches
        ResourceExhausted: projects/p can have at most 7 sessions: delete sessions that are no longer needed, or raise quotas.sessions
          QuotaFailure projects/p: quotas.sessions is 7
          ErrorInfo palimpsest/QUOTA_EXCEEDED limit=7 quota=quotas.sessions
        ResourceExhausted: all projects can have at most 7 stored bytes: delete sessions that are no longer needed, or raise quotas.server.stored_bytes
          QuotaFailure all projects: quotas.server.stored_bytes is 7
          ErrorInfo palimpsest/QUOTA_EXCEEDED limit=7 quota=quotas.server.stored_bytes
        DeadlineExceeded: the call did not finish before its deadline: a change that has started can still take effect, so repeat the call with the same request_id and a longer deadline
          ErrorInfo palimpsest/DEADLINE_EXCEEDED
        Unavailable: the store is unavailable: retry with the same request_id after the delay of RetryInfo
          RetryInfo 1.5s
          ErrorInfo palimpsest/STORE_UNAVAILABLE
        Unavailable: the history of projects/p/sessions/s changed during the read, by a failover or a new creation: discard the received data and read the session again
          RetryInfo 1.5s
          ErrorInfo palimpsest/STORE_UNAVAILABLE
        Unavailable: the store rejects writes and serves reads: its disk is nearly full
          RetryInfo 1.5s
          ErrorInfo palimpsest/STORE_FULL
        Unavailable: the server is starting or shutting down: retry on a new connection
          RetryInfo 1.5s
          ErrorInfo palimpsest/NOT_SERVING
        Unimplemented: this version of the server does not implement palimpsest.context.v1.ContextService/Snip
          ErrorInfo palimpsest/METHOD_NOT_IMPLEMENTED method=palimpsest.context.v1.ContextService/Snip
        Internal: internal error: see the server's log
          ErrorInfo palimpsest/INTERNAL
    "#]].assert_eq(&table.concat());
}

#[test]
fn every_status_is_bounded_and_has_error_info() {
    for error in every_error() {
        let status = Status::from(error);
        assert!(status.message().len() < 1_024, "{status:?}");
        let info = status
            .get_details_error_info()
            .expect("the status has no ErrorInfo");
        assert_eq!(info.domain, "palimpsest");
        assert!(!info.reason.is_empty() && !info.reason.contains("UNSPECIFIED"));
    }
}

#[test]
fn long_texts_are_truncated_between_characters() {
    let status = Status::from(ServiceError::invalid("ä".repeat(5_000), "ö".repeat(5_000)));
    assert!(status.message().len() < 1_024);
    // In headers the size grows by a third, still far below the 16 KiB at which some clients hang.
    assert!(status.details().len() < 4_096, "{}", status.details().len());
}

#[test]
fn an_internal_error_does_not_expose_its_source() {
    let status = Status::from(ServiceError::internal("do it", "SECRET"));
    assert!(!shown(&status).contains("SECRET"));
}

#[test]
fn rejections_map_to_their_error_reasons() {
    let conflict = Rejection::RequestConflict {
        request_id: "r1".into(),
        stored: Digest::of_bytes(b"a"),
        given: Digest::of_bytes(b"b"),
    };
    let all = [
        Rejection::invalid("title", "must not be empty"),
        Rejection::TooLarge {
            field: "messages".into(),
            limit: 1,
            actual: 2,
        },
        conflict,
        Rejection::RevisionMismatch {
            expected: Revision::new(1),
            current: Revision::new(2),
        },
        Rejection::MessageNotFound { id: id() },
        Rejection::ParentNotFound { index: 3, id: id() },
        Rejection::CallNotFound(CallKey::new(1)),
        Rejection::AmbiguousCall(vec![CallKey::new(1)]),
    ];
    // Compares reasons only. The snapshot above covers the texts.
    let reasons = all.map(|rejection| {
        let status = Status::from(ServiceError::from(rejection));
        status.get_details_error_info().unwrap().reason
    });
    assert_eq!(
        reasons,
        [
            "INVALID_FIELD",
            "MESSAGE_TOO_LARGE",
            "REQUEST_CONFLICT",
            "REVISION_MISMATCH",
            "MESSAGE_NOT_FOUND",
            "MESSAGE_NOT_FOUND",
            "CALL_NOT_FOUND",
            "AMBIGUOUS_TOOL_USE_ID"
        ]
    );
}
