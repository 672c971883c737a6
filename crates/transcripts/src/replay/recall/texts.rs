//! Messages and views as texts.

use palimpsest_core::message::{Message, ToolInput};
use palimpsest_core::session::View;
use palimpsest_core::view::{WireBlock, WireResult};
use serde_json::Value;

/// Appends the text of a message: texts, inputs and outputs of calls, each on lines of its own. Thinking is left out,
/// because providers remove it from earlier turns.
pub(super) fn push_message(message: &Message, out: &mut String) {
    for block in &message.blocks {
        push_block(&WireBlock::from_block(block), out);
    }
}

/// Returns a view as text.
pub(super) fn view_text(view: &View<'_>) -> String {
    let mut out = String::new();
    let messages = view.system.iter().chain(&view.messages);
    for block in messages.flat_map(|message| &message.blocks) {
        push_block(block, &mut out);
    }
    out
}

fn push_block(block: &WireBlock<'_>, out: &mut String) {
    match block {
        WireBlock::Text { text, .. } => push_line(text, out),
        WireBlock::Call { name, input, .. } => push_input(name, input, out),
        WireBlock::Result { content, .. } => match content {
            WireResult::None => {}
            WireResult::Text(text) => push_line(text, out),
            WireResult::Blocks(blocks) => {
                for block in blocks {
                    push_block(block, out);
                }
            }
        },
        WireBlock::Opaque(_) | WireBlock::Media { .. } | WireBlock::Thinking { .. } => {}
    }
}

/// Appends the name of a tool and the values of a call's input.
fn push_input(name: &str, input: &ToolInput, out: &mut String) {
    push_line(name, out);
    match input {
        ToolInput::Text(text) => push_line(text, out),
        ToolInput::Object(json) => {
            let parsed = serde_json::from_str(json.as_str());
            push_values(&parsed.unwrap_or_default(), out);
        }
    }
}

/// Appends the texts in a JSON value, without escapes.
fn push_values(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => push_line(text, out),
        Value::Array(values) => values.iter().for_each(|value| push_values(value, out)),
        Value::Object(fields) => fields.values().for_each(|value| push_values(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn push_line(text: &str, out: &mut String) {
    out.push_str(text);
    out.push('\n');
}

/// Returns the end of a text with at most `chars` characters.
pub(super) fn tail(text: &str, chars: usize) -> &str {
    let first = chars.checked_sub(1);
    let start = first.and_then(|last| text.char_indices().rev().nth(last));
    match (first, start) {
        (None, _) => "",
        (Some(_), Some((start, _))) => &text[start..],
        (Some(_), None) => text,
    }
}
