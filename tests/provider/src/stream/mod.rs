//! Answers as streams of events, delivered at a scripted pace.

pub(crate) mod chat;
pub(crate) mod coding;
pub(crate) mod messages;
pub(crate) mod pace;
pub(crate) mod responses;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use serde_json::Value;

use crate::clock::Clock;
use crate::faults::End;
use crate::wire::Line;
use coding::{Coding, Encoder};
use pace::{Pace, Split};

/// A server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The event's name. Chat Completions has no names.
    name: Option<String>,
    pub(crate) data: String,
}

impl Event {
    /// Returns an event whose name is the field `type` of its data.
    pub(crate) fn named(data: &Value) -> Self {
        Self {
            name: data["type"].as_str().map(str::to_owned),
            data: data.to_string(),
        }
    }

    pub(crate) fn unnamed(data: &Value) -> Self {
        Self {
            name: None,
            data: data.to_string(),
        }
    }

    fn bytes(&self, crlf: bool) -> Bytes {
        let end = if crlf { "\r\n" } else { "\n" };
        let name = match &self.name {
            Some(name) => format!("event: {name}{end}"),
            None => String::new(),
        };
        format!("{name}data: {}{end}{end}", self.data).into()
    }
}

/// Splits a text into deltas of at most this number of bytes. Each has at least one character.
pub(crate) fn deltas(text: &str, most: usize) -> Vec<&str> {
    let mut rest = text;
    let mut deltas = Vec::new();
    while let Some(first) = rest.chars().next() {
        // A first character above the limit is a delta by itself. Otherwise the loop would not advance.
        let end = rest.floor_char_boundary(most.min(rest.len()));
        let (delta, after) = rest.split_at(end.max(first.len_utf8()));
        deltas.push(delta);
        rest = after;
    }
    deltas
}

/// The body of an answer on its way to the client.
pub(crate) struct Delivery {
    pieces: VecDeque<Bytes>,
    frames: VecDeque<Bytes>,
    pace: Pace,
    encoder: Option<Encoder>,
    /// The number of body bytes after which the connection closes.
    cut_after: Option<usize>,
    end: End,
    is_first: bool,
    sent: usize,
    line: Arc<Line>,
    clock: Clock,
    /// Counts deliveries that the client ended.
    abandoned: Option<Arc<AtomicU64>>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let is_cut = self.cut_after.is_some_and(|most| self.sent >= most);
        // A dropped delivery with bytes left has lost its client, unless the script cut it.
        let is_left = !self.pieces.is_empty() || !self.frames.is_empty();
        if let Some(abandoned) = self.abandoned.as_ref().filter(|_| is_left && !is_cut) {
            abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Delivery {
    /// Returns the delivery of events.
    pub(crate) fn of_events(events: &[Event], pace: Pace, line: Arc<Line>, clock: Clock) -> Self {
        let events = events.iter().map(|event| event.bytes(pace.crlf));
        let pieces = if pace.split == Split::Together {
            let all: Vec<Bytes> = events.collect();
            VecDeque::from([all.concat().into()])
        } else {
            events.collect()
        };
        Self::new(pieces, pace, line, clock)
    }

    /// Returns the delivery of a body without events.
    pub(crate) fn of_body(body: String, pace: Pace, line: Arc<Line>, clock: Clock) -> Self {
        Self::new(VecDeque::from([body.into()]), pace, line, clock)
    }

    fn new(pieces: VecDeque<Bytes>, pace: Pace, line: Arc<Line>, clock: Clock) -> Self {
        Self {
            pieces,
            frames: VecDeque::new(),
            pace,
            encoder: None,
            cut_after: None,
            end: End::Clean,
            is_first: true,
            sent: 0,
            line,
            clock,
            abandoned: None,
        }
    }

    /// Counts this delivery in `abandoned` if the client disconnects before its end.
    pub(crate) fn counted(mut self, abandoned: &Arc<AtomicU64>) -> Self {
        self.abandoned = Some(Arc::clone(abandoned));
        self
    }

    pub(crate) fn ends(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    pub(crate) fn cut_after(mut self, bytes: Option<usize>) -> Self {
        self.cut_after = bytes;
        self
    }

    /// Returns the body with this coding.
    pub(crate) fn body(mut self, coding: Option<Coding>) -> io::Result<Body> {
        self.line.set_one_byte(self.pace.one_byte_writes);
        self.encoder = Some(Encoder::new(coding)?);
        let frames =
            futures::stream::unfold(Some(self), |delivery| async move { delivery?.next().await });
        Ok(Body::from_stream(frames))
    }

    /// Returns the next frame and the rest of the delivery.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let is_cut = self.cut_after.is_some_and(|most| self.sent >= most);
        if self.frames.is_empty()
            && !is_cut
            && let Err(error) = self.fill().await
        {
            return Some((Err(error), None));
        }
        let frame = self.frames.pop_front().filter(|_| !is_cut);
        let is_broken = frame.is_none() && (is_cut || self.end != End::Clean);
        if is_broken || self.sent > 0 && frame.is_some() {
            // Each frame leaves by itself, and a failure loses no earlier one.
            self.line.flushed().await;
        }
        let Some(mut frame) = frame else {
            if self.end == End::Reset {
                self.line.reset();
            }
            let error = io::Error::other("the script ends the connection here");
            return is_broken.then_some((Err(error), None));
        };
        if let Some(most) = self.cut_after {
            // `sent` is below `most` here, because a reached limit has ended the delivery above.
            frame.truncate(most - self.sent);
        }
        self.sent += frame.len();
        Some((Ok(frame), Some(self)))
    }

    /// Encodes pieces until a frame exists. At the end of the pieces, the frames stay empty.
    async fn fill(&mut self) -> io::Result<()> {
        while self.frames.is_empty() {
            let Some(piece) = self.pieces.pop_front() else {
                // A broken body has no end of its coding.
                let encoder = self.encoder.take().filter(|_| self.end == End::Clean);
                let Some(encoder) = encoder else {
                    return Ok(());
                };
                self.add(&encoder.finish()?);
                continue;
            };
            let pause = self.pace.pause(self.is_first);
            self.is_first = false;
            if pause > Duration::ZERO {
                self.clock.sleep(pause).await;
            }
            for part in self.parts(piece) {
                let encoded = match &mut self.encoder {
                    Some(encoder) => encoder.push(part)?,
                    None => part,
                };
                self.add(&encoded);
            }
        }
        Ok(())
    }

    /// Splits a piece before its encoding, because the borders are those of the decoded text.
    fn parts(&self, piece: Bytes) -> Vec<Bytes> {
        if self.pace.split == Split::Byte {
            vec![piece]
        } else {
            pace::frames(self.pace.split, &piece)
        }
    }

    fn add(&mut self, encoded: &Bytes) {
        if self.pace.split == Split::Byte {
            self.frames.extend(pace::frames(Split::Byte, encoded));
        } else if !encoded.is_empty() {
            self.frames.push_back(encoded.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::deltas;

    #[test]
    fn deltas_have_whole_characters() {
        assert_eq!(deltas("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(deltas("aüb", 2), ["a", "ü", "b"]);
        assert_eq!(deltas("😀", 1), ["😀"]);
        assert!(deltas("", 4).is_empty());
    }
}
