//! The stream of a response whose model may call offered tools.
//!
//! The body has no queue, as the body of any other response: upstream is polled only when the agent can take a frame.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;

use super::ask::ReadBack;
use super::events::SplicedEvents;
use super::splice::failure;
use crate::exchange::{BodyEnd, Exchange, Unrecorded};
use crate::reading::Unread;
use crate::tee::{Hold, Polled, TeeBody};

/// The maximum size of an error that becomes an event, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// The body of a streamed response.
pub(crate) struct ReadBackBody {
    state: State,
    /// Frames for the agent.
    out: VecDeque<Frame<Bytes>>,
    events: SplicedEvents,
    /// `None` while the next request is sent.
    read_back: Option<Box<ReadBack>>,
}

enum State {
    Streaming(Incoming, Box<Exchange>),
    /// The calls run, and the next request is sent.
    Asking(Pin<Box<dyn Future<Output = Asked> + Send>>),
    /// The last event waits for the record of the response. The rest of the body follows.
    Holding(Hold, Option<Incoming>),
    /// The rest of the response is forwarded and not read.
    Forwarding(Box<TeeBody>),
    Ended,
}

/// The outcome of a further request.
struct Asked {
    read_back: Box<ReadBack>,
    outcome: Result<(Incoming, Exchange), Bytes>,
}

impl fmt::Debug for ReadBackBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBackBody").finish_non_exhaustive()
    }
}

impl ReadBackBody {
    pub(crate) fn new(inner: Incoming, exchange: Exchange, read_back: ReadBack) -> Self {
        let names = std::sync::Arc::clone(&read_back.offered.names);
        Self {
            events: SplicedEvents::new(read_back.api, names),
            state: State::Streaming(inner, Box::new(exchange)),
            out: VecDeque::new(),
            read_back: Some(Box::new(read_back)),
        }
    }

    /// Returns the next frame for the agent.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        loop {
            if let Some(frame) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            match &mut self.state {
                State::Streaming(inner, _) => {
                    let polled = ready!(Pin::new(inner).poll_frame(cx));
                    if let Some(frame) = self.received(polled) {
                        return Poll::Ready(frame);
                    }
                }
                State::Asking(asking) => {
                    let asked = ready!(asking.as_mut().poll(cx));
                    self.answered(asked);
                }
                State::Holding(hold, inner) => {
                    ready!(hold.poll_recorded(cx));
                    let (last, rest) = (hold.take(), inner.take());
                    self.state = match rest {
                        Some(rest) => State::Forwarding(Box::new(TeeBody::new(rest, None))),
                        None => State::Ended,
                    };
                    if last.is_some() {
                        return Poll::Ready(last);
                    }
                }
                State::Forwarding(body) => return body.poll_next(cx),
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Takes a frame of upstream. Returns a frame that the agent gets before any other one.
    fn received(&mut self, polled: Polled) -> Option<Polled> {
        let State::Streaming(inner, mut exchange) =
            std::mem::replace(&mut self.state, State::Ended)
        else {
            return None;
        };
        match polled {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => match self.read(&data, &mut exchange) {
                    Ok(None) => self.state = State::Streaming(inner, exchange),
                    Ok(Some(last)) => self.ended(last, Some(inner), *exchange),
                    Err(reason) => self.give_up(reason, *exchange, inner),
                },
                Err(trailers) => {
                    self.state = State::Streaming(inner, exchange);
                    return Some(Some(Ok(trailers)));
                }
            },
            Some(Err(error)) => {
                // The agent gets the part of an event that has arrived, if it can be no part of a hidden call.
                let rest = self.events.take_rest();
                if !rest.is_empty() && !self.events.is_changed() {
                    self.out.push_back(Frame::data(rest.into()));
                }
                let hold = Hold::new(*exchange, BodyEnd::Broken, Some(Err(error)));
                self.state = State::Holding(hold, None);
            }
            // Not every provider sends a last event.
            None => {
                let rest = self.events.take_rest();
                self.ended(rest, None, *exchange);
            }
        }
        None
    }

    /// Reads a frame. Returns the bytes that wait for the record if the response ends in this frame.
    fn read(&mut self, data: &[u8], exchange: &mut Exchange) -> Result<Option<Vec<u8>>, Unread> {
        let mut shown = Vec::new();
        let read_event = |event: &[u8]| Ok(exchange.read(event)?.is_some());
        let read = self.events.read(data, &mut shown, read_event);
        if !shown.is_empty() {
            self.out.push_back(Frame::data(shown.into()));
        }
        read
    }

    /// Ends the current response. `last` is what the agent gets after the record.
    fn ended(&mut self, last: Vec<u8>, rest: Option<Incoming>, exchange: Exchange) {
        let last = (!last.is_empty()).then(|| Ok(Frame::data(last.into())));
        if !self.events.has_own_calls() {
            let hold = Hold::new(exchange, BodyEnd::Whole, last);
            self.state = State::Holding(hold, rest);
            return;
        }
        // `read_back` is taken only with a change of the state, and `answered` brings it back for the next response.
        let Some(read_back) = self.read_back.take() else {
            return;
        };
        // `last` is dropped if another response follows, because the agent does not get the end before it.
        if self.events.continues() {
            // hyper polls the body outside of the request.
            let call = read_back.call.clone();
            self.state = State::Asking(Box::pin(call.scope(ask(read_back, exchange))));
        } else {
            let limit = exchange.hold_timeout();
            let recording = exchange.spawn(|exchange| record_beside(read_back, exchange));
            self.state = State::Holding(Hold::of_task(recording, limit, last), rest);
        }
    }

    fn answered(&mut self, asked: Asked) {
        match asked.outcome {
            Ok((inner, exchange)) => {
                self.events.begin_next(asked.read_back.may_continue());
                self.state = State::Streaming(inner, Box::new(exchange));
            }
            Err(error) => {
                let failure = failure(asked.read_back.api, &error);
                self.out.push_back(Frame::data(failure.into()));
                self.state = State::Ended;
            }
        }
        self.read_back = Some(asked.read_back);
    }

    /// Ends the reading of a response that is not understood.
    fn give_up(&mut self, reason: Unread, exchange: Exchange, inner: Incoming) {
        exchange.give_up(reason);
        let rest = self.events.take_rest();
        if self.events.is_changed() {
            // `received` has set the state to `Ended`, so the error is the last event for the agent.
            let api = self.read_back.as_ref().map(|read_back| read_back.api);
            let failure = api.map(|api| failure(api, b"")).unwrap_or_default();
            self.out.push_back(Frame::data(failure.into()));
            return;
        }
        // Nothing was hidden so far, so the rest can follow as it is.
        self.out.push_back(Frame::data(rest.into()));
        self.state = State::Forwarding(Box::new(TeeBody::new(inner, None)));
    }
}

impl Drop for ReadBackBody {
    fn drop(&mut self) {
        // An `Unrecorded` inside of a dropped `Asking` records itself.
        if let State::Streaming(_, exchange) = std::mem::replace(&mut self.state, State::Ended) {
            // The agent is gone. The record continues without a wait.
            drop(exchange.end(BodyEnd::Cancelled));
        }
    }
}

/// Runs the calls of a response, and sends the next request.
async fn ask(mut read_back: Box<ReadBack>, exchange: Exchange) -> Asked {
    let outcome = next(&mut read_back, exchange).await;
    Asked { read_back, outcome }
}

/// Returns the next response, or the body of the provider's error.
async fn next(read_back: &mut ReadBack, exchange: Exchange) -> Result<(Incoming, Exchange), Bytes> {
    let Some(unrecorded) = exchange.finish(BodyEnd::Whole).await else {
        return Err(Bytes::new());
    };
    let round = run(read_back, &unrecorded).await.ok_or_else(Bytes::new)?;
    let (response, span) = read_back
        .ask(&round)
        .await
        .map_err(|error| failed(&error))?;
    let (head, body) = response.into_parts();
    let readings = &read_back.readings;
    let place = unrecorded.place();
    // Begun before the status is examined, because `begin` also counts a rejection.
    let begun = Exchange::begin(readings, read_back.api, (place, span), &head);
    if read_back.holds_key && head.status == StatusCode::UNAUTHORIZED {
        tracing::warn!("an upstream rejected the key of the gateway within a response");
        // The body can contain parts of the key.
        return Err(Bytes::new());
    }
    if !head.status.is_success() {
        // `failure` writes a general error in place of a body that is larger or breaks.
        let body = Limited::new(body, MAX_ERROR_BYTES).collect().await;
        return Err(body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default());
    }
    let rounds = unrecorded.into_rounds(round.results.into());
    let exchange = read_back.begin(begun, rounds).ok_or_else(Bytes::new)?;
    Ok((body, exchange))
}

async fn run(read_back: &ReadBack, unrecorded: &Unrecorded) -> Option<crate::context::ToolRound> {
    let json = unrecorded.json()?;
    read_back.run(json).await.ok()
}

fn failed(error: &ClientError) -> Bytes {
    tracing::warn!(%error, "cannot send the result of a tool to an upstream");
    Bytes::new()
}

/// Records a response with calls of the agent's tools beside those of offered tools. The agent runs its own ones.
async fn record_beside(read_back: Box<ReadBack>, exchange: Exchange) {
    if let Some(unrecorded) = exchange.finish(BodyEnd::Whole).await {
        let results = run(&read_back, &unrecorded)
            .await
            .map(|round| round.results);
        unrecorded.record(results.unwrap_or_default().into()).await;
    }
}
