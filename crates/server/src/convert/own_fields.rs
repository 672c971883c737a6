//! The fields of a provider's JSON that have a typed counterpart. `extra_json` must not contain them.

use palimpsest_core::json::RawJson;
use palimpsest_core::message::{CallKind, MessageOrigin};

/// The typed blocks that can have unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnBlock {
    Text,
    Image,
    Document,
    ToolUse,
    ToolResult,
    Thinking,
    RedactedThinking,
}

/// The fields of one block or message that have a typed counterpart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnFields {
    names: &'static [&'static str],
    /// The values that the field `type` can have in `extra_json`, because no typed field can state them.
    types: Vec<&'static str>,
}

impl OwnFields {
    /// Returns true if the field has a typed counterpart.
    pub(super) fn includes(&self, name: &str, value: &RawJson) -> bool {
        if name == "type" {
            // The raw JSON of a string still has its quotes: `"custom"`.
            let text = value.as_str().trim_matches('"');
            return !self.types.contains(&text);
        }
        self.names.contains(&name)
    }
}

/// Returns the fields of a message.
pub(super) fn of_message(origin: MessageOrigin) -> OwnFields {
    OwnFields {
        names: match origin {
            // The id of an item is not the id of a response.
            MessageOrigin::OpenAiResponses => &["role", "content"],
            MessageOrigin::Typed | MessageOrigin::Anthropic | MessageOrigin::OpenAi => &[
                "role", "content", "id", "model", "usage", "refusal", "tool_calls", "tool_call_id",
            ],
        },
        types: Vec::new(),
    }
}

/// Returns the fields of a block.
pub(super) fn of_block(block: OwnBlock, origin: MessageOrigin) -> OwnFields {
    if origin == MessageOrigin::OpenAiResponses {
        return of_item(block);
    }
    OwnFields {
        names: match block {
            OwnBlock::Text => &["text"],
            OwnBlock::Image => &["source", "image_url", "url"],
            OwnBlock::Document => &["source", "title", "context"],
            OwnBlock::ToolUse => &["id", "name", "input", "function", "custom"],
            OwnBlock::ToolResult => &["tool_use_id", "content", "is_error"],
            OwnBlock::Thinking => &["thinking", "signature"],
            OwnBlock::RedactedThinking => &["data"],
        },
        types: match (block, origin) {
            (OwnBlock::ToolUse, MessageOrigin::OpenAi) => vec!["custom"],
            _ => Vec::new(),
        },
    }
}

/// Returns the fields of an item or a part of OpenAI's Responses API.
fn of_item(block: OwnBlock) -> OwnFields {
    // A call without a type calls a function.
    let types_of = |name: fn(CallKind) -> &'static str| {
        let kinds = CallKind::ALL.into_iter();
        kinds
            .filter(|kind| *kind != CallKind::Function)
            .map(name)
            .collect()
    };
    let (names, types): (&'static [_], _) = match block {
        OwnBlock::Text => (&["text"], vec!["refusal"]),
        OwnBlock::Image => (&["image_url"], Vec::new()),
        OwnBlock::Document => (&["file_url", "file_data", "title", "context"], Vec::new()),
        OwnBlock::ToolUse => (
            &[
                "call_id", "name", "arguments", "input", "action", "operation",
            ],
            types_of(CallKind::call_type),
        ),
        OwnBlock::ToolResult => (&["call_id", "output"], types_of(CallKind::output_type)),
        OwnBlock::Thinking | OwnBlock::RedactedThinking => (&["encrypted_content"], Vec::new()),
    };
    OwnFields { names, types }
}
