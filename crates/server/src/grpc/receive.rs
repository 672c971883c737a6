//! Receives a complete request before any work is done for it. A slow upload holds nothing but its own bytes, and the
//! contents can be checked before they are decoded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use palimpsest_edge::budget::BudgetShare;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;

use super::limited_body::PREFIX_BYTES;
use crate::errors::ServiceError;

#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits {
    /// The maximum size of the message, in bytes.
    pub(super) limit: usize,
    /// The maximum time without new data.
    pub(super) stall: Duration,
    /// The deadline of the complete body.
    pub(super) deadline: Instant,
    /// The number of bytes after which reading stops. Used for calls that are rejected anyway.
    pub(super) stop_after: Option<usize>,
}

/// The body of a call with a single request: the gRPC prefix and the message.
#[derive(Debug)]
pub(super) struct ReceivedBody(Bytes);

impl ReceivedBody {
    /// Takes a prefix and its message.
    pub(super) fn of(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Returns the message, or `None` for a compressed or incomplete one. The decoder rejects those.
    pub(super) fn message(&self) -> Option<&[u8]> {
        let (prefix, message) = self.0.split_at_checked(PREFIX_BYTES)?;
        (prefix[0] == 0).then_some(message)
    }

    pub(super) fn into_body(self) -> Body {
        Body::new(http_body_util::Full::new(self.0))
    }
}

/// Reads a body. Its bytes are counted in `share` before they are stored.
pub(super) async fn receive(
    mut body: Body,
    rules: BodyLimits,
    share: &BudgetShare,
    seen: &AtomicU64,
) -> Result<ReceivedBody, ServiceError> {
    let mut bytes = BytesMut::new();
    let mut announced = None;
    // The size is announced in the prefix. A too large request is rejected there, before the rest arrives.
    loop {
        let Some(data) = next_data(&mut body, rules, (share, seen)).await? else {
            break;
        };
        bytes.extend_from_slice(&data);
        if announced.is_none()
            && let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>()
        {
            let [_, length @ ..] = *prefix;
            let actual = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            if actual > rules.limit {
                let limit = rules.limit;
                return Err(ServiceError::request_too_large(actual, limit));
            }
            // Checked for the announced size, so that an upload that cannot fit is rejected before it is sent.
            // The bytes that have arrived are already in the share.
            share.check_room(actual.saturating_sub(bytes.len()))?;
            announced = Some(actual);
        }
        // Each call of the contract has one request message, so further bytes are malformed.
        if announced.is_some_and(|announced| bytes.len() > announced + PREFIX_BYTES) {
            return Err(ServiceError::malformed_request());
        }
        if rules.stop_after.is_some_and(|enough| bytes.len() >= enough) {
            break;
        }
    }
    Ok(ReceivedBody(bytes.freeze()))
}

/// Returns the next data of a body, which is counted in `share`. `None` at the end.
pub(super) async fn next_data(
    body: &mut Body,
    rules: BodyLimits,
    (share, seen): (&BudgetShare, &AtomicU64),
) -> Result<Option<Bytes>, ServiceError> {
    loop {
        // The stall limit restarts with each frame. The absolute deadline stops uploads that send single bytes.
        let until = rules.deadline.min(Instant::now() + rules.stall);
        let frame = timeout_at(until, body.frame()).await;
        let Some(frame) = frame.map_err(|_| ServiceError::deadline_exceeded())? else {
            return Ok(None);
        };
        // The stream was reset or the connection failed, so nobody receives this error.
        let frame = frame.map_err(|_| ServiceError::malformed_request())?;
        if let Ok(data) = frame.into_data() {
            seen.fetch_add(data.len() as u64, Relaxed);
            share.grow(data.len())?;
            return Ok(Some(data));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::AtomicU64;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use palimpsest_proto::context::v1::ErrorReason;
    use tokio::time::{Sleep, sleep};

    use super::*;

    /// A body that sends one byte per interval.
    struct Drip(Duration, Pin<Box<Sleep>>);

    impl http_body::Body for Drip {
        type Data = Bytes;
        type Error = tonic::Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
            std::task::ready!(self.1.as_mut().poll(cx));
            let next = Instant::now() + self.0;
            self.1.as_mut().reset(next);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0])))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_request_body_ends_at_the_deadline_of_the_server() {
        let began = Instant::now();
        let rules = |stall: u64| BodyLimits {
            limit: 1_000,
            stall: Duration::from_secs(stall),
            deadline: Instant::now() + Duration::from_mins(1),
            stop_after: None,
        };
        let drip = |every: u64| {
            let every = Duration::from_secs(every);
            Body::new(Drip(every, Box::pin(sleep(every))))
        };
        let seen = AtomicU64::new(0);
        let share = BudgetShare::default();
        let ended = receive(drip(20), rules(30), &share, &seen).await;
        assert_eq!(ended.unwrap_err().reason(), ErrorReason::DeadlineExceeded);
        // A byte every 20 s is within the stall limit of 30 s, so the deadline ends the body.
        assert_eq!(began.elapsed(), Duration::from_mins(1));
        let ended = receive(drip(40), rules(30), &share, &seen).await;
        assert_eq!(ended.unwrap_err().reason(), ErrorReason::DeadlineExceeded);
        // A byte every 40 s is not, so this body ended after 30 s.
        assert_eq!(began.elapsed(), Duration::from_secs(90));
    }
}
