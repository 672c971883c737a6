//! Names in a conversation: paths of files, and identifiers of programs.
//!
//! A conversation contains hundreds of names, and an agent that continues it needs some of them again. A summary has space
//! for the most probable ones. [`Names`] collects the names of messages with their ranks.
//!
//! The rank of a mention is the number of its message, counted from 1. [`OFFSET`] is added for paths, and for identifiers
//! in the model's words and searches. The rank of a name is the highest rank of its mentions. As the rank of a mention
//! never changes, names with low ranks can be dropped at any time without an effect on the order of the others. So the
//! result does not depend on the number of messages in an update.

mod omitted;
mod scan;

use std::collections::{HashMap, HashSet};

use palimpsest_types::message::{Block, Message, ResultContent, Role, ToolInput};
use serde_json::Value;

pub use self::omitted::omitted_names;
use self::scan::scan;
use crate::memory::fact::{KnownName, NameKind, OtherNames};
use crate::phrases::relative_path;

/// An identifier in another text ranks like a path that was mentioned this number of messages earlier. The example `fit_names` of
/// `palimpsest-transcripts` prints the results of other values.
pub const OFFSET: u32 = 500;
/// The maximum number of names of a run of messages. Beyond it, those with the lowest ranks are dropped.
const MAX_COLLECTED: usize = 4_096;
/// The maximum number of names that session memory remembers, including those that it does not show.
const MAX_REMEMBERED: usize = 128;
/// The maximum length of a text that is searched for names, in bytes. Of a longer text, both ends are searched.
const MAX_TEXT: usize = 64 * 1024;
/// The maximum length of all shown names, in characters.
const MAX_SHOWN_CHARS: usize = 1_500;
/// The signs between two shown names.
const SEPARATOR_CHARS: usize = 4;

/// The beginning of the line that shows the names.
pub const OTHER_NAMES_LEAD: &str = "Other names so far, the likeliest first: ";

/// Fields of calls that contain the pattern of a search.
const SEARCH_FIELDS: [&str; 3] = ["pattern", "query", "regex"];

/// The names of a run of messages.
#[derive(Debug, Clone)]
pub struct Names {
    offset: u32,
    ranked: HashMap<Box<str>, RankedName>,
    /// The number of messages.
    messages: u32,
}

#[derive(Debug, Clone, Copy)]
struct RankedName {
    kind: NameKind,
    rank: u32,
}

impl Default for Names {
    fn default() -> Self {
        Self::with_offset(OFFSET)
    }
}

impl Names {
    /// Returns a collection without names that uses another offset.
    pub fn with_offset(offset: u32) -> Self {
        Self {
            offset,
            ranked: HashMap::new(),
            messages: 0,
        }
    }

    /// Adds the names of the next message.
    pub fn record(&mut self, message: &Message) {
        self.messages += 1;
        let is_from_model = message.role == Role::Assistant;
        for block in &message.blocks {
            self.record_block(block, is_from_model);
        }
        if self.ranked.len() > MAX_COLLECTED {
            self.drop_lowest();
        }
    }

    /// Returns true if no message was recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    fn record_block(&mut self, block: &Block, is_from_model: bool) {
        match block {
            Block::Text { text, .. } => self.record_text(text, is_from_model),
            Block::ToolUse(call) => match &call.input {
                ToolInput::Text(text) => self.record_text(text, false),
                ToolInput::Object(json) => {
                    let value = serde_json::from_str(json.as_str()).unwrap_or_default();
                    self.record_value(&value, false);
                }
            },
            Block::ToolResult(result) => match &result.content {
                ResultContent::None => {}
                ResultContent::Text(text) => self.record_text(text, false),
                ResultContent::Blocks(blocks) => {
                    for block in blocks {
                        if let Block::Text { text, .. } = block {
                            self.record_text(text, false);
                        }
                    }
                }
            },
            _ => {}
        }
    }

    /// Adds the names in the texts of a JSON value, without their escapes.
    fn record_value(&mut self, value: &Value, is_search: bool) {
        match value {
            Value::String(text) => self.record_text(text, is_search),
            Value::Array(values) => {
                for value in values {
                    self.record_value(value, is_search);
                }
            }
            Value::Object(fields) => {
                // The status of a work item is a word of the tool.
                let values = fields.iter().filter(|(name, _)| *name != "status");
                values.for_each(|(name, value)| {
                    self.record_value(value, SEARCH_FIELDS.contains(&&**name));
                });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// `is_from_model` is true for the model's words and searches.
    fn record_text(&mut self, text: &str, is_from_model: bool) {
        for part in both_ends(text) {
            scan(part, |kind, name| {
                let has_offset = is_from_model || kind == NameKind::Path;
                let offset = if has_offset { self.offset } else { 0 };
                let rank = self.messages.saturating_add(offset);
                // Most names are known, so the text is copied only for a new one.
                if let Some(known) = self.ranked.get_mut(name) {
                    known.rank = known.rank.max(rank);
                } else {
                    self.ranked.insert(name.into(), RankedName { kind, rank });
                }
            });
        }
    }

    /// Drops half of the names.
    fn drop_lowest(&mut self) {
        let mut names: Vec<_> = self.ranked.drain().collect();
        keep_highest(&mut names, MAX_COLLECTED / 2);
        self.ranked.extend(names);
    }
}

/// The rest of the memory to which names are added.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryRest<'a> {
    /// The text. A name that it contains is remembered and not shown.
    pub text: &'a str,
    /// The directory to which paths are relative.
    pub root: Option<&'a str>,
}

/// Returns the names after an update with those of new messages.
#[must_use]
pub fn update(previous: Option<&OtherNames>, new: &Names, rest: MemoryRest<'_>) -> OtherNames {
    let before = previous.map_or(0, |previous| previous.messages);
    let known = previous.into_iter().flat_map(|previous| &previous.names);
    let known = known.map(|known| (&*known.name, known.kind, known.rank));
    let new_names = new.ranked.iter();
    let new_names =
        new_names.map(|(name, new)| (&**name, new.kind, before.saturating_add(new.rank)));
    let mut names: HashMap<&str, RankedName> = HashMap::new();
    for (name, kind, rank) in known.chain(new_names) {
        let name = relative_path(name, rest.root);
        // A file directly in the root has no folder.
        if kind == NameKind::Path && !name.contains('/') {
            continue;
        }
        let known = names.entry(name).or_insert(RankedName { kind, rank });
        known.rank = known.rank.max(rank);
    }
    let mut names: Vec<(&str, RankedName)> = names.into_iter().collect();
    keep_highest(&mut names, MAX_REMEMBERED);
    let mut contained = HashSet::new();
    scan(rest.text, |_, name| {
        contained.insert(relative_path(name, rest.root));
    });
    let mut left = MAX_SHOWN_CHARS;
    let names = names.into_iter().map(|(name, RankedName { kind, rank })| {
        let chars = name.chars().count() + SEPARATOR_CHARS;
        let is_shown = chars <= left && !contained.contains(name);
        if is_shown {
            left -= chars;
        }
        KnownName {
            name: name.into(),
            kind,
            rank,
            is_shown,
        }
    });
    OtherNames {
        names: names.collect(),
        messages: before.saturating_add(new.messages),
    }
}

/// Sorts names by rank and drops those beyond the number. Names of equal rank are in alphabetical order.
fn keep_highest<S: AsRef<str>>(names: &mut Vec<(S, RankedName)>, number: usize) {
    names.sort_unstable_by(|(a, first), (b, second)| {
        (second.rank, a.as_ref()).cmp(&(first.rank, b.as_ref()))
    });
    names.truncate(number);
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
    use proptest::prelude::*;

    use super::*;

    fn said(role: Role, text: &str) -> Message {
        Message::new(
            MessageId::new(uuid::Uuid::nil()),
            role,
            vec![Block::text(text)],
        )
    }

    fn names(messages: &[Message]) -> Names {
        let mut names = Names::default();
        for message in messages {
            names.record(message);
        }
        names
    }

    fn shown(names: &OtherNames) -> Vec<&str> {
        let shown = names.names.iter().filter(|known| known.is_shown);
        shown.map(|known| &*known.name).collect()
    }

    #[test]
    fn recent_paths_and_identifiers_of_the_model_come_first() {
        let first = names(&[
            said(Role::User, "src/old.rs and someName"),
            said(Role::Assistant, "I look at otherName"),
            said(Role::User, "src/new.rs"),
        ]);
        let known = update(None, &first, MemoryRest::default());
        assert_eq!(
            shown(&known),
            ["src/new.rs", "otherName", "src/old.rs", "someName"]
        );
        assert_eq!(known.messages, 3);
        // A later update continues the numbers.
        let later = names(&[said(Role::User, "/w/src/old.rs again")]);
        let rest = MemoryRest {
            text: "the text names otherName, and someNames",
            root: Some("/w"),
        };
        let known = update(Some(&known), &later, rest);
        assert_eq!(shown(&known), ["src/old.rs", "src/new.rs", "someName"]);
        assert_eq!(known.names.len(), 4);
    }

    #[test]
    fn the_number_and_the_length_of_names_are_limited() {
        let text: Vec<String> = (0..6_000).map(|n| format!("lib/file_{n}.rs")).collect();
        let names = names(&[said(Role::User, &text.join(" ")), said(Role::User, "more")]);
        assert!(names.ranked.len() <= MAX_COLLECTED);
        let known = update(None, &names, MemoryRest::default());
        assert_eq!(known.names.len(), MAX_REMEMBERED);
        let length: usize = shown(&known)
            .iter()
            .map(|name| name.len() + SEPARATOR_CHARS)
            .sum();
        assert!(
            (MAX_SHOWN_CHARS - 40..=MAX_SHOWN_CHARS).contains(&length),
            "{length}"
        );
    }

    proptest! {
        #[test]
        fn the_result_is_independent_of_the_number_of_updates(
            texts in prop::collection::vec((any::<bool>(), prop::collection::vec(0..400_u32, 1..40)), 1..40),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let messages: Vec<Message> = texts
                .iter()
                .map(|(is_statement, numbers)| {
                    let role = if *is_statement { Role::Assistant } else { Role::User };
                    let words: Vec<String> = numbers.iter().copied().map(any_name).collect();
                    said(role, &words.join(" "))
                })
                .collect();
            let rest = MemoryRest { text: "src/file_7.rs", root: Some("/w") };
            let expected = update(None, &names(&messages), rest);
            let mut ends: Vec<usize> = ends.iter().map(|end| end.index(messages.len())).collect();
            ends.push(messages.len());
            ends.sort_unstable();
            let mut known = None;
            let mut start = 0;
            for end in ends {
                known = Some(update(known.as_ref(), &names(&messages[start..end]), rest));
                start = end;
            }
            prop_assert_eq!(known, Some(expected));
        }
    }

    fn any_name(number: u32) -> String {
        match number % 3 {
            0 => format!("/w/src/file_{number}.rs"),
            1 => format!("src/file_{number}.rs"),
            _ => format!("someName{number}"),
        }
    }
}
