//! Writes wire messages as items of OpenAI's Responses API.

use std::borrow::Cow;

use super::reader::Audience;
use super::responses_parts::{write as write_part, write_all};
use crate::json::{RawJson, UnknownFields, write_str};
use crate::message::{CallKind, Thinking, ToolInput};
use crate::view::{WireBlock, WireMessage, WireResult, WireRole};

pub(super) fn message(message: &WireMessage<'_>, reader: Audience, out: &mut Vec<u8>) {
    match message.blocks.as_slice() {
        [block] if !block.is_content() => item(block, reader, out),
        blocks => {
            out.extend_from_slice(b"{\"type\":\"message\"");
            fields(message.extra, &["type", "role", "content"], reader, out);
            out.extend_from_slice(match message.role {
                WireRole::System | WireRole::Operator => b",\"role\":\"system\"".as_slice(),
                WireRole::Developer => b",\"role\":\"developer\"",
                WireRole::User | WireRole::Tool => b",\"role\":\"user\"",
                WireRole::Assistant => b",\"role\":\"assistant\"",
            });
            out.extend_from_slice(b",\"content\":");
            write_all(message.role, blocks, out);
            out.push(b'}');
        }
    }
}

/// Writes one block without its message. Views are compared block by block in this form.
pub(super) fn block(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    if block.is_content() {
        // The role is part of the message, and both types of text have equal fields.
        write_part(WireRole::User, block, out);
    } else {
        item(block, Audience::Model, out);
    }
}

fn item(block: &WireBlock<'_>, reader: Audience, out: &mut Vec<u8>) {
    match block {
        WireBlock::Call {
            kind,
            id,
            name,
            input,
            extra,
        } => {
            let known = ["type", "call_id", "name", input_field(*kind)];
            begin(kind.call_type(), *extra, &known, reader, out);
            field(b",\"call_id\":", id, out);
            call(*kind, name, input, out);
        }
        WireBlock::Result {
            kind,
            id,
            content,
            is_error,
            extra,
        } => {
            let known = ["type", "call_id", "output"];
            begin(kind.output_type(), *extra, &known, reader, out);
            // The output of a local shell names its call in the field `id`, unless the item has an id of its own.
            let has_id = extra.is_some_and(|extra| extra.get("id").is_some());
            let call_id: &[u8] = match kind {
                CallKind::LocalShell if reader == Audience::Model || !has_id => b",\"id\":",
                _ => b",\"call_id\":",
            };
            field(call_id, id, out);
            result(*kind, content, out);
            // The provider requires the status of a patch.
            let has_status = extra.is_some_and(|extra| extra.get("status").is_some());
            if reader == Audience::Model && *kind == CallKind::ApplyPatch && !has_status {
                let failed = *is_error == Some(true);
                let status = if failed { "failed" } else { "completed" };
                field(b",\"status\":", status, out);
            }
        }
        WireBlock::Thinking { thinking, extra } => {
            out.extend_from_slice(b"{\"type\":\"reasoning\"");
            fields(*extra, &["type", "encrypted_content"], reader, out);
            // The provider requires `"summary"` in each reasoning item, if necessary as an empty array.
            let has_summary = extra.is_some_and(|extra| extra.get("summary").is_some());
            if reader == Audience::Model && !has_summary {
                out.extend_from_slice(b",\"summary\":[]");
            }
            if let Thinking::Redacted { data, .. } = thinking
                && !data.is_empty()
            {
                field(b",\"encrypted_content\":", data, out);
            }
        }
        WireBlock::Opaque(json) => {
            out.extend_from_slice(json.as_str().as_bytes());
            return;
        }
        // These blocks are content of a message.
        WireBlock::Text { .. } | WireBlock::Media { .. } => return,
    }
    out.push(b'}');
}

fn begin(
    kind: &str,
    extra: Option<&UnknownFields>,
    known: &[&str],
    reader: Audience,
    out: &mut Vec<u8>,
) {
    field(b"{\"type\":", kind, out);
    fields(extra, known, reader, out);
}

fn input_field(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Function => "arguments",
        CallKind::Custom => "input",
        CallKind::LocalShell | CallKind::Shell => "action",
        CallKind::ApplyPatch => "operation",
    }
}

fn call(kind: CallKind, name: &str, input: &ToolInput, out: &mut Vec<u8>) {
    // A snipped call has an empty object, which is not a valid action.
    let action = |valid: &'static str| match input {
        ToolInput::Object(json) if !is_empty(json) => json.as_str().to_owned(),
        _ => valid.to_owned(),
    };
    match kind {
        CallKind::Function => {
            field(b",\"name\":", name, out);
            field(b",\"arguments\":", input.as_str(), out);
        }
        CallKind::Custom => {
            field(b",\"name\":", name, out);
            field(b",\"input\":", input.as_str(), out);
        }
        CallKind::LocalShell => {
            out.extend_from_slice(b",\"action\":");
            let action = action(r#"{"type":"exec","command":[],"env":{}}"#);
            out.extend_from_slice(action.as_bytes());
        }
        CallKind::Shell => {
            out.extend_from_slice(b",\"action\":");
            out.extend_from_slice(action(r#"{"commands":[]}"#).as_bytes());
        }
        CallKind::ApplyPatch => {
            out.extend_from_slice(b",\"operation\":");
            let operation = action(r#"{"type":"update_file","path":"","diff":""}"#);
            out.extend_from_slice(operation.as_bytes());
        }
    }
}

fn is_empty(json: &RawJson) -> bool {
    json.as_str() == "{}"
}

fn result(kind: CallKind, content: &WireResult<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"output\":");
    let takes_parts = matches!(kind, CallKind::Function | CallKind::Custom);
    let text: Cow<'_, str> = match content {
        WireResult::None => "".into(),
        WireResult::Text(text) => Cow::Borrowed(text),
        WireResult::Blocks(blocks) if takes_parts => {
            write_all(WireRole::User, blocks, out);
            return;
        }
        WireResult::Blocks(blocks) => plain_text(blocks).into(),
    };
    if kind == CallKind::Shell {
        shell_output(&text, out);
    } else {
        write_str(out, &text);
    }
}

/// Returns the texts of a result. The provider accepts only text from its built-in tools.
fn plain_text(blocks: &[WireBlock<'_>]) -> String {
    let texts = blocks.iter().map(|block| match block {
        WireBlock::Text { text, .. } => &**text,
        _ => "[This tool returns only text.]",
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Writes the output of a shell: a list of streams with an outcome.
fn shell_output(text: &str, out: &mut Vec<u8>) {
    // The reader keeps a list of streams as its JSON text. Any other text, such as a marker, becomes one stream.
    if text.starts_with('[') && RawJson::parse(text).is_ok() {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    field(b"[{\"stdout\":", text, out);
    out.extend_from_slice(br#","stderr":"","outcome":{"type":"exit","exit_code":0}}]"#);
}

/// Writes unknown fields without the ones in `known`.
fn fields(extra: Option<&UnknownFields>, known: &[&str], reader: Audience, out: &mut Vec<u8>) {
    for (name, value) in extra.into_iter().flat_map(UnknownFields::iter) {
        // The provider rejects the id of an item without its reasoning, and a level may remove the reasoning. It accepts
        // encrypted reasoning and all items without ids.
        let is_id = name == "id" && reader == Audience::Model;
        if is_id || value.as_str() == "null" || known.contains(&name) {
            continue;
        }
        out.push(b',');
        write_str(out, name);
        out.push(b':');
        out.extend_from_slice(value.as_str().as_bytes());
    }
}

fn field(before: &[u8], value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(before);
    write_str(out, value);
}
