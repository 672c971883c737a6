//! Builders of messages and requests.

use bytes::Bytes;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, Block, Format, Message, MessageInput, Payload, PrepareContextRequest,
    PromptPrefix, Provider, Role, Target, TextBlock, block,
};
use serde_json::{Value, json};

/// Returns a payload without changes.
pub fn payload(format: Format, json: impl Into<Bytes>) -> MessageInput {
    let payload = Payload {
        format: format.into(),
        json: json.into(),
    };
    MessageInput {
        content: Some(Content::Payload(payload)),
        ..MessageInput::default()
    }
}

/// Returns an input in Anthropic's JSON: a message, an array of messages, or a response.
pub fn anthropic(json: &Value) -> MessageInput {
    payload(Format::AnthropicMessages, json.to_string())
}

/// Returns the same kinds of input in OpenAI's JSON.
pub fn openai(json: &Value) -> MessageInput {
    payload(Format::OpenaiChat, json.to_string())
}

/// Returns a user message.
pub fn user(text: &str) -> MessageInput {
    anthropic(&json!({"role": "user", "content": text}))
}

/// Returns letters that hardly compress. The same seed gives the same letters.
pub fn noise(seed: u64, len: usize) -> String {
    // An xorshift generator never leaves the state 0, so the lowest bit is set.
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Four bits select one of 16 letters.
        char::from(b'a' + u8::try_from(state >> 60).unwrap_or(0))
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Returns a message of the model.
pub fn assistant(text: &str) -> MessageInput {
    anthropic(&json!({"role": "assistant", "content": [{"type": "text", "text": text}]}))
}

/// Returns a message of the model with one tool call.
pub fn assistant_call(id: &str) -> MessageInput {
    assistant_calls(&[id])
}

/// Returns a message of the model with several tool calls.
pub fn assistant_calls(ids: &[&str]) -> MessageInput {
    let calls: Vec<_> = ids
        .iter()
        .map(|id| json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": id}}))
        .collect();
    anthropic(&json!({"role": "assistant", "content": calls}))
}

/// Returns a tool result.
pub fn result(id: &str, text: &str) -> MessageInput {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
    anthropic(&json!({"role": "user", "content": [block]}))
}

/// Returns a typed message with one text.
pub fn typed(role: Role, text: &str) -> MessageInput {
    let block = Block {
        block: Some(block::Block::Text(TextBlock {
            text: text.to_owned(),
        })),
        ..Block::default()
    };
    let message = Message {
        role: role.into(),
        blocks: vec![block],
        ..Message::default()
    };
    MessageInput {
        content: Some(Content::Message(message)),
        ..MessageInput::default()
    }
}

/// Sets the id of a message.
pub fn with_id(id: &str, mut input: MessageInput) -> MessageInput {
    id.clone_into(&mut input.id);
    input
}

/// Returns a message id for a number.
pub fn uuid(number: u64) -> String {
    format!("01920000-0000-7000-8000-{number:012x}")
}

/// Returns an append request.
pub fn append(session: &str, messages: Vec<MessageInput>) -> AppendMessagesRequest {
    AppendMessagesRequest {
        session: session.to_owned(),
        messages,
        ..AppendMessagesRequest::default()
    }
}

/// Returns a prepare request for Anthropic.
pub fn prepare(session: &str, messages: Vec<MessageInput>) -> PrepareContextRequest {
    PrepareContextRequest {
        session: session.to_owned(),
        messages,
        ..PrepareContextRequest::default()
    }
}

/// Returns the tools of a model that can snip turns. The view then shows the ids of turns.
pub fn tools_with_snip() -> Option<PromptPrefix> {
    Some(PromptPrefix {
        tools_json: r#"[{"name":"Snip"}]"#.into(),
        ..PromptPrefix::default()
    })
}

/// Returns a target.
pub fn target(provider: Provider, model: &str) -> Target {
    Target {
        provider: provider.into(),
        model: model.to_owned(),
        ..Target::default()
    }
}

/// Returns a target with a window that a few turns of [`work`] fill. Its compaction threshold is 17,000 tokens.
pub fn small_window() -> Target {
    Target {
        window_tokens: Some(50_000),
        ..Target::default()
    }
}

/// Returns a summary in the form that a model writes, with `line` in every section.
pub fn summary(line: &str) -> String {
    let titles = ["Primary request and intent", "Current work", "Next step"];
    let section = |title: &&str| format!("## {title}\n{line} ({title}).\n");
    let sections: Vec<String> = titles.iter().map(section).collect();
    format!(
        "<analysis>hm</analysis>\n<summary>\n{}\n</summary>",
        sections.join("\n")
    )
}

/// Returns a turn of about 4,000 tokens: a user input, a call, its long result and a response.
pub fn work(number: usize) -> Vec<MessageInput> {
    let id = format!("w{number}");
    let lines: Vec<String> = (0..420)
        .map(|line| format!("{number} line {line} of a listing"))
        .collect();
    vec![
        user(&format!("please do the step {number} of the plan")),
        assistant_calls(&[&id]),
        result(&id, &lines.join("\n")),
        assistant(&format!(
            "the step {number} is done, and all its checks pass"
        )),
    ]
}
