//! Providers' JSON, in both directions.
//!
//! Reading takes whatever a backend has at hand: one message, an array of them, a whole request or
//! a whole response. Writing gives one JSON object per wire message. Not here: which messages are
//! shown (`view`), and whether the outcome is valid (`validate`, which shares no code with this).

mod anthropic_read;
mod anthropic_write;
mod openai_read;
mod openai_write;

use serde_json::value::RawValue;

use crate::ids::MessageId;
use crate::json::{self, Extra, Fields, JsonError};
use crate::message::Message;
use crate::view::{Provider, WireBlock, WireMessage};

/// A payload that could not be read: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {error}", path = if path.is_empty() { "the payload" } else { path.as_str() })]
pub struct CodecError {
    /// A path into the payload, such as `messages[3].content[0].source`.
    pub path: String,
    /// What is wrong there.
    pub error: JsonError,
}

impl CodecError {
    fn new(error: impl Into<JsonError>) -> Self {
        Self {
            path: String::new(),
            error: error.into(),
        }
    }
}

impl From<JsonError> for CodecError {
    fn from(error: JsonError) -> Self {
        Self::new(error)
    }
}

/// Says where an error happened, from the inside out.
trait At<T> {
    fn at(self, segment: &str) -> Result<T, CodecError>;
    fn at_index(self, index: usize) -> Result<T, CodecError>;
}

impl<T, E: Into<CodecError>> At<T> for Result<T, E> {
    fn at(self, segment: &str) -> Result<T, CodecError> {
        self.map_err(|error| {
            let error = error.into();
            let path = match error.path.as_str() {
                "" => segment.to_owned(),
                rest if rest.starts_with('[') => format!("{segment}{rest}"),
                rest => format!("{segment}.{rest}"),
            };
            CodecError { path, ..error }
        })
    }

    fn at_index(self, index: usize) -> Result<T, CodecError> {
        self.at(&format!("[{index}]"))
    }
}

/// Reads a payload. `next_id` names the messages, in order.
pub fn read(
    provider: Provider,
    payload: &[u8],
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, CodecError> {
    let text = json::document(payload)?;
    let raw: &RawValue = serde_json::from_str(&text).map_err(JsonError::from)?;
    match provider {
        Provider::Anthropic | Provider::Bedrock => anthropic_read::payload(raw, next_id),
        Provider::OpenAi => openai_read::payload(raw, next_id),
    }
}

/// Appends one wire message as the provider's JSON.
pub fn write(provider: Provider, message: &WireMessage<'_>, out: &mut Vec<u8>) {
    match provider {
        Provider::Anthropic | Provider::Bedrock => anthropic_write::message(message, out),
        Provider::OpenAi => openai_write::message(message, out),
    }
}

/// Appends one block as the provider's JSON.
pub fn write_block(provider: Provider, block: &WireBlock<'_>, out: &mut Vec<u8>) {
    match provider {
        Provider::Anthropic | Provider::Bedrock => {
            anthropic_write::block(block, Reader::Model, out);
        }
        Provider::OpenAi => openai_write::block(block, out),
    }
}

/// Appends one block of a transcript in Anthropic's words, with what no view shows: the cache markers
/// that it came with, and an input that is no JSON object as the string that it is.
pub fn write_original(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    anthropic_write::block(block, Reader::Transcript, out);
}

/// For whom a block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A model: what its provider takes.
    Model,
    /// Whoever reads the transcript: everything as it came.
    Transcript,
}

/// The unknown fields and the closing brace, for a model.
fn close(out: &mut Vec<u8>, extra: Option<&Extra>) {
    close_for(Reader::Model, out, extra);
}

/// The unknown fields and the closing brace. For a model a cache marker is never among them: markers
/// are placed on request, and must not change the bytes that views are compared by.
fn close_for(reader: Reader, out: &mut Vec<u8>, extra: Option<&Extra>) {
    for (name, value) in extra.into_iter().flat_map(Extra::iter) {
        if name == "cache_control" && reader == Reader::Model {
            continue;
        }
        out.push(b',');
        json::write_str(out, name);
        out.push(b':');
        out.extend_from_slice(value.as_str().as_bytes());
    }
    out.push(b'}');
}

/// Reads every element of an array, saying which one was wrong.
fn each<T>(
    raw: &RawValue,
    mut read: impl FnMut(&RawValue) -> Result<T, CodecError>,
) -> Result<Vec<T>, CodecError> {
    json::array(raw)?
        .into_iter()
        .enumerate()
        .map(|(index, element)| read(element).at_index(index))
        .collect()
}

/// Takes a count of tokens out of a usage object; absent is zero.
fn count(fields: &mut Fields<'_>, field: &'static str) -> Result<u64, CodecError> {
    match fields.take(field)? {
        None => Ok(0),
        Some(raw) => serde_json::from_str(raw.get())
            .map_err(|_| JsonError::Kind {
                expected: "a whole number of tokens",
            })
            .at(field),
    }
}

fn is_array(raw: &RawValue) -> bool {
    raw.get().starts_with('[')
}

fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}
