//! Names in a conversation: paths of files, and identifiers of programs.
//!
//! A conversation contains hundreds of names, and an agent that continues it needs some of them again. A summary has space
//! for the most probable ones. [`NameCounts`] collects the names of messages, and `score` orders them.

mod scan;
mod score;

use std::collections::{BTreeMap, HashSet};

use palimpsest_types::message::{Block, Message, ResultContent, Role, ToolInput};
use serde_json::Value;

use self::scan::scan;
use self::score::score;
use crate::memory::fact::{KnownName, NameKind, OtherNames};
use crate::phrases::relative_path;

/// The maximum number of names of a run of messages. Beyond it, those with the lowest scores are dropped.
const MAX_COUNTED: usize = 4_096;
/// The maximum number of names that session memory remembers, including those that it does not show.
const MAX_REMEMBERED: usize = 128;
/// The maximum length of a text that is searched for names, in bytes. Of a longer text, both ends are searched.
const MAX_TEXT: usize = 64 * 1024;
/// The maximum length of all shown names, in characters.
const MAX_SHOWN_CHARS: usize = 1_500;
/// The signs between two shown names.
const SEPARATOR_CHARS: usize = 4;

/// The names of a run of messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameCounts {
    names: BTreeMap<Box<str>, NameCount>,
    /// The number of messages.
    messages: u32,
}

/// The occurrences of a name.
#[derive(Debug, Clone, Copy)]
struct NameCount {
    kind: NameKind,
    /// The number of the model's messages with the name in their texts.
    said: u32,
    /// The number of the last message with the name, counted from 1.
    last: u32,
    /// The number of the last of the model's messages that was counted in `said`.
    last_said: u32,
}

impl NameCounts {
    /// Adds the names of the next message. `root` is the working directory.
    pub(crate) fn record(&mut self, message: &Message, root: Option<&str>) {
        self.messages += 1;
        for block in &message.blocks {
            self.record_block(block, message.role, root);
        }
        if self.names.len() > MAX_COUNTED {
            self.drop_half();
        }
    }

    fn record_block(&mut self, block: &Block, role: Role, root: Option<&str>) {
        match block {
            Block::Text { text, .. } => self.record_text(text, role == Role::Assistant, root),
            Block::ToolUse(call) => match &call.input {
                ToolInput::Text(text) => self.record_text(text, false, root),
                ToolInput::Object(json) => {
                    let value = serde_json::from_str(json.as_str()).unwrap_or_default();
                    self.record_value(&value, root);
                }
            },
            Block::ToolResult(result) => match &result.content {
                ResultContent::None => {}
                ResultContent::Text(text) => self.record_text(text, false, root),
                ResultContent::Blocks(blocks) => {
                    for block in blocks {
                        if let Block::Text { text, .. } = block {
                            self.record_text(text, false, root);
                        }
                    }
                }
            },
            _ => {}
        }
    }

    /// Adds the names in the texts of a JSON value, without their escapes.
    fn record_value(&mut self, value: &Value, root: Option<&str>) {
        match value {
            Value::String(text) => self.record_text(text, false, root),
            Value::Array(values) => values
                .iter()
                .for_each(|value| self.record_value(value, root)),
            Value::Object(fields) => {
                // The status of a work item is a word of the tool.
                let values = fields.iter().filter(|(name, _)| *name != "status");
                values.for_each(|(_, value)| self.record_value(value, root));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn record_text(&mut self, text: &str, is_said: bool, root: Option<&str>) {
        let number = self.messages;
        for part in both_ends(text) {
            scan(part, root, |kind, name| {
                // Most names are known, so the text is copied only for a new one.
                if !self.names.contains_key(name) {
                    let new = NameCount {
                        kind,
                        said: 0,
                        last: number,
                        last_said: 0,
                    };
                    self.names.insert(name.into(), new);
                }
                if let Some(count) = self.names.get_mut(name) {
                    count.last = number;
                    if is_said && count.last_said < number {
                        count.last_said = number;
                        count.said += 1;
                    }
                }
            });
        }
    }

    fn drop_half(&mut self) {
        let score_of =
            |count: &NameCount| score(count.kind, count.said, self.messages - count.last);
        let mut scores: Vec<i64> = self.names.values().map(score_of).collect();
        let middle = scores.len() / 2;
        let (_, least, _) = scores.select_nth_unstable(middle);
        let least = *least;
        let messages = self.messages;
        self.names
            .retain(|_, count| score(count.kind, count.said, messages - count.last) > least);
    }
}

/// The rest of the memory to which names are added.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryRest<'a> {
    /// The text. A name that it contains is remembered and not shown.
    pub(crate) text: &'a str,
    /// The directory to which paths are relative.
    pub(crate) root: Option<&'a str>,
}

/// Returns the names after an update with those of new messages.
pub(crate) fn update(
    previous: Option<OtherNames>,
    new: &NameCounts,
    rest: MemoryRest<'_>,
) -> OtherNames {
    let previous = previous.unwrap_or_default();
    let before = previous.messages;
    let mut names: BTreeMap<Box<str>, KnownName> = previous
        .names
        .into_iter()
        .map(|known| (known.name.clone(), known))
        .collect();
    for (name, count) in &new.names {
        // The messages of a later update may lack the directory. A file directly in it has no folder.
        let name: Box<str> = relative_path(name, rest.root).into();
        if count.kind == NameKind::Path && !name.contains('/') {
            continue;
        }
        let known = names.entry(name.clone()).or_insert(KnownName {
            name,
            kind: count.kind,
            said: 0,
            last: 0,
            is_shown: false,
        });
        known.said = known.said.saturating_add(count.said);
        known.last = before.saturating_add(count.last);
    }
    let messages = before.saturating_add(new.messages);
    let mut names: Vec<KnownName> = names.into_values().collect();
    let score_of =
        |known: &KnownName| score(known.kind, known.said, messages.saturating_sub(known.last));
    // The sort is stable and the names are in alphabetical order, so the result is always the same.
    names.sort_by_cached_key(|known| std::cmp::Reverse(score_of(known)));
    names.truncate(MAX_REMEMBERED);
    let mut contained = HashSet::new();
    scan(rest.text, rest.root, |_, name| {
        contained.insert(name);
    });
    let mut left = MAX_SHOWN_CHARS;
    for known in &mut names {
        let chars = known.name.chars().count() + SEPARATOR_CHARS;
        known.is_shown = chars <= left && !contained.contains(&*known.name);
        if known.is_shown {
            left -= chars;
        }
    }
    OtherNames { names, messages }
}

/// Returns the parts of a text that are searched.
fn both_ends(text: &str) -> [&str; 2] {
    if text.len() <= MAX_TEXT {
        return [text, ""];
    }
    let head = text.floor_char_boundary(MAX_TEXT / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_TEXT / 2);
    [&text[..head], &text[tail..]]
}

#[cfg(test)]
mod tests {
    use palimpsest_types::ids::MessageId;

    use super::*;

    fn said(role: Role, text: &str) -> Message {
        Message::new(
            MessageId::new(uuid::Uuid::nil()),
            role,
            vec![Block::text(text)],
        )
    }

    fn counts(messages: &[Message]) -> NameCounts {
        let mut counts = NameCounts::default();
        for message in messages {
            counts.record(message, None);
        }
        counts
    }

    fn shown(names: &OtherNames) -> Vec<&str> {
        let shown = names.names.iter().filter(|known| known.is_shown);
        shown.map(|known| &*known.name).collect()
    }

    #[test]
    fn recent_paths_come_first_and_named_identifiers_follow() {
        let first = counts(&[
            said(Role::User, "src/old.rs and someName"),
            said(Role::Assistant, "I look at otherName"),
            said(Role::User, "src/new.rs"),
        ]);
        let names = update(None, &first, MemoryRest::default());
        assert_eq!(
            shown(&names),
            ["src/new.rs", "src/old.rs", "otherName", "someName"]
        );
        assert_eq!(names.messages, 3);
        // A later update continues the counts.
        let later = counts(&[said(Role::User, "/w/src/old.rs again")]);
        let rest = MemoryRest {
            text: "the text names otherName, and someNames",
            root: Some("/w"),
        };
        let names = update(Some(names), &later, rest);
        assert_eq!(shown(&names), ["src/old.rs", "src/new.rs", "someName"]);
        assert_eq!(names.names.len(), 4);
    }

    #[test]
    fn the_number_and_the_length_of_names_are_limited() {
        let text: Vec<String> = (0..6_000).map(|n| format!("lib/file_{n}.rs")).collect();
        let counted = counts(&[said(Role::User, &text.join(" ")), said(Role::User, "more")]);
        assert!(counted.names.len() <= MAX_COUNTED);
        let names = update(None, &counted, MemoryRest::default());
        assert_eq!(names.names.len(), MAX_REMEMBERED);
        let length: usize = shown(&names)
            .iter()
            .map(|name| name.len() + SEPARATOR_CHARS)
            .sum();
        assert!(
            (MAX_SHOWN_CHARS - 40..=MAX_SHOWN_CHARS).contains(&length),
            "{length}"
        );
    }
}
