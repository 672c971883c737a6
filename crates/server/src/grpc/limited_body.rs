//! The size limit of messages in bidirectional streams and in methods outside of the contract. A too large message is
//! rejected as soon as its five-byte prefix arrives. Other calls are received by `receive`.
//!
//! tonic has such a limit too, but responds with `OUT_OF_RANGE` and without details. An error of the body reaches the
//! caller unchanged.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::{Frame, SizeHint};
use palimpsest_edge::budget::BudgetShare;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use crate::errors::ServiceError;

/// The size of the gRPC prefix: a flag and the length of the message.
pub(super) const PREFIX_BYTES: usize = 5;

/// A request body with a maximum message size.
pub(super) struct LimitedBody {
    inner: Body,
    limit: usize,
    share: BudgetShare,
    stall: Duration,
    /// The end of the current time without data.
    stalls: Option<Pin<Box<Sleep>>>,
    /// The received part of the next prefix.
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    /// The remaining bytes of the current message.
    remaining: usize,
    /// The bytes received so far.
    seen: Arc<AtomicU64>,
}

impl LimitedBody {
    pub(super) fn new(
        inner: Body,
        limit: usize,
        share: BudgetShare,
        stall: Duration,
        seen: Arc<AtomicU64>,
    ) -> Self {
        Self {
            inner,
            limit,
            share,
            stall,
            stalls: None,
            prefix: [0; PREFIX_BYTES],
            filled: 0,
            remaining: 0,
            seen,
        }
    }

    /// Checks the prefixes in the next bytes of the body.
    fn check(&mut self, mut data: &[u8]) -> Result<(), ServiceError> {
        while !data.is_empty() {
            // Only prefixes are examined. A prefix can be split over several frames, so it is collected in `prefix`.
            let skipped = self.remaining.min(data.len());
            data = &data[skipped..];
            self.remaining -= skipped;
            if self.remaining > 0 {
                break;
            }
            let taken = (PREFIX_BYTES - self.filled).min(data.len());
            self.prefix[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                let actual = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if actual > self.limit {
                    let limit = self.limit;
                    return Err(ServiceError::request_too_large(actual, limit));
                }
                // Checked before the message arrives. Its bytes are counted when they arrive.
                self.share.check_room(actual)?;
                self.filled = 0;
                self.remaining = actual;
            }
        }
        Ok(())
    }
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let frame = match polled {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let stall = self.stall;
                let stalls = self.stalls.get_or_insert_with(|| Box::pin(sleep(stall)));
                // The timer is polled in the same call, so that it wakes the task if no data arrives.
                ready!(stalls.poll_unpin(cx));
                return Poll::Ready(Some(Err(ServiceError::deadline_exceeded().into())));
            }
        };
        // Data arrived, so the stall timer starts again at the next pending read.
        self.stalls = None;
        let checked = frame.map(|frame| {
            let frame = frame?;
            if let Some(data) = frame.data_ref() {
                self.seen.fetch_add(data.len() as u64, Relaxed);
                self.check(data)?;
                self.share.grow(data.len()).map_err(ServiceError::from)?;
            }
            Ok(frame)
        });
        Poll::Ready(checked)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.resize(PREFIX_BYTES + len as usize, 7);
        bytes
    }

    #[test]
    fn messages_are_measured_for_any_split_of_the_bytes() {
        let fitting = [message(10), message(0), message(9)].concat();
        let too_large = [fitting.clone(), message(11)].concat();
        // Every chunk size splits the prefixes at other bytes, including each single byte.
        for size in 1..too_large.len() {
            let check = |bytes: &[u8]| {
                let mut body = LimitedBody::new(
                    Body::empty(),
                    10,
                    BudgetShare::default(),
                    Duration::MAX,
                    Arc::default(),
                );
                bytes.chunks(size).try_for_each(|chunk| body.check(chunk))
            };
            assert!(check(&fitting).is_ok(), "{size}");
            let error = check(&too_large).unwrap_err();
            let expected = Status::from(ServiceError::request_too_large(11, 10));
            assert_eq!(Status::from(error).message(), expected.message(), "{size}");
        }
    }
}
