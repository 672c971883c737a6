//! Receives a request of another protocol than gRPC, and turns its body into the message.

use std::sync::atomic::AtomicU64;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use palimpsest_edge::budget::BudgetShare;
use palimpsest_http::{BodyDecoder, BodyProblem, on_fitting_thread};
use tonic::body::Body;

use super::limited_body::PREFIX_BYTES;
use super::receive::{BodyLimits, ReceivedBody, next_data};
use crate::convert::FieldError;
use crate::errors::ServiceError;

/// Reads a body and decodes it. Its bytes are counted in `share` before they are stored.
pub(super) async fn decode(
    decoder: BodyDecoder,
    body: Body,
    rules: BodyLimits,
    (share, seen): (&BudgetShare, &AtomicU64),
) -> Result<ReceivedBody, ServiceError> {
    // A caller without the right is rejected for the project in the request. A long body is not received for it, and the
    // message then has the project of the path, if there is one.
    if let Some(enough) = rules.stop_after {
        let body = receive_all(
            body,
            BodyLimits {
                limit: enough,
                ..rules
            },
            (share, seen),
        )
        .await;
        let message = body.ok().and_then(|body| decoder.decode(body).ok());
        let message = message.or_else(|| decoder.decode(Bytes::new()).ok());
        let empty = || Bytes::from_static(&[0; PREFIX_BYTES]);
        return Ok(ReceivedBody::of(message.unwrap_or_else(empty)));
    }
    let body = receive_all(body, rules, (share, seen)).await?;
    // The body and the message exist at the same time.
    share.grow(body.len())?;
    let size = body.len();
    let outcome = on_fitting_thread(size, move || decoder.decode(body)).await;
    let panicked = || ServiceError::fault("read a request: its code panicked");
    let outcome = outcome.ok_or_else(panicked)?;
    let message = outcome.map_err(ServiceError::from)?;
    let actual = message.len().saturating_sub(PREFIX_BYTES);
    if actual > rules.limit {
        return Err(ServiceError::request_too_large(actual, rules.limit));
    }
    share.grow(message.len().saturating_sub(size))?;
    Ok(ReceivedBody::of(message))
}

async fn receive_all(
    mut body: Body,
    rules: BodyLimits,
    (share, seen): (&BudgetShare, &AtomicU64),
) -> Result<Bytes, ServiceError> {
    // A body without an announced size has the lower bound 0, and its frames are checked below.
    let announced = body.size_hint().lower();
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    // Checked for the announced size, so that a body that cannot fit is rejected before it is sent.
    if announced > rules.limit {
        return Err(ServiceError::request_too_large(announced, rules.limit));
    }
    share.check_room(announced)?;
    let mut bytes = BytesMut::new();
    while let Some(data) = next_data(&mut body, rules, (share, seen)).await? {
        let actual = bytes.len() + data.len();
        if actual > rules.limit {
            return Err(ServiceError::request_too_large(actual, rules.limit));
        }
        if bytes.is_empty() {
            // The only frame of a small body is used without a copy.
            bytes = data.into();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

impl From<BodyProblem> for ServiceError {
    fn from(problem: BodyProblem) -> Self {
        match problem {
            BodyProblem::Field { path, problem } if path.is_empty() => Self::invalid_body(&problem),
            BodyProblem::Field { path, problem } => FieldError::invalid(path, problem).into(),
            BodyProblem::Malformed => Self::malformed_request(),
            BodyProblem::MessageCount => Self::other_message_count(),
            BodyProblem::TooLarge(limit) => Self::request_too_complex(limit),
        }
    }
}
