//! The rest of a request body that its handler did not read.
//!
//! A connection of HTTP/1.1 with unread bytes can take no other request. So a short rest is read before the response.
//! After a longer one, the response announces the close, because a client would otherwise send its next request on the
//! closing connection.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
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

/// Answers a request with `service`, which can leave a part of the body unread.
pub async fn answer<B, R, E, F>(
    request: Request<B>,
    service: impl FnOnce(Request<TrackedBody<B>>) -> F,
) -> Result<Response<R>, E>
where
    B: Body<Data = Bytes> + Unpin,
    F: Future<Output = Result<Response<R>, E>>,
{
    let (back, rest) = oneshot::channel();
    let request = request.map(|body| TrackedBody {
        inner: Some(body),
        back: Some(back),
    });
    let version = request.version();
    let mut response = service(request).await?;
    // A stream of HTTP/2 ends alone, without its connection.
    if version < Version::HTTP_2 && !is_settled(rest).await {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    Ok(response)
}

/// Reads the rest of a body that was dropped before its end. Returns false if bytes are left.
async fn is_settled<B: Body<Data = Bytes> + Unpin>(mut rest: oneshot::Receiver<B>) -> bool {
    // No body has come back: it was read to its end, or something still reads it.
    let Ok(mut body) = rest.try_recv() else {
        return true;
    };
    let reading = async {
        let mut read = 0;
        // An error ends the loop too, because a broken connection takes no other request.
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > MAX_REST_BYTES {
                return false;
            }
        }
        true
    };
    timeout(MAX_REST_TIME, reading).await.unwrap_or(false)
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
        // A finished body has no rest, so the drop must not give it back.
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
