//! Short ways to say messages and requests.

use bytes::Bytes;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, Block, Format, Message, MessageInput, Payload, PrepareContextRequest,
    Provider, Role, Target, TextBlock, block,
};
use serde_json::{Value, json};

/// A payload, as it is.
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

/// A message, an array of them or a response, in Anthropic's JSON.
pub fn anthropic(json: &Value) -> MessageInput {
    payload(Format::AnthropicMessages, json.to_string())
}

/// The same in `OpenAI`'s.
pub fn openai(json: &Value) -> MessageInput {
    payload(Format::OpenaiChat, json.to_string())
}

/// What a user says.
pub fn user(text: &str) -> MessageInput {
    anthropic(&json!({"role": "user", "content": text}))
}

/// Letters that hardly compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + u8::try_from(state >> 60).unwrap_or(0))
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// What the model says.
pub fn assistant(text: &str) -> MessageInput {
    anthropic(&json!({"role": "assistant", "content": [{"type": "text", "text": text}]}))
}

/// A call that the model makes.
pub fn assistant_call(id: &str) -> MessageInput {
    assistant_calls(&[id])
}

/// Calls that the model makes at once.
pub fn assistant_calls(ids: &[&str]) -> MessageInput {
    let calls: Vec<_> = ids
        .iter()
        .map(|id| json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": id}}))
        .collect();
    anthropic(&json!({"role": "assistant", "content": calls}))
}

/// What a tool returned.
pub fn result(id: &str, text: &str) -> MessageInput {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
    anthropic(&json!({"role": "user", "content": [block]}))
}

/// A typed message of one text.
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

/// The same message with an id.
pub fn with_id(id: &str, mut input: MessageInput) -> MessageInput {
    id.clone_into(&mut input.id);
    input
}

/// A message id made of a number.
pub fn uuid(number: u64) -> String {
    format!("01920000-0000-7000-8000-{number:012x}")
}

/// An append.
pub fn append(session: &str, messages: Vec<MessageInput>) -> AppendMessagesRequest {
    AppendMessagesRequest {
        session: session.to_owned(),
        messages,
        ..AppendMessagesRequest::default()
    }
}

/// A prepare for Anthropic.
pub fn prepare(session: &str, messages: Vec<MessageInput>) -> PrepareContextRequest {
    PrepareContextRequest {
        session: session.to_owned(),
        messages,
        ..PrepareContextRequest::default()
    }
}

/// A target.
pub fn target(provider: Provider, model: &str) -> Target {
    Target {
        provider: provider.into(),
        model: model.to_owned(),
        ..Target::default()
    }
}

/// A target whose window a few turns of [`work`] fill: a compaction is due at 17,000 tokens.
pub fn small_window() -> Target {
    Target {
        window_tokens: Some(50_000),
        ..Target::default()
    }
}

/// A summary as a model writes one, with a line of its own in every section.
pub fn summary(line: &str) -> String {
    let titles = ["Primary request and intent", "Current work", "Next step"];
    let section = |title: &&str| format!("## {title}\n{line} ({title}).\n");
    let sections: Vec<String> = titles.iter().map(section).collect();
    format!(
        "<analysis>hm</analysis>\n<summary>\n{}\n</summary>",
        sections.join("\n")
    )
}

/// A turn of about 4,000 tokens: a user's request, a call, its long result and the answer.
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
