//! The body of a request on its way to upstream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use palimpsest_edge::net::TrackedBody;
use tokio::time::{Sleep, sleep};

/// The body of an agent's request, as it is received.
pub(crate) type AgentBody = TrackedBody<Incoming>;

/// The body of an agent's request. It fails if the agent sends nothing for too long.
///
/// hyper reads a frame only when upstream can take it, so the speed of upstream is the speed of the agent.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// The data that was received before it is sent.
    received: VecDeque<Bytes>,
    /// The rest of the body. `None` after its end.
    inner: Option<AgentBody>,
    /// The error that ended the body.
    failed: Option<BodyError>,
    stall: Duration,
    /// The end of the current wait for the agent.
    stalls: Option<Pin<Box<Sleep>>>,
    has_stalled: Arc<AtomicBool>,
    /// The bytes that the agent has sent.
    size: Arc<AtomicU64>,
}

impl RequestBody {
    /// Creates a body that fails after `stall` without data, and then sets `has_stalled`. It counts its bytes in `size`.
    pub(crate) fn new(
        inner: AgentBody,
        stall: Duration,
        has_stalled: Arc<AtomicBool>,
        size: Arc<AtomicU64>,
    ) -> Self {
        Self {
            size,
            received: VecDeque::new(),
            inner: Some(inner),
            failed: None,
            stall,
            stalls: None,
            has_stalled,
        }
    }

    /// Creates a body from its data.
    pub(crate) fn whole(data: Vec<Bytes>) -> Self {
        Self {
            received: data.into(),
            inner: None,
            failed: None,
            stall: Duration::ZERO,
            stalls: None,
            has_stalled: Arc::default(),
            size: Arc::default(),
        }
    }

    /// Receives the body until `accept` rejects its size so far. Returns the data of a complete body. Without it, the body
    /// can still be sent.
    pub(crate) async fn receive<E>(
        &mut self,
        mut accept: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<Vec<Bytes>>, E> {
        // The announced size is checked first, so that a body above the limit is never collected.
        let announced = self.size_hint().exact();
        // A body without an announced size is checked frame by frame below.
        accept(announced.and_then(|size| size.try_into().ok()).unwrap_or(0))?;
        let mut size = 0;
        while self.inner.is_some() {
            match poll_fn(|cx| self.poll_agent(cx)).await {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    size += data.len();
                    // Kept before it is accepted, because a rejected body can still be sent.
                    self.received.push_back(data);
                    accept(size)?;
                }
                Some(Err(error)) => {
                    // Kept for upstream, which must see the same incomplete body as without the gateway.
                    self.failed = Some(error);
                    self.inner = None;
                    return Ok(None);
                }
                None => self.inner = None,
            }
        }
        Ok(Some(self.received.iter().cloned().collect()))
    }

    /// Returns the next frame of the agent.
    fn poll_agent(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) {
            // The limit applies to the time without progress, and not to the whole body.
            self.stalls = None;
            if let Some(Ok(frame)) = &frame {
                let size = frame.data_ref().map_or(0, Bytes::len);
                self.size.fetch_add(size as u64, Relaxed);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let stall = self.stall;
        // The timer starts when data of the agent is missing. Time in which upstream takes no data does not count.
        let stalls = self.stalls.get_or_insert_with(|| Box::pin(sleep(stall)));
        ready!(stalls.as_mut().poll(cx));
        self.has_stalled.store(true, SeqCst);
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(data) = self.received.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        self.poll_agent(cx)
    }

    fn is_end_stream(&self) -> bool {
        let is_sent = self.received.is_empty() && self.failed.is_none();
        is_sent && self.inner.as_ref().is_none_or(AgentBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let received: u64 = self.received.iter().map(|data| data.len() as u64).sum();
        let rest = match &self.inner {
            Some(inner) => inner.size_hint(),
            // The size of the received part must not be announced as that of the whole body.
            None if self.failed.is_some() => SizeHint::default(),
            None => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::default();
        hint.set_lower(received + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(received + upper);
        }
        hint
    }
}

/// The error of a body.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
