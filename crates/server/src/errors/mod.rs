//! The error type of all services. An error is the gRPC status that the caller receives.
//!
//! [`ServiceError`] has one constructor for each error that a handler finds itself (`reasons`), and one conversion for
//! each error type of the lower layers (`domain`). The reason of the contract determines the gRPC code. The snapshots
//! in `tests.rs` contain every status.

mod domain;
mod reasons;
#[cfg(test)]
#[expect(
    clippy::needless_raw_string_hashes,
    reason = "as expect-test writes them"
)]
mod tests;

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use palimpsest_proto::context::v1::ErrorReason;
use palimpsest_store::error_chain;
use prost::Message;
use prost_types::Any;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _, pb};

pub(crate) use self::domain::RETRY_SOON;
pub(crate) use self::reasons::RejectedTarget;
use crate::telemetry::TraceId;

/// Any error, boxed for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The domain of every `ErrorInfo`.
pub(crate) const DOMAIN: &str = "palimpsest";

/// The maximum size of a status message, in bytes. Some clients hang on headers of 16 KiB.
const MAX_MESSAGE_BYTES: usize = 1_023;
/// The maximum size of a text in the details, in bytes.
const MAX_DETAIL_BYTES: usize = 512;

/// The reason for rejecting or failing a call, with the contents of its gRPC status.
///
/// The caller receives all contents except the fault. Texts must not contain message content.
#[derive(Debug)]
pub struct ServiceError(Box<StatusContents>);

/// The contents of a gRPC status.
#[derive(Debug)]
struct StatusContents {
    reason: ErrorReason,
    message: String,
    metadata: Vec<(&'static str, String)>,
    details: ErrorDetails,
    /// A detail message of the contract's package.
    own_detail: Option<Any>,
    /// A metadata header in addition to the status.
    header: Option<(&'static str, &'static str)>,
    fault: Option<Fault>,
}

/// A defect of the service. It is logged when the status is made, and never returned to the caller.
#[derive(Debug)]
struct Fault {
    /// The failed operation. Completes the sentence "failed to …".
    doing: &'static str,
    /// The cause, if known.
    source: Option<BoxError>,
}

impl ServiceError {
    fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self(Box::new(StatusContents {
            reason,
            message: message.into(),
            metadata: Vec::new(),
            details: ErrorDetails::new(),
            own_detail: None,
            header: None,
            fault: None,
        }))
    }

    /// The reason of the contract.
    pub(crate) fn reason(&self) -> ErrorReason {
        self.0.reason
    }

    fn meta(mut self, key: &'static str, value: &(impl ToString + ?Sized)) -> Self {
        let value = truncate_bytes(&value.to_string(), MAX_DETAIL_BYTES);
        self.0.metadata.push((key, value));
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
        self.0.details.add_bad_request_violation(path, what);
        self
    }

    fn resource(mut self, kind: &str, name: &(impl ToString + ?Sized)) -> Self {
        let name = truncate_bytes(&name.to_string(), MAX_DETAIL_BYTES);
        self.0.details.set_resource_info(kind, name, "", "");
        self
    }

    fn retry(mut self, after: Duration) -> Self {
        self.0.details.set_retry_info(Some(after));
        self
    }

    fn quota(mut self, subject: &str, what: String) -> Self {
        let subject = truncate_bytes(subject, MAX_DETAIL_BYTES);
        self.0.details.add_quota_failure_violation(subject, what);
        self
    }

    fn precondition(mut self, subject: impl Into<String>, what: &str) -> Self {
        let reason = reason_name(self.0.reason);
        self.0
            .details
            .add_precondition_failure_violation(reason, subject, what);
        self
    }

    fn own_detail(mut self, name: &str, detail: &impl Message) -> Self {
        self.0.own_detail = Some(Any {
            type_url: format!("type.googleapis.com/palimpsest.context.v1.{name}"),
            value: detail.encode_to_vec(),
        });
        self
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// Logs the fault, if any, and adds the trace id, which leads an operator from the reply to this log line.
    fn log_fault(mut self) -> Self {
        let Some(Fault { doing, source }) = self.0.fault.take() else {
            return self;
        };
        let trace_id = TraceId::current();
        tracing::error!(
            trace_id = trace_id.as_ref().map(tracing::field::display),
            error = source.as_deref().map(|source| error_chain(source)),
            "failed to {doing}"
        );
        // The cause can name hosts and paths of the server, so only its log contains it.
        self.0.message = match &trace_id {
            Some(id) => format!("internal error: see trace_id {id} in the server's log"),
            None => "internal error: see the server's log".to_owned(),
        };
        self.meta_if("trace_id", trace_id)
    }
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let mut contents = *error.log_fault().0;
        let metadata = contents.metadata.into_iter();
        let metadata: HashMap<_, _> = metadata.map(|(key, text)| (key.to_owned(), text)).collect();
        let reason = reason_name(contents.reason);
        contents.details.set_error_info(reason, DOMAIN, metadata);
        let message = truncate_bytes(&contents.message, MAX_MESSAGE_BYTES);
        let status = Self::with_error_details(code(contents.reason), message, contents.details);
        let mut status = match contents.own_detail {
            Some(detail) => with_detail(&status, detail),
            None => status,
        };
        if let Some((name, value)) = contents.header {
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

/// Returns the name of a reason without the prefix of its enum.
fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

/// Returns the gRPC code of a reason, which `errors.proto` documents.
fn code(reason: ErrorReason) -> Code {
    use ErrorReason as Reason;
    match reason {
        Reason::InvalidField
        | Reason::InvalidPayload
        | Reason::InvalidPattern
        | Reason::AmbiguousToolUseId
        | Reason::CallMismatch
        | Reason::InvalidPageToken
        | Reason::ModelNotAllowed => Code::InvalidArgument,
        Reason::SessionNotFound
        | Reason::MessageNotFound
        | Reason::CallNotFound
        | Reason::ResultNotFound
        | Reason::TurnNotFound
        | Reason::TurnForeign
        | Reason::CollapseNotFound
        | Reason::DelegationNotFound
        | Reason::RevisionNotFound
        | Reason::ToolNotFound
        | Reason::ProjectNotFound => Code::NotFound,
        Reason::SessionExists
        | Reason::MessageConflict
        | Reason::RequestConflict
        | Reason::ResultConflict => Code::AlreadyExists,
        Reason::RevisionMismatch
        | Reason::CompactionRangeChanged
        | Reason::ViewChanged
        | Reason::MemoryVersionMismatch => Code::Aborted,
        Reason::TurnAlreadySnipped
        | Reason::TurnNotVisible
        | Reason::TurnIsCurrent
        | Reason::MessageNotVisible
        | Reason::Pinned
        | Reason::NothingToCompact
        | Reason::DisabledByPolicy
        | Reason::HookVetoed
        | Reason::HookFailed
        | Reason::SummaryRejected
        | Reason::CompactionRunning
        | Reason::RestoreOverBlock
        | Reason::SessionHasSubagents
        | Reason::SessionOnHold => Code::FailedPrecondition,
        Reason::RequestTooLarge
        | Reason::MessageTooLarge
        | Reason::WorkingStateTooLarge
        | Reason::QuotaExceeded
        | Reason::Overloaded
        | Reason::PromptTooLong
        | Reason::RequestRateExceeded
        | Reason::ByteRateExceeded
        | Reason::ConcurrencyExceeded => Code::ResourceExhausted,
        Reason::ModelUnavailable
        | Reason::StoreUnavailable
        | Reason::StoreFull
        | Reason::SessionDeleting
        | Reason::NotServing => Code::Unavailable,
        Reason::Unauthenticated => Code::Unauthenticated,
        Reason::PermissionDenied => Code::PermissionDenied,
        Reason::MethodNotImplemented => Code::Unimplemented,
        Reason::DeadlineExceeded => Code::DeadlineExceeded,
        Reason::Internal | Reason::Unspecified => Code::Internal,
    }
}
