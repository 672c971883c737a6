//! Reads OpenAI Chat Completions JSON.

use serde_json::value::RawValue;

use super::reader::{CodecError, ErrorPath, is_array, is_string, read_array, read_token_count};
use crate::ids::MessageId;
use crate::json::{self, JsonError, ObjectFields, RawJson};
use crate::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageOrigin, ResultContent, Role, ToolInput,
    ToolResult, ToolUse, Usage,
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
    if let Some(messages) = fields.take("messages")? {
        return read_array(messages, |element| {
            message(ObjectFields::read(element)?, next_id())
        })
        .at("messages");
    }
    match fields.take("choices")? {
        Some(choices) => response(fields, choices, next_id()).map(|message| vec![message]),
        None => Ok(vec![message(fields, next_id())?]),
    }
}

/// Reads a complete response. A response with several choices is rejected: the conversation continues with only one,
/// and the caller must send that message.
fn response(
    mut fields: ObjectFields<'_>,
    choices: &RawValue,
    id: MessageId,
) -> Result<Message, CodecError> {
    let choices = json::array(choices).at("choices")?;
    let [choice] = choices.as_slice() else {
        return Err(JsonError::Kind {
            expected: "one choice: send the message of the choice that continues the conversation",
        })
        .at("choices");
    };
    let Some(inner) = ObjectFields::read(choice)
        .at("choices[0]")?
        .take("message")?
    else {
        return Err(JsonError::Missing { field: "message" }).at("choices[0]");
    };
    let mut message = message(ObjectFields::read(inner)?, id).at("choices[0].message")?;
    message.provider_message_id = fields.string("id").at("id")?;
    message.model = fields.string("model").at("model")?;
    if let Some(raw) = fields.take("usage")? {
        message.usage = Some(usage(raw).at("usage")?);
    }
    Ok(message)
}

fn usage(raw: &RawValue) -> Result<Usage, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let prompt = read_token_count(&mut fields, "prompt_tokens")?;
    let output_tokens = read_token_count(&mut fields, "completion_tokens")?;
    let cached = match fields.take("prompt_tokens_details")? {
        Some(details) => {
            let mut details = ObjectFields::read(details).at("prompt_tokens_details")?;
            read_token_count(&mut details, "cached_tokens").at("prompt_tokens_details")?
        }
        None => 0,
    };
    // `prompt_tokens` includes cached tokens, and `input_tokens` does not. Inconsistent reports must not underflow.
    Ok(Usage {
        input_tokens: prompt.saturating_sub(cached),
        cache_read_tokens: cached.min(prompt),
        cache_write_tokens: 0,
        output_tokens,
    })
}

fn message(mut fields: ObjectFields<'_>, id: MessageId) -> Result<Message, CodecError> {
    let role = fields.require_string("role")?;
    let content = fields.take("content")?;
    // A message of another format may have its content in other fields, which would be lost.
    let may_lack_content = matches!(&*role, "assistant" | "tool") && !fields.contains("parts");
    if content.is_none() && !may_lack_content {
        return Err(JsonError::Missing { field: "content" }.into());
    }
    // Tool messages become user messages with a result block, and refusals become text. The inner model has one form
    // for both providers.
    let mut message = match &*role {
        "system" => Message::new(id, Role::System, parts(content)?),
        "developer" => Message::new(id, Role::Developer, parts(content)?),
        "user" => Message::new(id, Role::User, parts(content)?),
        "tool" => {
            let result = Block::ToolResult(ToolResult {
                tool_use_id: fields.require_string("tool_call_id")?,
                content: result_content(content)?,
                is_error: None,
                // Unknown fields next to the result are stored with the message.
                extra: json::UnknownFields::default(),
            });
            Message::new(id, Role::User, vec![result])
        }
        "assistant" => {
            let mut blocks = parts(content)?;
            if let Some(refusal) = fields.string("refusal").at("refusal")? {
                blocks.push(Block::text(refusal));
            }
            if let Some(calls) = fields.take("tool_calls")? {
                blocks.extend(read_array(calls, tool_call).at("tool_calls")?);
            }
            Message::new(id, Role::Assistant, blocks)
        }
        _ => {
            return Err(JsonError::Kind {
                expected: "`system`, `developer`, `user`, `assistant` or `tool`",
            })
            .at("role");
        }
    };
    message.origin = MessageOrigin::OpenAi;
    message.extra = fields.rest();
    Ok(message)
}

fn parts(content: Option<&RawValue>) -> Result<Vec<Block>, CodecError> {
    let Some(raw) = content else {
        return Ok(Vec::new());
    };
    if is_string(raw) {
        let text = json::string(raw).at("content")?;
        return Ok(if text.is_empty() {
            Vec::new()
        } else {
            vec![Block::text(text)]
        });
    }
    if !is_array(raw) {
        return Err(JsonError::Kind {
            expected: "a string or an array of parts",
        })
        .at("content");
    }
    read_array(raw, part).at("content")
}

fn result_content(content: Option<&RawValue>) -> Result<ResultContent, CodecError> {
    match content {
        None => Ok(ResultContent::None),
        Some(raw) if is_string(raw) => Ok(ResultContent::Text(json::string(raw).at("content")?)),
        Some(_) => Ok(ResultContent::Blocks(parts(content)?)),
    }
}

fn part(raw: &RawValue) -> Result<Block, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let kind = fields.require_string("type").at("type")?;
    Ok(match &*kind {
        "text" => Block::Text {
            text: fields.require_string("text")?,
            extra: fields.rest(),
        },
        "refusal" => Block::text(fields.require_string("refusal")?),
        "image_url" => {
            let Some(inner) = fields.take("image_url")? else {
                return Err(JsonError::Missing { field: "image_url" }.into());
            };
            let mut inner = ObjectFields::read(inner).at("image_url")?;
            let url = inner.require_string("url").at("image_url")?;
            Block::Media(Media {
                kind: MediaKind::Image,
                source: image_source(url),
                // `detail` is the only other field of `image_url`. The writer puts it back there.
                extra: inner.rest(),
            })
        }
        _ => Block::Opaque {
            kind,
            json: RawJson::of(raw),
        },
    })
}

fn image_source(url: Box<str>) -> MediaSource {
    // Embedded data is separated from its URL, because other providers take it in another form.
    match url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
    {
        Some((media_type, data)) => MediaSource::Base64 {
            media_type: media_type.into(),
            data: data.into(),
        },
        None => MediaSource::Url(url),
    }
}

fn tool_call(raw: &RawValue) -> Result<Block, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let id = fields.require_string("id")?;
    if let Some(function) = fields.take("function")? {
        let mut function = ObjectFields::read(function).at("function")?;
        let name = function.require_string("name").at("function")?;
        let arguments = function.string("arguments").at("function.arguments")?;
        fields.take("type")?;
        return Ok(Block::ToolUse(ToolUse {
            id,
            name,
            input: ToolInput::parse(arguments.as_deref().unwrap_or("{}")),
            extra: fields.rest(),
        }));
    }
    let Some(custom) = fields.take("custom")? else {
        return Err(JsonError::Missing { field: "function" }.into());
    };
    let mut custom = ObjectFields::read(custom).at("custom")?;
    // `type` stays among the unknown fields, where the writer recognizes a custom call by it.
    Ok(Block::ToolUse(ToolUse {
        id,
        name: custom.require_string("name").at("custom")?,
        input: ToolInput::Text(custom.require_string("input").at("custom")?),
        extra: fields.rest(),
    }))
}
