//! Error details for the statuses that tonic creates itself.
//!
//! Handlers always send details. A status without details therefore has one of two causes: the method does not exist,
//! or the body could not be read.

use http::{HeaderMap, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::errors::ServiceError;

/// Returns the response, with details if tonic created its status.
pub(super) fn with_details(answer: Response<Body>, method: &str) -> Response<Body> {
    match missing_details(answer.headers(), method) {
        Some(error) => Status::from(error).into_http(),
        None => answer,
    }
}

fn missing_details(headers: &HeaderMap, method: &str) -> Option<ServiceError> {
    let code = Code::from_bytes(headers.get(Status::GRPC_STATUS)?.as_bytes());
    if headers.contains_key(Status::GRPC_STATUS_DETAILS) {
        return None;
    }
    let message = headers.get(Status::GRPC_MESSAGE);
    match (code, message) {
        // With a message, the status is about an unsupported compression, and a header already names the supported
        // ones.
        (Code::Unimplemented, None) => Some(ServiceError::not_implemented(method)),
        (Code::Internal, message) => {
            // The message of tonic contains types and fields of the contract, but no content of the call.
            tracing::debug!(?message, "failed to read the body of a request");
            Some(ServiceError::malformed_request())
        }
        _ => None,
    }
}
