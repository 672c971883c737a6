//! Messages without their secrets. Secrets leave before anything is quoted: the form of one that was cut
//! short is not recognised any more.

use palimpsest_types::message::{Block, Message, ResultContent, ToolInput};

/// Takes secrets out of a text.
pub type Redact = fn(&str) -> String;

/// A copy of a message without secrets. Thoughts, pictures and what is unknown are never noted.
pub fn redacted(message: &Message, redact: Redact) -> Message {
    let mut clean = message.clone();
    for found in &mut clean.blocks {
        block(found, redact);
    }
    clean
}

fn block(found: &mut Block, redact: Redact) {
    match found {
        Block::Text { text, .. } => *text = redact(text).into(),
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
