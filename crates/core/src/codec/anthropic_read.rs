//! Reads Anthropic Messages JSON.

use serde_json::value::RawValue;

use super::reader::{CodecError, ErrorPath, is_array, is_string, read_array, read_token_count};
use crate::ids::MessageId;
use crate::json::{self, JsonError, ObjectFields, RawJson};
use crate::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageOrigin, ResultContent, Role, Thinking,
    ToolInput, ToolResult, ToolUse, Usage,
};

pub(super) fn payload(
    raw: &RawValue,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, CodecError> {
    if is_array(raw) {
        return read_array(raw, |element| {
            message(ObjectFields::read(element)?, next_id())
        });
    }
    let mut fields = ObjectFields::read(raw)?;
    let Some(messages) = fields.take("messages")? else {
        return Ok(vec![message(fields, next_id())?]);
    };
    let mut all = Vec::new();
    // The system prompt of a request becomes the first message of the transcript.
    if let Some(system) = fields.take("system")? {
        let mut operator = Message::new(next_id(), Role::System, content(system).at("system")?);
        operator.origin = MessageOrigin::Anthropic;
        all.push(operator);
    }
    all.extend(
        read_array(messages, |element| {
            message(ObjectFields::read(element)?, next_id())
        })
        .at("messages")?,
    );
    Ok(all)
}

fn message(mut fields: ObjectFields<'_>, id: MessageId) -> Result<Message, CodecError> {
    let role = match &*fields.require_string("role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => {
            return Err(JsonError::Kind {
                expected: "`user`, `assistant` or `system`",
            })
            .at("role");
        }
    };
    let blocks = match fields.take("content")? {
        Some(raw) => content(raw).at("content")?,
        None => return Err(JsonError::Missing { field: "content" }.into()),
    };
    let mut message = Message::new(id, role, blocks);
    message.origin = MessageOrigin::Anthropic;
    message.provider_message_id = fields.string("id").at("id")?;
    message.model = fields.string("model").at("model")?;
    if let Some(raw) = fields.take("usage")? {
        message.usage = Some(usage(raw).at("usage")?);
    }
    // `type` is always "message" and carries no information.
    fields.take("type")?;
    message.extra = fields.rest();
    Ok(message)
}

/// Reads a usage object. Missing counts are 0.
pub(crate) fn usage(raw: &RawValue) -> Result<Usage, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    Ok(Usage {
        input_tokens: read_token_count(&mut fields, "input_tokens")?,
        cache_read_tokens: read_token_count(&mut fields, "cache_read_input_tokens")?,
        cache_write_tokens: read_token_count(&mut fields, "cache_creation_input_tokens")?,
        output_tokens: read_token_count(&mut fields, "output_tokens")?,
    })
}

fn content(raw: &RawValue) -> Result<Vec<Block>, CodecError> {
    if is_string(raw) {
        let text = json::string(raw)?;
        // Providers reject an empty text block, so an empty string becomes no block.
        return Ok(if text.is_empty() {
            Vec::new()
        } else {
            vec![Block::text(text)]
        });
    }
    if !is_array(raw) {
        return Err(CodecError::new(JsonError::Kind {
            expected: "a string or an array of blocks",
        }));
    }
    read_array(raw, block)
}

/// Reads one content block. A block of an unknown type is kept verbatim.
pub(crate) fn block(raw: &RawValue) -> Result<Block, CodecError> {
    // Every known field is taken, and the rest is kept as unknown fields. A block is thus returned without loss.
    let mut fields = ObjectFields::read(raw)?;
    let kind = fields.require_string("type").at("type")?;
    Ok(match &*kind {
        "text" => Block::Text {
            text: fields.require_string("text")?,
            extra: fields.rest(),
        },
        "image" => media(MediaKind::Image, fields)?,
        "document" => media(MediaKind::Document, fields)?,
        "tool_use" => Block::ToolUse(ToolUse {
            id: fields.require_string("id")?,
            name: fields.require_string("name")?,
            input: match fields.take("input")? {
                // `write_original` writes an input that is not an object as a string. Such a string is read back as
                // text.
                Some(raw) if is_string(raw) => ToolInput::Text(json::string(raw)?),
                Some(raw) => ToolInput::parse(raw.get()),
                None => ToolInput::parse("{}"),
            },
            extra: fields.rest(),
        }),
        "tool_result" => Block::ToolResult(ToolResult {
            tool_use_id: fields.require_string("tool_use_id")?,
            content: match fields.take("content")? {
                None => ResultContent::None,
                Some(raw) if is_string(raw) => ResultContent::Text(json::string(raw)?),
                Some(raw) => ResultContent::Blocks(read_array(raw, block).at("content")?),
            },
            is_error: flag(&mut fields, "is_error")?,
            extra: fields.rest(),
        }),
        "thinking" => Block::Thinking(Thinking::Plain {
            thinking: fields.require_string("thinking")?,
            signature: fields.string("signature")?,
            extra: fields.rest(),
        }),
        "redacted_thinking" => Block::Thinking(Thinking::Redacted {
            data: fields.require_string("data")?,
            extra: fields.rest(),
        }),
        _ => Block::Opaque {
            kind,
            json: RawJson::of(raw),
        },
    })
}

fn flag(fields: &mut ObjectFields<'_>, field: &'static str) -> Result<Option<bool>, CodecError> {
    match fields.take(field)?.map(RawValue::get) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(JsonError::Kind {
            expected: "`true` or `false`",
        })
        .at(field),
    }
}

fn media(kind: MediaKind, mut fields: ObjectFields<'_>) -> Result<Block, CodecError> {
    let Some(raw) = fields.take("source")? else {
        return Err(JsonError::Missing { field: "source" }.into());
    };
    Ok(Block::Media(Media {
        kind,
        source: source(raw).at("source")?,
        extra: fields.rest(),
    }))
}

fn source(raw: &RawValue) -> Result<MediaSource, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let source = MediaSource::of(&mut fields)?;
    // An unknown field would be lost, so a source with unknown fields is kept verbatim as a whole.
    let whole = source.filter(|_| fields.rest().is_empty());
    Ok(whole.unwrap_or_else(|| MediaSource::Other(RawJson::of(raw))))
}
