//! The body of a request on its way to upstream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

/// The body of an agent's request. It fails if the agent sends nothing for too long.
///
/// hyper reads a frame only when upstream can take it, so the speed of upstream is the speed of the agent.
#[derive(Debug)]
pub(crate) struct RequestBody {
    inner: Incoming,
    stall: Duration,
    /// The end of the current wait for the agent.
    stalls: Option<Pin<Box<Sleep>>>,
    has_stalled: Arc<AtomicBool>,
}

impl RequestBody {
    /// Creates a body that fails after `stall` without data, and then sets `has_stalled`.
    pub(crate) fn new(inner: Incoming, stall: Duration, has_stalled: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            stall,
            stalls: None,
            has_stalled,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.stalls = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let stall = this.stall;
        let stalls = this.stalls.get_or_insert_with(|| Box::pin(sleep(stall)));
        std::task::ready!(stalls.as_mut().poll(cx));
        this.has_stalled.store(true, SeqCst);
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The error of a body.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
