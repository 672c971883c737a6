//! Gives details to the statuses that tonic makes by itself.
//!
//! Handlers answer with details always, so that a status without any comes from below them: there
//! is no such method, or the body could not be read.

use http::{HeaderMap, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::errors::ServiceError;

/// The answer, explained where tonic did not.
pub(super) fn explained(answer: Response<Body>, method: &str) -> Response<Body> {
    match explanation(answer.headers(), method) {
        Some(error) => Status::from(error).into_http(),
        None => answer,
    }
}

fn explanation(headers: &HeaderMap, method: &str) -> Option<ServiceError> {
    let code = Code::from_bytes(headers.get(Status::GRPC_STATUS)?.as_bytes());
    if headers.contains_key(Status::GRPC_STATUS_DETAILS) {
        return None;
    }
    let message = headers.get(Status::GRPC_MESSAGE);
    match (code, message) {
        // With a message it is about a compression that we do not have, and a header says which.
        (Code::Unimplemented, None) => Some(ServiceError::NotImplemented {
            method: method.to_owned(),
        }),
        (Code::Internal, message) => {
            // It names types and fields of the contract, and nothing of the call's content.
            tracing::debug!(?message, "the request's body could not be read");
            Some(ServiceError::MalformedRequest)
        }
        _ => None,
    }
}
