//! Refuses a message that is too large as soon as it says so, in its first five bytes.
//!
//! tonic has such a limit too, but answers `OUT_OF_RANGE` without details. An error of the body, on
//! the other hand, reaches the caller as the status that it is.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::errors::ServiceError;

/// A flag and the length of the message that follows.
const PREFIX_BYTES: usize = 5;

/// A request's body whose messages have a largest size.
pub(super) struct Limited {
    inner: Body,
    limit: usize,
    /// Of the next prefix, as much as is there.
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    /// Bytes of the current message that are still to come.
    remaining: usize,
    /// Bytes so far.
    seen: Arc<AtomicU64>,
}

impl Limited {
    pub(super) fn new(inner: Body, limit: usize, seen: Arc<AtomicU64>) -> Self {
        Self {
            inner,
            limit,
            prefix: [0; PREFIX_BYTES],
            filled: 0,
            remaining: 0,
            seen,
        }
    }

    /// Looks at the prefixes in the next bytes of the body.
    fn check(&mut self, mut data: &[u8]) -> Result<(), ServiceError> {
        while !data.is_empty() {
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
                    return Err(ServiceError::RequestTooLarge { actual, limit });
                }
                self.filled = 0;
                self.remaining = actual;
            }
        }
        Ok(())
    }
}

impl http_body::Body for Limited {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let checked = frame.map(|frame| {
            let frame = frame?;
            if let Some(data) = frame.data_ref() {
                self.seen.fetch_add(data.len() as u64, Relaxed);
                self.check(data)?;
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
    fn every_message_is_measured_however_the_bytes_are_cut() {
        let fitting = [message(10), message(0), message(9)].concat();
        let too_large = [fitting.clone(), message(11)].concat();
        for size in 1..too_large.len() {
            let check = |bytes: &[u8]| {
                let mut body = Limited::new(Body::empty(), 10, Arc::default());
                bytes.chunks(size).try_for_each(|chunk| body.check(chunk))
            };
            assert!(check(&fitting).is_ok(), "{size}");
            let error = check(&too_large).unwrap_err();
            assert!(
                matches!(
                    error,
                    ServiceError::RequestTooLarge {
                        actual: 11,
                        limit: 10
                    }
                ),
                "{size}: {error:?}"
            );
        }
    }
}
