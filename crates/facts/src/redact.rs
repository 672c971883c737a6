//! Removal of secrets from messages before text is quoted. A secret that was shortened first would
//! no longer be recognized.

use palimpsest_types::message::{Block, Message, ResultContent, ToolInput};

/// A function that redacts the secrets in a text.
pub type Redact = fn(&str) -> String;

/// Returns a copy of a message without secrets. Thinking, media and unknown blocks are unchanged,
/// because summaries never quote them.
pub fn redact_message(message: &Message, redact: Redact) -> Message {
    let mut clean = message.clone();
    for found in &mut clean.blocks {
        block(found, redact);
    }
    clean
}

fn block(found: &mut Block, redact: Redact) {
    match found {
        Block::Text { text, .. } => *text = redact(text).into(),
        // An input that is not a JSON object after the redaction becomes text.
        Block::ToolUse(call) => call.input = ToolInput::parse(&redact(call.input.as_str())),
        Block::ToolResult(result) => match &mut result.content {
            ResultContent::None => {}
            ResultContent::Text(text) => *text = redact(text).into(),
            ResultContent::Blocks(blocks) => {
                for inner in blocks {
                    block(inner, redact);
                }
            }
        },
        _ => {}
    }
}
