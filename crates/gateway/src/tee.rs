//! Forwards the body of a response and reads it beside.
//!
//! The body has no queue: upstream is polled only when the agent can take a frame. The last event of a response waits
//! until the response is recorded, because an agent sends its next request after that event. All earlier bytes leave at
//! once.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::exchange::{BodyEnd, Exchange};

/// The maximum number of bytes that are read after the last event of a response whose agent has disconnected.
const MAX_DRAINED_BYTES: usize = 64 * 1024;
/// The maximum time of that reading.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A frame of a response for the agent.
pub(crate) type Polled = Option<Result<Frame<Bytes>, hyper::Error>>;

/// The body of an upstream's response, which can be read while it is forwarded.
#[derive(Debug)]
pub(crate) struct TeeBody {
    /// The data that was received before the body is forwarded.
    received: VecDeque<Bytes>,
    /// The body of upstream. `None` after its end.
    inner: Option<Incoming>,
    /// The reading. `None` for a response that is not read, or not any more.
    exchange: Option<Exchange>,
    hold: Option<Hold>,
    /// The tasks of the gateway. `None` before the end of the reading.
    tasks: Option<TaskTracker>,
}

/// The end of a response, which waits for the record of the response.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The record. `None` while the runtime shuts down.
    recording: Option<JoinHandle<()>>,
    timeout: Pin<Box<Sleep>>,
    held: Polled,
}

impl TeeBody {
    pub(crate) fn new(inner: Incoming, exchange: Option<Exchange>) -> Self {
        Self {
            received: VecDeque::new(),
            inner: Some(inner),
            exchange,
            hold: None,
            tasks: None,
        }
    }

    /// Creates a body that is not read, and whose beginning was received already.
    pub(crate) fn resumed(received: VecDeque<Bytes>, inner: Option<Incoming>) -> Self {
        Self {
            received,
            inner,
            exchange: None,
            hold: None,
            tasks: None,
        }
    }

    /// Creates a body whose beginning was received before the connection to upstream broke.
    pub(crate) fn broken(received: VecDeque<Bytes>, error: hyper::Error) -> Self {
        let mut body = Self::resumed(received, None);
        // A hold without a record returns the error once, behind the received data.
        body.hold = Some(Hold::of_task(None, Duration::ZERO, Some(Err(error))));
        body
    }

    /// Returns the next frame for the agent.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        if let Some(data) = self.received.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(hold) = &mut self.hold {
            ready!(hold.poll_recorded(cx));
            return Poll::Ready(self.hold.take().and_then(|hold| hold.held));
        }
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let polled = ready!(Pin::new(&mut *inner).poll_frame(cx));
        // True with the last byte of a body that has a `content-length`, before hyper returns its end.
        let is_end = inner.is_end_stream();
        // A broken body that is polled again ends like a complete one, which would hide the cut.
        if !matches!(polled, Some(Ok(_))) {
            self.inner = None;
        }
        let Some(mut exchange) = self.exchange.take() else {
            return Poll::Ready(polled);
        };
        let (first, held, end) = match polled {
            Some(Ok(frame)) => {
                let mut data = match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => {
                        self.exchange = Some(exchange);
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                };
                let last_event = match exchange.read(&data) {
                    // A client can use a body of one JSON value only when its last byte has arrived.
                    Ok(None) if is_end => Some(0),
                    Ok(last_event) => last_event,
                    // `exchange` is gone from here on, because a part of a response cannot be recorded. The rest is
                    // forwarded unread.
                    Err(reason) => {
                        exchange.give_up(reason);
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                };
                let Some(begins_at) = last_event else {
                    self.exchange = Some(exchange);
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                };
                // The position is inside of this frame, so the split cannot panic.
                let first = data.split_to(begins_at);
                (first, Some(Ok(Frame::data(data))), BodyEnd::Whole)
            }
            Some(Err(error)) => (Bytes::new(), Some(Err(error)), BodyEnd::Broken),
            None => (Bytes::new(), None, BodyEnd::Whole),
        };
        self.tasks = Some(exchange.tasks().clone());
        self.hold = Some(Hold::new(exchange, end, held));
        // Without a frame to return, the hold must be polled here, or no waker is registered.
        if first.is_empty() {
            return self.poll_next(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(first))))
    }
}

impl Hold {
    /// Ends the reading of a response, and records it. `held` is what the agent gets afterwards.
    pub(crate) fn new(exchange: Exchange, end: BodyEnd, held: Polled) -> Self {
        let limit = exchange.hold_timeout();
        Self::of_task(exchange.end(end), limit, held)
    }

    /// Waits for a record that has begun.
    pub(crate) fn of_task(
        recording: Option<JoinHandle<()>>,
        limit: Duration,
        held: Polled,
    ) -> Self {
        Self {
            recording,
            timeout: Box::pin(sleep(limit)),
            held,
        }
    }

    /// Returns what was held.
    pub(crate) fn take(&mut self) -> Polled {
        self.held.take()
    }

    /// Returns ready when the response is recorded, or after the maximum time.
    pub(crate) fn poll_recorded(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The record is polled before the limit, so that a finished record causes no warning.
        if let Some(recording) = &mut self.recording
            && Pin::new(recording).poll(cx).is_pending()
        {
            ready!(self.timeout.as_mut().poll(cx));
            tracing::warn!(
                "sent the end of a response that was not recorded within gateway.hold_timeout_ms"
            );
        }
        Poll::Ready(())
    }
}

impl Drop for TeeBody {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            // The agent is gone. The record continues without a wait.
            drop(exchange.end(BodyEnd::Cancelled));
        } else if let (Some(tasks), Some(inner)) = (self.tasks.take(), self.inner.take())
            && let Ok(runtime) = Handle::try_current()
        {
            // Codex disconnects after the last event. The connection to upstream can be used again if its body ends.
            tasks.spawn_on(timeout(DRAIN_TIMEOUT, drained(inner)), &runtime);
        }
    }
}

/// Reads the rest of a body, up to a maximum.
async fn drained(mut body: Incoming) {
    let mut left = MAX_DRAINED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(size) else {
            return;
        };
        left = rest;
    }
}
