//! The body of a response on its way to the agent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::connection::ConnectionEnd;
use super::edits::EditedBody;
use super::in_flight::InFlight;
use super::read_back::ReadBackBody;
use super::tee::{Polled, TeeBody};
use super::upstream::is_reset;

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// An answer of the gateway itself.
    Own(Option<Bytes>),
    /// The body of the upstream's response.
    Forwarded(Box<ForwardedBody>),
}

impl ResponseBody {
    /// Returns the size of an answer of the gateway itself, in bytes.
    pub(crate) fn own_size(&self) -> usize {
        match self {
            Self::Own(text) => text.as_ref().map_or(0, Bytes::len),
            Self::Forwarded(_) => 0,
        }
    }
}

/// A body that upstream sends.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    /// The bytes of upstream.
    Tee(Box<TeeBody>),
    /// A stream whose model may call offered tools.
    ReadBack(Box<ReadBackBody>),
    /// A response with a report about edits of the context.
    Edited(Box<EditedBody>),
}

impl UpstreamBody {
    /// Returns the next frame for the agent.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        match self {
            Self::Tee(body) => body.poll_next(cx),
            Self::ReadBack(body) => body.poll_next(cx),
            Self::Edited(body) => body.poll_next(cx),
        }
    }
}

/// The body of the upstream's response.
///
/// hyper reads a frame only when the agent can take it, so a slow agent slows upstream. If the agent disconnects, hyper
/// drops this value, which ends the request to upstream.
#[derive(Debug)]
pub(crate) struct ForwardedBody {
    inner: UpstreamBody,
    /// The end of the agent's connection. `None` for HTTP/2, where an error ends a stream and not the connection.
    end: Option<Arc<ConnectionEnd>>,
    /// The error of upstream, and the number of flushes before it.
    broken: Option<(hyper::Error, u64)>,
    in_flight: InFlight,
}

impl ForwardedBody {
    pub(crate) fn new(
        inner: UpstreamBody,
        end: Option<Arc<ConnectionEnd>>,
        in_flight: InFlight,
    ) -> Self {
        Self {
            inner,
            end,
            broken: None,
            in_flight,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // hyper polls the body outside of the request, so the span of its log lines is set for each poll.
        let call = self.in_flight.call.clone();
        let _entered = call.span().enter();
        let polled = self.poll_inner(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            call.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn poll_inner(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(end) = &self.end else {
            return self.inner.poll_next(cx);
        };
        if self.broken.is_none() {
            match ready!(self.inner.poll_next(cx)) {
                // A flush after this count has written all frames before the error.
                Some(Err(error)) => self.broken = Some((error, end.flushes())),
                frame => return Poll::Ready(frame),
            }
        }
        if let Some((_, flushes)) = &self.broken {
            ready!(end.poll_flushed(*flushes, cx.waker()));
        }
        let error = self.broken.take().map(|(error, _)| error);
        // Set before the error is returned, because hyper drops the socket after it.
        if error.as_ref().is_some_and(|error| is_reset(error)) {
            end.reset();
        }
        Poll::Ready(error.map(Err))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Forwarded(body) => body.poll(cx),
        }
    }

    /// Returns false for every forwarded body.
    ///
    /// hyper would replace the length of an empty body, and would move it to the end of the headers.
    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Own(None))
    }

    /// Returns no size of a forwarded body. Its headers contain the length, if upstream sent one.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Forwarded(_) => SizeHint::default(),
        }
    }
}
