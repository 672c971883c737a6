//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

/// The body of a response of any protocol. `B` is the body of a gRPC response.
pub struct ApiBody<B> {
    content: Content<B>,
    /// A value that lives as long as the body.
    kept: Option<Box<dyn Send>>,
}

enum Content<B> {
    /// A gRPC response.
    Grpc(B),
    /// A whole body. The gRPC response stays alive until the last byte is sent, with its share of the limits.
    Whole {
        data: Option<Bytes>,
        _response: Option<B>,
    },
    /// The parts of a stream.
    Parts(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// The body of another layer.
    Boxed(tonic::body::Body),
}

impl<B> ApiBody<B> {
    fn of(content: Content<B>) -> Self {
        Self {
            content,
            kept: None,
        }
    }

    pub(crate) fn grpc(body: B) -> Self {
        Self::of(Content::Grpc(body))
    }

    pub(crate) fn whole(data: Bytes, response: Option<B>) -> Self {
        Self::of(Content::Whole {
            // An empty body has ended at once, without an empty frame.
            data: Some(data).filter(|data| !data.is_empty()),
            _response: response,
        })
    }

    pub(crate) fn parts(parts: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::of(Content::Parts(Box::pin(parts)))
    }

    pub(crate) fn boxed(body: tonic::body::Body) -> Self {
        Self::of(Content::Boxed(body))
    }

    /// Keeps a value until the body is sent or dropped.
    #[must_use]
    pub fn keeping(mut self, value: impl Send + 'static) -> Self {
        self.kept = Some(Box::new(value));
        self
    }

    /// Returns the body of a gRPC response. `None` for other protocols.
    pub fn as_grpc_mut(&mut self) -> Option<&mut B> {
        match &mut self.content {
            Content::Grpc(body) => Some(body),
            _ => None,
        }
    }
}

impl<B> Body for ApiBody<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut self.content {
            Content::Grpc(body) => Pin::new(body).poll_frame(cx),
            Content::Whole { data, .. } => {
                Poll::Ready(data.take().map(|data| Ok(Frame::data(data))))
            }
            Content::Parts(parts) => parts
                .as_mut()
                .poll_next(cx)
                .map(|part| part.map(|part| Ok(Frame::data(part)))),
            Content::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Grpc(body) => body.is_end_stream(),
            Content::Whole { data, .. } => data.is_none(),
            Content::Parts(_) => false,
            Content::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Grpc(body) => body.size_hint(),
            Content::Whole { data, .. } => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Content::Parts(_) => SizeHint::default(),
            Content::Boxed(body) => body.size_hint(),
        }
    }
}

impl<B> std::fmt::Debug for ApiBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.content {
            Content::Grpc(_) => "ApiBody::Grpc",
            Content::Whole { .. } => "ApiBody::Whole",
            Content::Parts(_) => "ApiBody::Parts",
            Content::Boxed(_) => "ApiBody::Boxed",
        })
    }
}
