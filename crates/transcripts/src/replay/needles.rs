//! Facts that a model may need again, derived from the structure of messages. These are paths and
//! commands in tool inputs, first lines of failures, and first sentences of user inputs.

use std::collections::BTreeMap;

use palimpsest_core::json;
use palimpsest_core::message::{Block, Message, ResultContent, Role, ToolInput, ToolResult};
use palimpsest_core::view::{WireBlock, WireResult};
use palimpsest_facts::tool_action::{COMMAND_FIELDS, PATH_FIELDS};
use palimpsest_facts::user_text;
use serde_json::value::RawValue;

use super::probe_kind::ProbeKind;

/// The maximum length of a search text in characters. Longer sentences and lines are cut.
const MAX_CHARS: usize = 200;

/// A text to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needle {
    pub(super) text: Box<str>,
    /// The text as it appears inside a JSON string.
    json: Box<str>,
}

impl Needle {
    fn new(text: &str) -> Option<Self> {
        let text = shortened(text.trim());
        let mut json = Vec::new();
        json::write_str(&mut json, text);
        let json = String::from_utf8(json).unwrap_or_default();
        // A single letter occurs in almost every text.
        (text.len() > 1).then(|| Self {
            text: text.into(),
            json: inside(&json).into(),
        })
    }

    /// Creates a needle from a string in a tool's input. The original JSON escapes are kept.
    fn of_input(raw: &RawValue) -> Option<Self> {
        let text: String = serde_json::from_str(raw.get()).ok()?;
        (text.trim().len() > 1).then(|| Self {
            text: text.into(),
            json: inside(raw.get()).into(),
        })
    }

    /// Returns true if a text contains the needle. `is_json` selects the escaped form.
    pub(super) fn is_in(&self, text: &str, is_json: bool) -> bool {
        text.contains(if is_json { &*self.json } else { &*self.text })
    }

    /// Returns true if a block shows the needle.
    pub(super) fn is_shown_in(&self, block: &WireBlock<'_>) -> bool {
        match block {
            WireBlock::Text { text, .. } => self.is_in(text, false),
            WireBlock::Call { input, .. } => {
                // An object keeps its JSON escapes. Any other input is plain text.
                self.is_in(input.as_str(), matches!(input, ToolInput::Object(_)))
            }
            WireBlock::Result { content, .. } => match content {
                WireResult::None => false,
                WireResult::Text(text) => self.is_in(text, false),
                WireResult::Blocks(blocks) => blocks.iter().any(|block| self.is_shown_in(block)),
            },
            WireBlock::Opaque(json) => self.is_in(json.as_str(), true),
            WireBlock::Media { .. } | WireBlock::Thinking { .. } => false,
        }
    }
}

/// Returns the facts of a message with the index of the block that contains each.
pub(super) fn facts(message: &Message) -> Vec<(u16, ProbeKind, Needle)> {
    let mut facts = Vec::new();
    let mut spoken = false;
    for (at, block) in (0_u16..).zip(&message.blocks) {
        match (message.role, block) {
            (Role::Assistant, Block::ToolUse(call)) => {
                let of_input = input_needles(&call.input).into_iter();
                facts.extend(of_input.map(|(kind, needle)| (at, kind, needle)));
            }
            (Role::User, Block::ToolResult(result)) if result.is_error == Some(true) => {
                let line = failure(result).and_then(Needle::new);
                facts.extend(line.map(|line| (at, ProbeKind::Error, line)));
            }
            (Role::User, Block::Text { .. }) if !spoken && !block.is_blank() => {
                let words = user_text(message).filter(|_| is_first_user_text(block, message));
                spoken = words.is_some();
                let sentence = words.and_then(|words| Needle::new(first_sentence(&words)));
                facts.extend(sentence.map(|sentence| (at, ProbeKind::Sentence, sentence)));
            }
            _ => {}
        }
    }
    facts
}

/// Returns true if a block contains the first sentence of the person's own words, and not only
/// generated text.
fn is_first_user_text(block: &Block, message: &Message) -> bool {
    let (Block::Text { text, .. }, Some(words)) = (block, user_text(message)) else {
        return false;
    };
    text.contains(first_sentence(&words))
}

fn input_needles(input: &ToolInput) -> Vec<(ProbeKind, Needle)> {
    let ToolInput::Object(json) = input else {
        return Vec::new();
    };
    let fields: BTreeMap<String, &RawValue> =
        serde_json::from_str(json.as_str()).unwrap_or_default();
    let named = |names: &[&str], kind| {
        let found = names.iter().filter_map(|name| fields.get(*name));
        found
            .filter_map(|raw| Some((kind, Needle::of_input(raw)?)))
            .collect::<Vec<_>>()
    };
    let mut found = named(&PATH_FIELDS, ProbeKind::Path);
    found.extend(named(&COMMAND_FIELDS, ProbeKind::Command));
    found
}

/// Returns the first line of a failed tool result.
fn failure(result: &ToolResult) -> Option<&str> {
    let said = match &result.content {
        ResultContent::None => None,
        ResultContent::Text(text) => Some(&**text),
        ResultContent::Blocks(blocks) => blocks.iter().find_map(|block| match block {
            Block::Text { text, .. } => Some(&**text),
            _ => None,
        }),
    };
    said?.lines().find(|line| !line.trim().is_empty())
}

fn first_sentence(text: &str) -> &str {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    let end = [". ", "! ", "? "]
        .iter()
        .filter_map(|end| line.find(end))
        .min();
    // The mark at `end` is one byte, and belongs to the sentence.
    end.map_or(line, |end| &line[..=end])
}

fn shortened(text: &str) -> &str {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Returns the content between the quotes.
fn inside(json: &str) -> &str {
    json.get(1..json.len().saturating_sub(1))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palimpsest_core::ids::MessageId;
    use palimpsest_core::json::UnknownFields;
    use palimpsest_core::message::ToolUse;

    #[track_caller]
    fn check(role: Role, block: Block, expected: &[(ProbeKind, &str)]) {
        let message = Message::new(MessageId::new(uuid::Uuid::nil()), role, vec![block]);
        let found = facts(&message);
        let found: Vec<_> = found
            .iter()
            .map(|(_, kind, needle)| (*kind, &*needle.text))
            .collect();
        assert_eq!(found, expected);
    }

    fn call(input: &str) -> Block {
        Block::ToolUse(ToolUse {
            id: "x".into(),
            name: "t".into(),
            input: ToolInput::parse(input),
            extra: UnknownFields::default(),
        })
    }

    fn result(content: ResultContent, is_error: Option<bool>) -> Block {
        Block::ToolResult(ToolResult {
            tool_use_id: "x".into(),
            content,
            is_error,
            extra: UnknownFields::default(),
        })
    }

    #[test]
    fn tool_inputs_contain_paths_and_commands() {
        use ProbeKind::{Command, Path};
        let read = r#"{"file_path":"/a/\u0062.rs","limit":3}"#;
        check(Role::Assistant, call(read), &[(Path, "/a/b.rs")]);
        let bash = r#"{"command":"echo \"x\"\nls","path":7}"#;
        check(Role::Assistant, call(bash), &[(Command, "echo \"x\"\nls")]);
        check(Role::Assistant, call(r#"{"command":" "}"#), &[]);
        check(Role::Assistant, call("no object"), &[]);
        check(Role::User, call(read), &[]);
    }

    #[test]
    fn a_failure_is_probed_by_its_first_line() {
        let text = || ResultContent::Text("\n  error[E0308]: no \nmore".into());
        let blocks = ResultContent::Blocks(vec![Block::text("gone\nmore")]);
        let error = ProbeKind::Error;
        check(
            Role::User,
            result(text(), Some(true)),
            &[(error, "error[E0308]: no")],
        );
        check(Role::User, result(blocks, Some(true)), &[(error, "gone")]);
        check(Role::User, result(text(), None), &[]);
    }

    #[test]
    fn a_user_message_is_probed_by_a_sentence() {
        let said = ProbeKind::Sentence;
        let check = |text: &str, expected| {
            check(Role::User, Block::text(text), &[(said, expected)]);
        };
        check("Fix v1.2 now. Then rest.", "Fix v1.2 now.");
        check("\nWhy?\nBecause.", "Why?");
        check(&"ä".repeat(300), &"ä".repeat(200));
    }

    #[test]
    fn a_needle_is_found_in_any_escaping() {
        let block = call(r#"{"command":"a \u0026 b"}"#);
        let Block::ToolUse(tool) = &block else {
            panic!("{block:?}");
        };
        let needles = input_needles(&tool.input);
        let (_, needle) = &needles[0];
        assert!(needle.is_shown_in(&WireBlock::from_block(&block)));
        assert!(needle.is_shown_in(&WireBlock::from_block(&Block::text("ran a & b"))));
        assert!(!needle.is_shown_in(&WireBlock::from_block(&call(r#"{"command":"a"}"#))));
    }
}
