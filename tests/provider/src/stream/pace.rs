//! The pace of a stream: the time between its events, and the borders of its frames.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

/// The pace and the framing of an answer. The default sends one event per frame, without pauses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pace {
    /// The pause between the head of the response and its first event, in milliseconds.
    pub first_byte_ms: u64,
    /// The pause before each later event, in milliseconds.
    pub gap_ms: u64,
    /// The maximum size of a delta, in bytes. A delta contains at least one character.
    pub delta_bytes: usize,
    /// The number of pings between two events. Only the Messages API has pings.
    pub pings: usize,
    /// The borders of frames.
    pub split: Split,
    /// True to end lines with CR LF instead of LF.
    pub crlf: bool,
    /// True to write each byte to the socket by itself.
    pub one_byte_writes: bool,
    /// The content coding, used if the client accepts it.
    pub coding: Option<super::coding::Coding>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first_byte_ms: 0,
            gap_ms: 0,
            delta_bytes: 24,
            pings: 0,
            split: Split::Event,
            crlf: false,
            one_byte_writes: false,
            coding: None,
        }
    }
}

/// The borders of frames. Each frame is a chunk of the body and is flushed by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// After each event.
    #[default]
    Event,
    /// After the last event.
    Together,
    /// Inside each character of several bytes.
    Utf8,
    /// Inside the field names `event` and `data`, and before their colons.
    Field,
    /// Between the characters of each line end.
    LineEnd,
    /// After each byte.
    Byte,
}

impl Pace {
    /// Returns the pause before an event.
    pub(crate) fn pause(&self, is_first: bool) -> Duration {
        Duration::from_millis(if is_first {
            self.first_byte_ms
        } else {
            self.gap_ms
        })
    }
}

/// Splits the bytes of an event into frames.
pub(crate) fn frames(split: Split, event: &Bytes) -> Vec<Bytes> {
    let mut frames = Vec::new();
    let mut start = 0;
    for at in 1..event.len() {
        if is_border(split, event, at) {
            frames.push(event.slice(start..at));
            start = at;
        }
    }
    if start < event.len() {
        frames.push(event.slice(start..));
    }
    frames
}

/// Returns true if a frame ends before this byte.
fn is_border(split: Split, bytes: &[u8], at: usize) -> bool {
    let is_line_end = |byte: u8| byte == b'\r' || byte == b'\n';
    match split {
        Split::Event | Split::Together => false,
        // A continuation byte is inside a character.
        Split::Utf8 => bytes[at] & 0b1100_0000 == 0b1000_0000,
        // Splits `data: x` into `da`, `ta` and `: x`, and `event: x` into `event` and `: x`.
        Split::Field => {
            let line = &bytes[..at];
            let name = line.rsplit(|byte| is_line_end(*byte)).next();
            let rest = &bytes[at..];
            matches!(name, Some(b"da")) && rest.starts_with(b"ta:")
                || matches!(name, Some(b"data" | b"event")) && rest.starts_with(b":")
        }
        Split::LineEnd => is_line_end(bytes[at - 1]) && is_line_end(bytes[at]),
        Split::Byte => true,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Split, frames};

    fn check(split: Split, event: &str, expected: &[&[u8]]) {
        let frames = frames(split, &Bytes::copy_from_slice(event.as_bytes()));
        assert_eq!(frames, expected, "{split:?}");
    }

    #[test]
    fn frames_end_at_the_selected_borders() {
        let event = "data: ü\r\n\r\n";
        check(Split::Event, event, &[event.as_bytes()]);
        check(Split::Utf8, event, &[b"data: \xc3", b"\xbc\r\n\r\n"]);
        let fields: &[&[u8]] = &[b"da", b"ta", ": ü\r\n\r\n".as_bytes()];
        check(Split::Field, event, fields);
        let ends: &[&[u8]] = &["data: ü\r".as_bytes(), b"\n", b"\r", b"\n"];
        check(Split::LineEnd, event, ends);
        check(Split::Byte, "ab", &[b"a", b"b"]);
    }
}
