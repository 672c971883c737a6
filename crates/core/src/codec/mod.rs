//! Codecs for providers' JSON, in both directions.
//!
//! Readers accept one message or item, an array of messages, a complete request or a complete response. Writers create one JSON
//! object for each wire message. The selection of messages is in `view`. The validation of the output is in `validate`,
//! which shares no code with this module.

mod anthropic_read;
mod anthropic_write;
pub mod compaction_item;
mod openai_read;
mod openai_write;
mod reader;
mod responses_parts;
mod responses_read;
mod responses_write;
mod result_content;

use serde_json::value::RawValue;

use self::reader::Audience;
pub use self::reader::CodecError;
pub use self::result_content::read_result_content;
use crate::ids::MessageId;
use crate::json::{self, JsonError};
use crate::message::Message;
use crate::view::{Provider, WireBlock, WireMessage};

/// Reads the messages of a payload. `next_id` creates an id for each message, in order.
///
/// # Errors
///
/// Fails if the payload is not valid JSON or not a form that the provider defines. The error contains the path.
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
        Provider::OpenAiResponses => responses_read::payload(raw, next_id),
    }
}

/// Appends one wire message as the provider's JSON to `out`.
pub fn write(provider: Provider, message: &WireMessage<'_>, out: &mut Vec<u8>) {
    match provider {
        Provider::Anthropic | Provider::Bedrock => anthropic_write::message(message, out),
        Provider::OpenAi => openai_write::message(message, out),
        Provider::OpenAiResponses => responses_write::message(message, Audience::Model, out),
    }
}

/// Appends a message of the transcript as the provider's JSON to `out`. Unlike in a view, items of OpenAI's Responses
/// API have their ids.
pub fn write_transcript(provider: Provider, message: &WireMessage<'_>, out: &mut Vec<u8>) {
    match provider {
        Provider::OpenAiResponses => responses_write::message(message, Audience::Transcript, out),
        Provider::Anthropic | Provider::Bedrock | Provider::OpenAi => write(provider, message, out),
    }
}

/// Appends one block as the provider's JSON to `out`.
pub fn write_block(provider: Provider, block: &WireBlock<'_>, out: &mut Vec<u8>) {
    match provider {
        Provider::Anthropic | Provider::Bedrock => {
            anthropic_write::block(block, Audience::Model, out);
        }
        Provider::OpenAi => openai_write::block(block, out),
        Provider::OpenAiResponses => responses_write::block(block, out),
    }
}

/// Appends one transcript block in Anthropic's form. Unlike in a view, original cache markers are included, and an
/// input that is not a JSON object is written as a string.
pub fn write_original(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    anthropic_write::block(block, Audience::Transcript, out);
}
