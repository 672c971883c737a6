//! Test content of agents: text of a given size that reads and compresses like source code and logs.

use std::fmt::Write as _;

use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    Block, Message, MessageInput, Role, ToolResultBlock, ToolResultContent, ToolUseBlock, block,
    tool_result_content,
};
use palimpsest_tests::say::anthropic;
use serde_json::{Value, json};

/// The model named in responses.
pub const MODEL: &str = "claude-sonnet-4-5";
/// Approximate bytes of JSON per round of a filled session.
const ROUND: usize = 1_400;

const WORDS: [&str; 40] = [
    "session", "append", "return", "config", "index", "error", "value", "result", "buffer",
    "stream", "handle", "request", "context", "message", "struct", "match", "await", "timeout",
    "assert", "expected", "found", "in", "the", "of", "at", "line", "with", "for", "test", "ok",
    "path", "src", "core", "store", "view", "window", "token", "cache", "event", "log",
];

/// Returns `bytes` bytes of text without two equal lines. The same seed gives the same text.
pub fn text(seed: u64, bytes: usize) -> String {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut out = String::with_capacity(bytes + 16);
    let mut column = 0;
    while out.len() < bytes {
        let before = out.len();
        match chance.u8(0..16) {
            0 => write!(out, "0x{:06x}", chance.u32(0..1 << 24)),
            1 => write!(out, "{}:{}", chance.u16(1..2_000), chance.u8(1..80)),
            _ => out.write_str(WORDS[chance.usize(0..WORDS.len())]),
        }
        .expect("a string takes everything");
        column += out.len() - before + 1;
        let wraps = column > 72;
        out.push(if wraps { '\n' } else { ' ' });
        column = if wraps { 0 } else { column };
    }
    out.truncate(bytes);
    out
}

/// Returns the id of a tool call.
pub fn call_id(number: usize) -> String {
    format!("toolu_{number:012}")
}

/// Returns a round as Anthropic's JSON: a tool call and its result.
pub fn round(number: usize, bytes: usize) -> [Value; 2] {
    let id = call_id(number);
    let said = format!("Let me look at part {number}.");
    let path = format!("src/part_{number}.rs");
    [
        json!({"role": "assistant", "content": [
            {"type": "text", "text": said},
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": format!("cat {path}")}}
        ]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": text(number as u64, bytes)}
        ]}),
    ]
}

/// Returns a round as one JSON payload.
pub fn round_as_json(number: usize, bytes: usize) -> Vec<MessageInput> {
    vec![anthropic(&Value::from(round(number, bytes).to_vec()))]
}

/// Returns the same round as typed messages.
pub fn round_typed(number: usize, bytes: usize) -> Vec<MessageInput> {
    let id = call_id(number);
    let input = json!({"command": format!("cat src/part_{number}.rs")});
    let call = block::Block::ToolUse(ToolUseBlock {
        tool_use_id: id.clone(),
        tool_name: "Bash".into(),
        input_json: input.to_string().into(),
        ..ToolUseBlock::default()
    });
    let result = block::Block::ToolResult(ToolResultBlock {
        tool_use_id: id,
        content: Some(content(text(number as u64, bytes))),
        ..ToolResultBlock::default()
    });
    vec![message(Role::Assistant, call), message(Role::User, result)]
}

/// Returns a tool result of text.
pub fn content(text: String) -> ToolResultContent {
    ToolResultContent {
        content: Some(tool_result_content::Content::Text(text)),
    }
}

fn message(role: Role, block: block::Block) -> MessageInput {
    let block = Block {
        block: Some(block),
        ..Block::default()
    };
    MessageInput {
        content: Some(Content::Message(Message {
            role: role.into(),
            blocks: vec![block],
            ..Message::default()
        })),
        ..MessageInput::default()
    }
}

/// Returns a conversation of about `bytes` bytes of JSON that ends with a response of the model.
pub fn conversation(seed: usize, bytes: usize) -> Vec<Value> {
    let answer =
        json!({"role": "assistant", "content": [{"type": "text", "text": "That is done."}]});
    let question = |bytes| json!({"role": "user", "content": text(seed as u64, bytes)});
    let wanted = bytes.saturating_sub(answer.to_string().len());
    if wanted < 2 * ROUND {
        return vec![question(wanted.saturating_sub(40)), answer];
    }
    let mut messages = vec![question(400)];
    let mut there = messages[0].to_string().len();
    // A round has about 300 bytes of JSON besides its result.
    while there < wanted {
        let size = (wanted - there).min(ROUND);
        let of_round = round(
            seed * 100_000 + messages.len(),
            size.saturating_sub(300).max(1),
        );
        there += of_round
            .iter()
            .map(|one| one.to_string().len())
            .sum::<usize>();
        messages.extend(of_round);
    }
    messages.push(answer);
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_texts_and_conversations_have_their_size() {
        for bytes in [0, 1, 1_000, 300_000] {
            assert_eq!(text(7, bytes).len(), bytes);
        }
        assert_ne!(text(1, 1_000), text(2, 1_000));
        for bytes in [1_000, 20_000, 300_000] {
            let messages = conversation(3, bytes);
            let there: usize = messages.iter().map(|one| one.to_string().len()).sum();
            assert!(there.abs_diff(bytes) < bytes / 10, "{there} of {bytes}");
        }
    }
}
