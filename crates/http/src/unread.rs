//! The rest of a request body that its handler did not read.
//!
//! A connection of HTTP/1.1 that is closed with unread bytes is reset, and the client can lose the response. So a short
//! rest is read before the end of the response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The maximum rest that is read, in bytes. A larger one would cost more than a new connection.
const MAX_REST_BYTES: usize = 256 * 1024;
/// The maximum time for the rest.
const MAX_REST_TIME: Duration = Duration::from_secs(1);

/// A request body that is given back if it is dropped before its end.
#[derive(Debug)]
pub struct TrackedBody<B> {
    inner: Option<B>,
    back: Option<oneshot::Sender<B>>,
}

/// The rest of a request body.
#[derive(Debug)]
pub struct UnreadRest<B>(oneshot::Receiver<B>);

/// Tracks a request body. The second value gives its rest.
pub fn track<B>(body: B) -> (TrackedBody<B>, UnreadRest<B>) {
    let (back, rest) = oneshot::channel();
    let tracked = TrackedBody {
        inner: Some(body),
        back: Some(back),
    };
    (tracked, UnreadRest(rest))
}

impl<B: Body<Data = Bytes> + Unpin> UnreadRest<B> {
    /// Reads the rest, if the body was dropped before its end.
    pub async fn read(mut self) {
        let Ok(mut body) = self.0.try_recv() else {
            return;
        };
        let reading = async {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > MAX_REST_BYTES {
                    break;
                }
            }
        };
        // Without the rest, the client may lose the response, but no other client is affected.
        let _ = timeout(MAX_REST_TIME, reading).await;
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(inner).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.inner = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.inner.as_ref().map(Body::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        if let (Some(inner), Some(back)) = (self.inner.take(), self.back.take()) {
            // Nobody waits for the rest after the response.
            let _ = back.send(inner);
        }
    }
}
