//! Assembles the events of a stream to the response that the same request gets without a stream.

mod chat;
mod messages;
mod responses;

use serde::Deserialize;

use self::chat::Chat;
use self::messages::Messages;
use self::responses::Responses;
use super::{ResponseApi, ResponseEnd, Unread};

/// The maximum number of values in an object that is parsed completely. It bounds the memory of its values.
const MAX_VALUES: usize = 100_000;

/// The effect of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More events follow.
    Open,
    /// The event is the last one of the response.
    Ended(ResponseEnd),
}

/// An assembler of one response.
#[derive(Debug)]
pub(super) enum Assembler {
    Messages(Messages),
    Chat(Chat),
    Responses(Responses),
}

impl Assembler {
    pub(super) fn new(api: ResponseApi) -> Self {
        match api {
            ResponseApi::Messages => Self::Messages(Messages::default()),
            ResponseApi::Chat => Self::Chat(Chat::default()),
            ResponseApi::Responses => Self::Responses(Responses::default()),
        }
    }

    /// Adds the data of an event.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<Progress, Unread> {
        match self {
            Self::Messages(assembler) => assembler.add(data),
            Self::Chat(assembler) => assembler.add(data),
            Self::Responses(assembler) => assembler.add(data),
        }
    }

    /// Returns the size of the content so far, in bytes.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Messages(assembler) => assembler.memory(),
            Self::Chat(assembler) => assembler.memory(),
            Self::Responses(assembler) => assembler.memory(),
        }
    }

    /// Returns the end of a response whose body ended without a last event.
    pub(super) fn end_without_last_event(&self) -> ResponseEnd {
        match self {
            // `[DONE]` is a convention that not every provider follows.
            Self::Chat(assembler) if assembler.is_finished() => ResponseEnd::Complete,
            _ => ResponseEnd::Cut,
        }
    }

    /// Returns the JSON of the response. Incomplete parts of a cut response that a client cannot use are left out.
    /// Returns `None` if the response has not begun.
    pub(super) fn finish(self) -> serde_json::Result<Option<Vec<u8>>> {
        match self {
            Self::Messages(assembler) => assembler.finish(),
            Self::Chat(assembler) => assembler.finish(),
            Self::Responses(assembler) => assembler.finish(),
        }
    }
}

/// Parses the JSON of an event.
fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Unread> {
    Ok(serde_json::from_slice(data)?)
}

/// Rejects JSON with so many values that its objects would be much larger than its text.
fn check_values(json: &[u8]) -> Result<(), Unread> {
    // Separators inside of strings count too, so the check is a bound and not a count.
    let is_separator = |byte: &&u8| matches!(byte, b',' | b'[' | b'{');
    if json.len() > MAX_VALUES && json.iter().filter(is_separator).count() > MAX_VALUES {
        return Err(Unread::TooLarge);
    }
    Ok(())
}
