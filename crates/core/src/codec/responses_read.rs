//! Reads JSON of OpenAI's Responses API. Each item becomes one message.

use serde_json::value::RawValue;

use super::reader::{CodecError, ErrorPath, is_array, is_string, read_array, read_token_count};
use super::responses_parts;
use crate::ids::MessageId;
use crate::json::{self, JsonError, ObjectFields, RawJson, UnknownFields};
use crate::message::{
    Block, CallKind, Message, MessageOrigin, ResultContent, Role, Thinking, ToolInput, ToolResult,
    ToolUse, Usage,
};

pub(super) fn payload(
    raw: &RawValue,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, CodecError> {
    if is_string(raw) || is_array(raw) {
        return input(raw, next_id);
    }
    let mut fields = ObjectFields::read(raw)?;
    // An item has a type or a role. Requests and responses have neither.
    let kind = fields.string("type").at("type")?;
    let role = fields.string("role").at("role")?;
    if kind.is_some() || role.is_some() {
        return Ok(vec![item(raw, next_id())?]);
    }
    // The instructions of a request are its system prompt, which is not part of the conversation.
    if let Some(items) = fields.take("input")? {
        return input(items, next_id).at("input");
    }
    if let Some(output) = fields.take("output")? {
        return response(fields, output, next_id);
    }
    // A reference may leave its type out.
    match fields.string("id").at("id")? {
        Some(_) => Ok(vec![item(raw, next_id())?]),
        None => Err(JsonError::Missing { field: "input" }.into()),
    }
}

/// Reads the input of a request: a text of the user, or items.
fn input(
    raw: &RawValue,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, CodecError> {
    if is_string(raw) {
        let text = Block::text(json::string(raw)?);
        return Ok(vec![message_of(next_id(), Role::User, vec![text])]);
    }
    read_array(raw, |element| item(element, next_id()))
}

/// Reads a complete response. Its items are fragments of one response.
fn response(
    mut fields: ObjectFields<'_>,
    output: &RawValue,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, CodecError> {
    let mut items = read_array(output, |element| item(element, next_id())).at("output")?;
    let id = fields.string("id").at("id")?;
    let model = fields.string("model").at("model")?;
    for item in &mut items {
        item.provider_message_id.clone_from(&id);
        item.model.clone_from(&model);
    }
    // The usage covers the whole response, so it belongs to the end.
    if let (Some(raw), Some(last)) = (fields.take("usage")?, items.last_mut()) {
        last.usage = Some(usage(raw).at("usage")?);
    }
    Ok(items)
}

fn usage(raw: &RawValue) -> Result<Usage, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let input = read_token_count(&mut fields, "input_tokens")?;
    let output_tokens = read_token_count(&mut fields, "output_tokens")?;
    let cached = match fields.take("input_tokens_details")? {
        Some(details) => {
            let mut details = ObjectFields::read(details).at("input_tokens_details")?;
            read_token_count(&mut details, "cached_tokens").at("input_tokens_details")?
        }
        None => 0,
    };
    // The provider's `input_tokens` includes cached tokens. Inconsistent reports must not underflow.
    Ok(Usage {
        input_tokens: input.saturating_sub(cached),
        cache_read_tokens: cached.min(input),
        cache_write_tokens: 0,
        output_tokens,
    })
}

fn message_of(id: MessageId, role: Role, blocks: Vec<Block>) -> Message {
    let mut message = Message::new(id, role, blocks);
    message.origin = MessageOrigin::OpenAiResponses;
    message
}

fn item(raw: &RawValue, id: MessageId) -> Result<Message, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let kind = fields.string("type").at("type")?;
    let has_role = fields.string("role").at("role")?.is_some();
    let has_id = fields.string("id").at("id")?.is_some();
    // Only a reference may leave its type out, and it has no other fields.
    let is_reference = has_id && (fields.rest().iter()).all(|(_, value)| value.as_str() == "null");
    // The fields were only inspected, so each reader takes them again.
    let fields = ObjectFields::read(raw)?;
    let kind = match kind.as_deref() {
        None if has_role => "message",
        None if is_reference => "item_reference",
        None => return Err(JsonError::Missing { field: "type" }.into()),
        Some(kind) => kind,
    };
    if kind == "message" {
        return message(raw, fields, id);
    }
    if kind == "reasoning" {
        return Ok(message_of(id, Role::Assistant, vec![reasoning(fields)?]));
    }
    if let Some(called) = find(CallKind::call_type, kind) {
        return Ok(message_of(id, Role::Assistant, vec![call(called, fields)?]));
    }
    match find(CallKind::output_type, kind) {
        Some(called) => Ok(message_of(id, Role::User, vec![output(called, fields)?])),
        None => Ok(opaque(raw, kind, id)),
    }
}

fn find(name: impl Fn(CallKind) -> &'static str, kind: &str) -> Option<CallKind> {
    CallKind::ALL
        .into_iter()
        .find(|candidate| name(*candidate) == kind)
}

/// Keeps an item verbatim. Items that a caller adds are the user's, and all others are the model's.
fn opaque(raw: &RawValue, kind: &str, id: MessageId) -> Message {
    let is_given = ["_output", "_response"]
        .iter()
        .any(|end| kind.ends_with(end))
        || matches!(
            kind,
            "compaction" | "compaction_trigger" | "additional_tools"
        );
    let block = Block::Opaque {
        kind: kind.into(),
        json: RawJson::of(raw),
    };
    let role = if is_given {
        Role::User
    } else {
        Role::Assistant
    };
    message_of(id, role, vec![block])
}

fn message(
    raw: &RawValue,
    mut fields: ObjectFields<'_>,
    id: MessageId,
) -> Result<Message, CodecError> {
    let role = match &*fields.require_string("role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "developer" => Role::Developer,
        _ => {
            return Err(JsonError::Kind {
                expected: "`user`, `assistant`, `system` or `developer`",
            })
            .at("role");
        }
    };
    let blocks = match fields.take("content")? {
        None => Some(Vec::new()),
        Some(content) if is_string(content) => {
            let text = json::string(content).at("content")?;
            let is_empty = text.is_empty();
            Some((!is_empty).then(|| Block::text(text)).into_iter().collect())
        }
        Some(content) => read_array(content, responses_parts::read)
            .at("content")?
            .into_iter()
            .collect(),
    };
    // A part of an unknown type cannot be written outside of its item, so the whole item is kept.
    let Some(blocks) = blocks else {
        let mut message = opaque(raw, "message", id);
        if role != Role::Assistant {
            message.role = Role::User;
        }
        return Ok(message);
    };
    fields.take("type")?;
    let mut message = message_of(id, role, blocks);
    message.extra = fields.rest();
    Ok(message)
}

/// Reads reasoning. Without encrypted content, only the server that stored the item can read it.
fn reasoning(mut fields: ObjectFields<'_>) -> Result<Block, CodecError> {
    fields.take("type")?;
    let data = fields.string("encrypted_content").at("encrypted_content")?;
    Ok(Block::Thinking(Thinking::Redacted {
        data: data.unwrap_or_default(),
        extra: fields.rest(),
    }))
}

fn call(kind: CallKind, mut fields: ObjectFields<'_>) -> Result<Block, CodecError> {
    let id = fields.require_string("call_id")?;
    let (name, input): (Box<str>, _) = match kind {
        CallKind::Function => {
            let arguments = fields.string("arguments").at("arguments")?;
            let input = ToolInput::parse(arguments.as_deref().unwrap_or("{}"));
            (fields.require_string("name")?, input)
        }
        CallKind::Custom => {
            let input = ToolInput::Text(fields.require_string("input")?);
            (fields.require_string("name")?, input)
        }
        CallKind::LocalShell => ("local_shell".into(), object(&mut fields, "action")?),
        CallKind::Shell => ("shell".into(), object(&mut fields, "action")?),
        CallKind::ApplyPatch => ("apply_patch".into(), object(&mut fields, "operation")?),
    };
    Ok(Block::ToolUse(ToolUse {
        id,
        name,
        input,
        extra: rest(kind, fields),
    }))
}

fn object(fields: &mut ObjectFields<'_>, field: &'static str) -> Result<ToolInput, CodecError> {
    let json = fields.take(field)?.map(RawJson::of);
    let json = json.ok_or(JsonError::Missing { field })?;
    if !json.is_object() {
        return Err(JsonError::Kind {
            expected: "an object",
        })
        .at(field);
    }
    Ok(ToolInput::Object(json))
}

fn output(kind: CallKind, mut fields: ObjectFields<'_>) -> Result<Block, CodecError> {
    let mut call_id = fields.string("call_id").at("call_id")?;
    // The output of a local shell may have the id of its call in the field `id`.
    if call_id.is_none() && kind == CallKind::LocalShell {
        call_id = fields.string("id").at("id")?;
    }
    let content = match fields.take("output")? {
        None => ResultContent::None,
        Some(raw) if is_string(raw) => ResultContent::Text(json::string(raw).at("output")?),
        // Parts exist only in outputs of functions and custom tools.
        Some(raw) if matches!(kind, CallKind::Function | CallKind::Custom) => {
            ResultContent::Blocks(read_array(raw, responses_parts::read_any).at("output")?)
        }
        Some(raw) => ResultContent::Text(raw.get().into()),
    };
    Ok(Block::ToolResult(ToolResult {
        tool_use_id: call_id.ok_or(JsonError::Missing { field: "call_id" })?,
        content,
        is_error: None,
        extra: rest(kind, fields),
    }))
}

/// Returns the unknown fields of a call or an output. The field `type` is one of them, except for functions. It comes
/// first, where the writer puts it, so that an item that was written and read again is the same message.
fn rest(kind: CallKind, mut fields: ObjectFields<'_>) -> UnknownFields {
    // A repeated field was rejected when the item was inspected.
    let named = fields.take("type").ok().flatten();
    let rest = fields.rest();
    match named {
        Some(named) if kind != CallKind::Function => rest.with_first("type", RawJson::of(named)),
        _ => rest,
    }
}
