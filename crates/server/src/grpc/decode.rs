//! Receives a request of another protocol than gRPC, and turns its body into the message.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use palimpsest_edge::budget::BudgetShare;
use palimpsest_http::{BodyDecoder, BodyProblem, MAX_INLINE_BYTES};
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;

use super::limited_body::PREFIX_BYTES;
use super::receive::{BodyLimits, ReceivedBody};
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
    let outcome = if size <= MAX_INLINE_BYTES {
        decoder.decode(body)
    } else {
        let decoding = tokio::task::spawn_blocking(move || decoder.decode(body));
        decoding
            .await
            .map_err(|_| ServiceError::fault("read a request: its code panicked"))?
    };
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
    let announced = body.size_hint().lower();
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    // Checked for the announced size, so that a body that cannot fit is rejected before it is sent.
    if announced > rules.limit {
        return Err(ServiceError::request_too_large(announced, rules.limit));
    }
    share.check_room(announced)?;
    let mut bytes = BytesMut::new();
    loop {
        // The stall limit restarts with each frame. The absolute deadline stops uploads that send single bytes.
        let until = rules.deadline.min(Instant::now() + rules.stall);
        let frame = timeout_at(until, body.frame()).await;
        let Some(frame) = frame.map_err(|_| ServiceError::deadline_exceeded())? else {
            return Ok(bytes.freeze());
        };
        // The connection failed, so nobody receives this error.
        let frame = frame.map_err(|_| ServiceError::malformed_request())?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen.fetch_add(data.len() as u64, Relaxed);
        share.grow(data.len())?;
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
