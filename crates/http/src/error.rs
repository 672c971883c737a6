//! Errors in the JSON of each protocol.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use prost::Message as _;
use serde::Serialize;
use serde_json::value::RawValue;
use tonic::{Code, Status};
use tonic_types::{StatusExt as _, pb};

use crate::body::ApiBody;
use crate::json::{Form, Schema, write};

/// Returns the HTTP status of a code, as the Connect protocol and Google's HTTP APIs have it.
pub(crate) const fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        // 499, the status of nginx for a request that its client cancelled, has no constant in the crate.
        Code::Cancelled => match StatusCode::from_u16(499) {
            Ok(status) => status,
            Err(_) => StatusCode::BAD_REQUEST,
        },
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The reasons of errors about the size of content. Their code is that of exceeded quotas, but a repeat cannot succeed.
const TOO_LARGE: [&str; 4] = [
    "REQUEST_TOO_LARGE",
    "MESSAGE_TOO_LARGE",
    "WORKING_STATE_TOO_LARGE",
    "PROMPT_TOO_LONG",
];

/// Returns the HTTP status of an error of the REST API.
pub(crate) fn rest_status(status: &Status) -> StatusCode {
    let reason = status.get_details_error_info().map(|info| info.reason);
    match reason {
        Some(reason) if TOO_LARGE.contains(&reason.as_str()) => StatusCode::PAYLOAD_TOO_LARGE,
        _ => http_status(status.code()),
    }
}

/// Returns the standard name of a code, such as `NOT_FOUND`.
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Returns the name of a code in the Connect protocol, such as `not_found`.
fn connect_code_name(code: Code) -> String {
    match code {
        // Connect spells it with one `l`.
        Code::Cancelled => "canceled".to_owned(),
        other => code_name(other).to_ascii_lowercase(),
    }
}

fn details_of(status: &Status) -> Vec<prost_types::Any> {
    pb::Status::decode(status.details()).map_or_else(|_| Vec::new(), |status| status.details)
}

#[derive(Serialize)]
struct RestError<'a> {
    error: RestStatus<'a>,
}

#[derive(Serialize)]
struct RestStatus<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: Vec<Box<RawValue>>,
}

/// Returns an error of the REST API: the JSON of `google.rpc.Status`, as Google's HTTP APIs have it.
pub(crate) fn rest_json(schema: &Schema, status: &Status) -> Vec<u8> {
    let details = details_of(status);
    let details = details
        .iter()
        .filter_map(|detail| detail_json(schema, detail));
    let error = RestError {
        error: RestStatus {
            code: rest_status(status).as_u16(),
            status: code_name(status.code()),
            message: status.message(),
            details: details.collect(),
        },
    };
    serde_json::to_vec(&error).unwrap_or_default()
}

fn detail_json(schema: &Schema, detail: &prost_types::Any) -> Option<Box<RawValue>> {
    let any = schema.find("google.protobuf.Any")?;
    let mut text = Vec::new();
    write(
        schema,
        any,
        Form::Protobuf,
        &detail.encode_to_vec(),
        &mut text,
    )
    .ok()?;
    RawValue::from_string(String::from_utf8(text).ok()?).ok()
}

/// An error of the Connect protocol.
#[derive(Serialize)]
pub(crate) struct ConnectError {
    code: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<ConnectDetail>,
}

#[derive(Serialize)]
struct ConnectDetail {
    #[serde(rename = "type")]
    name: String,
    value: String,
}

impl From<&Status> for ConnectError {
    fn from(status: &Status) -> Self {
        let details = details_of(status).into_iter().map(|detail| ConnectDetail {
            // `type.googleapis.com/google.rpc.ErrorInfo` is `google.rpc.ErrorInfo` in the Connect protocol.
            name: detail
                .type_url
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
            value: STANDARD_NO_PAD.encode(detail.value),
        });
        Self {
            code: connect_code_name(status.code()),
            message: status.message().to_owned(),
            details: details.collect(),
        }
    }
}

/// Returns a response with the JSON of an error, without metadata.
pub(crate) fn response<B>(status: &Status, json: Vec<u8>) -> Response<ApiBody<B>> {
    let mut response = Response::new(ApiBody::whole(Bytes::from(json), None));
    *response.status_mut() = http_status(status.code());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let retry = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
    if let Some(delay) = retry {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(delay)));
    }
    response
}

/// Returns the status of a response that cannot be written.
pub(crate) fn defect() -> Status {
    Status::internal("cannot write the response because of a defect")
}

/// Returns the metadata of a status.
pub(crate) fn metadata(status: &Status) -> HeaderMap {
    let mut headers = status.metadata().clone().into_headers();
    // The content type is that of gRPC and would replace the type of the JSON.
    headers.remove(CONTENT_TYPE);
    headers
}

/// Returns a duration in seconds, rounded up. The header has no fractions.
fn whole_seconds(delay: Duration) -> u64 {
    delay.as_secs() + u64::from(delay.subsec_nanos() > 0)
}
