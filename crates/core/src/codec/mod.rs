//! Providers' JSON, in both directions.
//!
//! Reading takes whatever a backend has at hand: one message, an array of them, a whole request or
//! a whole response. Writing gives one JSON object per wire message. Not here: which messages are
//! shown (`view`), and whether the outcome is valid (`validate`, which shares no code with this).

mod anthropic_read;
mod anthropic_write;
mod openai_read;
mod openai_write;
mod reader;

use serde_json::value::RawValue;

use self::reader::Audience;
pub use self::reader::CodecError;
use crate::ids::MessageId;
use crate::json::{self, JsonError};
use crate::message::Message;
use crate::view::{Provider, WireBlock, WireMessage};

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
            anthropic_write::block(block, Audience::Model, out);
        }
        Provider::OpenAi => openai_write::block(block, out),
    }
}

/// Appends one block of a transcript in Anthropic's words, with what no view shows: the cache markers
/// that it came with, and an input that is no JSON object as the string that it is.
pub fn write_original(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    anthropic_write::block(block, Audience::Transcript, out);
}
