//! The format and the extent of an array that arrives without its request.

use std::borrow::Cow;
use std::collections::HashSet;

use palimpsest_core::message::{Block, Message, Role};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::reading::ResponseApi;

/// The part of a conversation that an array contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The whole conversation, as a request to a model contains it.
    Whole,
    /// Some of its messages. The caller puts each of them back to its place, so their number must stay.
    Part,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
}

/// The types of blocks that only Anthropic's Messages has.
const BLOCKS_OF_MESSAGES: [&str; 8] = [
    "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document",
    "server_tool_use", "search_result",
];

/// Returns the API of an array. Arrays of text alone are equal in both APIs, so the answer for them does not matter.
pub(super) fn api(array: &str, has_system: bool) -> ResponseApi {
    let is_of_messages = has_system || {
        let rows: Vec<Row<'_>> = serde_json::from_str(array).unwrap_or_default();
        rows.iter()
            .any(|row| row.content.is_some_and(has_own_block))
    };
    if is_of_messages {
        ResponseApi::Messages
    } else {
        ResponseApi::Chat
    }
}

fn has_own_block(content: &RawValue) -> bool {
    if !content.get().starts_with('[') {
        return false;
    }
    let blocks: Vec<Typed<'_>> = serde_json::from_str(content.get()).unwrap_or_default();
    let types = blocks.iter().filter_map(|block| block.r#type.as_deref());
    types
        .into_iter()
        .any(|name| BLOCKS_OF_MESSAGES.contains(&name))
}

/// Returns the extent of an array.
///
/// LiteLLM keeps the messages of the model, the last user message and others back, and requires as many messages as it
/// sent. So an array that no provider would accept as a request is a part of a conversation. An array without a message
/// of the model counts as a part too: nothing in it can be summarized.
pub(super) fn extent(messages: &[Message]) -> Extent {
    let conversation = messages
        .iter()
        .skip_while(|message| message.role.is_system());
    let mut open: HashSet<&str> = HashSet::new();
    let mut answered_by_model = false;
    let mut last = None;
    for message in conversation {
        // A message of the model in front of the conversation answers nothing.
        if last.is_none() && message.role == Role::Assistant {
            return Extent::Part;
        }
        // The results of all calls come before the next message.
        let has_result = |block: &Block| matches!(block, Block::ToolResult(_));
        if !open.is_empty() && !message.blocks.iter().any(has_result) {
            return Extent::Part;
        }
        for block in &message.blocks {
            match block {
                Block::ToolUse(call) => {
                    open.insert(&call.id);
                }
                Block::ToolResult(result) if !open.remove(&*result.tool_use_id) => {
                    return Extent::Part;
                }
                _ => {}
            }
        }
        answered_by_model |= message.role == Role::Assistant;
        last = Some(message.role);
    }
    if answered_by_model && open.is_empty() && last != Some(Role::Assistant) {
        Extent::Whole
    } else {
        Extent::Part
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::codec;
    use palimpsest_core::ids::MessageId;
    use palimpsest_core::view::Provider;
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(rows: &Value, expected: Extent) {
        let text = rows.to_string();
        let mut number = 0;
        let mut next = || {
            number += 1;
            MessageId::parse(&format!("{number:032x}")).unwrap()
        };
        let provider = match api(&text, false) {
            ResponseApi::Messages => Provider::Anthropic,
            _ => Provider::OpenAi,
        };
        let messages = codec::read(provider, text.as_bytes(), &mut next).unwrap();
        assert_eq!(extent(&messages), expected, "{rows}");
    }

    fn call(id: &str) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "r"})
    }

    #[test]
    fn a_request_to_a_model_is_a_whole_conversation() {
        let (user, system) = (
            json!({"role": "user", "content": "u"}),
            json!({"role": "system", "content": "s"}),
        );
        let answer = json!({"role": "assistant", "content": "a"});
        check(&json!([system, user, answer, user]), Extent::Whole);
        check(&json!([user, call("1"), result("1")]), Extent::Whole);
        check(
            &json!([user, call("1"), result("1"), answer, user]),
            Extent::Whole,
        );
        let messages = json!([
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
        ]);
        check(&messages, Extent::Whole);
    }

    #[test]
    fn an_array_with_gaps_is_a_part() {
        let user = json!({"role": "user", "content": "u"});
        let answer = json!({"role": "assistant", "content": "a"});
        check(&json!([]), Extent::Part);
        check(&json!([user]), Extent::Part);
        // LiteLLM keeps messages of the model back, so results arrive without their calls.
        check(&json!([result("1"), result("2")]), Extent::Part);
        check(&json!([user, result("1")]), Extent::Part);
        check(&json!([call("1"), result("1")]), Extent::Part);
        check(&json!([user, answer]), Extent::Part);
        check(&json!([user, call("1"), user]), Extent::Part);
        check(&json!([user, call("1")]), Extent::Part);
    }
}
