//! Names in a conversation: paths of files and folders, and identifiers of programs.
//!
//! A conversation contains hundreds of names, and an agent that continues it needs some of them again. A summary has space
//! for the most probable ones. [`Names`] collects the names of messages with their ranks.
//!
//! The rank of a mention is the number of its message, counted from 1, with these changes:
//!
//! - [`OFFSET`] is added for paths, and for identifiers in the model's words and searches.
//! - `CALL_OFFSET` is added for paths in calls of tools, because the model itself has used them.
//! - In the output of a tool and in inserted texts, `STEP` is subtracted once for each name of the same text that occurs
//!   more often there. A list of hundreds of files therefore ranks a few of them high, and not all of them.
//!
//! The rank of a name is the highest rank of its mentions. As the rank of a mention never changes, names with low ranks
//! can be dropped at any time without an effect on the order of the others. So the result does not depend on the number of
//! messages in an update.

mod braces;
mod choose;
mod omitted;
mod scan;

use std::collections::HashMap;

use palimpsest_types::message::{Block, Message, ResultContent, Role, ToolInput, ToolUse};
use serde_json::{Map, Value};

pub use self::braces::expand;
pub(crate) use self::braces::in_groups;
pub(crate) use self::choose::show;
pub use self::choose::{MemoryRest, update};
pub use self::omitted::omitted_names;
use self::scan::{is_file, scan};
use crate::memory::fact::NameKind;
use crate::shell::command_files;
use crate::tool_action::{PATH_FIELDS, command, fields};

/// An identifier in another text ranks like a path that was mentioned this number of messages earlier. The example `fit_names` of
/// `palimpsest-transcripts` prints the results of other values.
pub const OFFSET: u32 = 500;
/// A path in another text ranks like a path in a call of this number of messages earlier.
const CALL_OFFSET: u32 = 100;
/// The second most frequent name of a text ranks like the most frequent one of a text of this number of messages earlier.
const STEP: u32 = 2;
/// The maximum that is subtracted from a rank. Added to all ranks, so that none is negative.
const MAX_SUBTRACTED: u32 = 400;
/// The maximum number of names of a run of messages. Beyond it, those with the lowest ranks are dropped.
const MAX_COLLECTED: usize = 4_096;
/// The maximum length of a text that is searched for names, in bytes. Of a longer text, both ends are searched.
const MAX_TEXT: usize = 128 * 1024;

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

impl RankedName {
    /// Returns the name after a further mention. The order of mentions makes no difference.
    fn with(self, kind: NameKind, rank: u32) -> Self {
        Self {
            kind: self.kind.min(kind),
            rank: self.rank.max(rank),
        }
    }
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
        self.begin_message();
        for block in &message.blocks {
            match block {
                Block::ToolUse(call) => self.record_call(call, &fields(call)),
                block => self.record_block(block, message.role),
            }
        }
    }

    /// Begins the next message.
    pub(crate) fn begin_message(&mut self) {
        self.messages += 1;
        if self.ranked.len() > MAX_COLLECTED {
            self.drop_lowest();
        }
    }

    /// Returns true if no message was recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Adds the names of a call. `fields` are the fields of its input.
    pub(crate) fn record_call(&mut self, call: &ToolUse, fields: &Map<String, Value>) {
        if let ToolInput::Text(text) = &call.input {
            self.record_text(text, NameSource::Call);
        }
        self.record_files(fields);
        self.record_fields(fields);
    }

    /// Adds the names of another block.
    pub(crate) fn record_block(&mut self, block: &Block, role: Role) {
        match block {
            Block::Text { text, .. } => {
                let source = match role {
                    Role::Assistant => NameSource::Model,
                    _ => NameSource::Other,
                };
                self.record_text(text, source);
            }
            Block::ToolResult(result) => match &result.content {
                ResultContent::None => {}
                ResultContent::Text(text) => self.record_text(text, NameSource::Other),
                ResultContent::Blocks(blocks) => {
                    for block in blocks {
                        if let Block::Text { text, .. } = block {
                            self.record_text(text, NameSource::Other);
                        }
                    }
                }
            },
            _ => {}
        }
    }

    /// Adds the files and folders that a call names in its command or its fields. Only here, a name without a folder or
    /// without an extension is known to be a path.
    fn record_files(&mut self, fields: &Map<String, Value>) {
        let rank = self.rank(self.offset + CALL_OFFSET, 0);
        for path in PATH_FIELDS
            .iter()
            .filter_map(|name| fields.get(*name)?.as_str())
        {
            self.add_file(path, rank);
        }
        if let Some(command) = command(fields) {
            for file in command_files(&command) {
                self.add_file(file.path, rank);
            }
        }
    }

    fn add_file(&mut self, path: &str, rank: u32) {
        let path = path.trim().trim_end_matches('/');
        let path = path.strip_prefix("./").unwrap_or(path);
        if is_file(path) {
            self.add(path, NameKind::Path, rank);
        }
    }

    /// Adds the names in the texts of a JSON value, without their escapes.
    fn record_value(&mut self, value: &Value, source: NameSource) {
        match value {
            Value::String(text) => self.record_text(text, source),
            Value::Array(values) => {
                for value in values {
                    self.record_value(value, source);
                }
            }
            Value::Object(fields) => self.record_fields(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn record_fields(&mut self, fields: &Map<String, Value>) {
        for (name, value) in fields {
            // The status of a work item is a word of the tool.
            if name == "status" {
                continue;
            }
            let source = if SEARCH_FIELDS.contains(&&**name) {
                NameSource::Search
            } else {
                NameSource::Call
            };
            self.record_value(value, source);
        }
    }

    fn record_text(&mut self, text: &str, source: NameSource) {
        let mut found: Vec<(NameKind, &str, u32)> = Vec::new();
        let mut positions: HashMap<&str, usize> = HashMap::new();
        for part in both_ends(text) {
            scan(part, |kind, name| {
                let at = *positions.entry(name).or_insert(found.len());
                match found.get_mut(at) {
                    Some((_, _, times)) => *times += 1,
                    None => found.push((kind, name, 1)),
                }
            });
        }
        // Names of equal frequency keep the order of the text.
        found.sort_by_key(|(_, _, times)| std::cmp::Reverse(*times));
        // Each kind has its own count, so that many identifiers do not lower the ranks of paths.
        let (mut paths, mut identifiers) = (0, 0);
        for (kind, name, _) in found {
            let (offset, before) = match kind {
                NameKind::Path => (self.offset + source.path_offset(), &mut paths),
                NameKind::Identifier if source.is_words_or_search() => {
                    (self.offset, &mut identifiers)
                }
                NameKind::Identifier => (0, &mut identifiers),
            };
            let subtracted = match source {
                NameSource::Other => STEP.saturating_mul(*before),
                _ => 0,
            };
            *before += 1;
            self.add(name, kind, self.rank(offset, subtracted));
        }
    }

    fn rank(&self, offset: u32, subtracted: u32) -> u32 {
        let rank = self.messages.saturating_add(offset + MAX_SUBTRACTED);
        rank - subtracted.min(MAX_SUBTRACTED)
    }

    fn add(&mut self, name: &str, kind: NameKind, rank: u32) {
        // Most names are known, so the text is copied only for a new one.
        if let Some(known) = self.ranked.get_mut(name) {
            *known = known.with(kind, rank);
        } else {
            self.ranked.insert(name.into(), RankedName { kind, rank });
        }
    }

    /// Drops half of the names.
    fn drop_lowest(&mut self) {
        let mut names: Vec<_> = self.ranked.drain().collect();
        // The name decides between equal ranks, because the order of the hash map is random.
        names.sort_unstable_by(|(a, first), (b, second)| (second.rank, a).cmp(&(first.rank, b)));
        // Dropping half of the names at once keeps this sort rare.
        names.truncate(MAX_COLLECTED / 2);
        self.ranked.extend(names);
    }
}

/// The source of a text with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameSource {
    /// The words of the model.
    Model,
    /// The pattern of a search in a call.
    Search,
    /// Another part of a call.
    Call,
    /// The output of a tool, a message of the user or an inserted text.
    Other,
}

impl NameSource {
    const fn path_offset(self) -> u32 {
        match self {
            Self::Search | Self::Call => CALL_OFFSET,
            Self::Model | Self::Other => 0,
        }
    }

    const fn is_words_or_search(self) -> bool {
        matches!(self, Self::Model | Self::Search)
    }
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
    use palimpsest_types::json::UnknownFields;
    use proptest::prelude::*;

    use super::braces::SEPARATOR_CHARS;
    use super::choose::{MAX_REMEMBERED, MAX_SHOWN_CHARS};
    use super::*;
    use crate::memory::fact::OtherNames;

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
        // `someName` is in a user's text, so it lacks the offset of the other names.
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
        // The text contains `otherName`. `someNames` is another word than `someName`.
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

    fn calls(input: &Value) -> Message {
        let call = Block::ToolUse(ToolUse {
            id: "x".into(),
            name: "shell".into(),
            input: ToolInput::parse(&input.to_string()),
            extra: UnknownFields::default(),
        });
        Message::new(
            MessageId::new(uuid::Uuid::nil()),
            Role::Assistant,
            vec![call],
        )
    }

    #[test]
    fn files_of_commands_are_names_without_a_folder_or_an_extension_too() {
        let names = names(&[
            calls(&serde_json::json!({"cmd": "ls packages/sdk && cat README.md", "workdir": "/w"})),
            calls(&serde_json::json!({"path": "/w/docs/"})),
            calls(&serde_json::json!({"path": "/w", "command": "view"})),
            said(Role::User, "src/a.rs"),
        ]);
        let rest = MemoryRest {
            text: "",
            root: Some("/w"),
        };
        let known = update(None, &names, rest);
        assert_eq!(
            shown(&known),
            ["docs", "README.md", "packages/sdk", "src/a.rs"]
        );
        let rest = MemoryRest {
            text: "`packages/{sdk/x.ts,core/y.ts}` has no XREADME.md; see docs.",
            ..rest
        };
        let known = update(None, &names, rest);
        assert_eq!(shown(&known), ["README.md", "src/a.rs"]);
        // The whole path contains its end.
        let rest = MemoryRest {
            text: "/other/src/a.rs",
            ..rest
        };
        let known = update(None, &names, rest);
        assert_eq!(shown(&known), ["docs", "README.md", "packages/sdk"]);
    }

    #[test]
    fn frequent_and_short_names_of_a_listing_come_first() {
        let listing: Vec<String> = (0..400).map(|n| format!("lib/file_{n}.rs:1")).collect();
        let listing = format!(
            "{}\nlib/file_399.rs:2\nlib/file_398.rs:2",
            listing.join("\n")
        );
        let long = format!("{}/a.rs", "folder/".repeat(12));
        let names = names(&[
            said(Role::User, &format!("src/older.rs {long}")),
            said(Role::User, &listing),
        ]);
        let known = update(None, &names, MemoryRest::default());
        let first: Vec<&str> = known.names.iter().map(|known| &*known.name).collect();
        let at = |name: &str| first.iter().position(|known| *known == name);
        // The ranks are 902 for the most frequent name of the listing, 901 for the older message, and 900 for the
        // second most frequent name.
        let expected = ["lib/file_398.rs", "src/older.rs", "lib/file_399.rs"];
        assert_eq!(first[..3], expected);
        assert!(at(&long) > Some(20), "{first:?}");
    }

    proptest! {
        #[test]
        fn the_result_is_independent_of_the_number_of_updates(
            texts in prop::collection::vec((0..3_u8, prop::collection::vec(0..400_u32, 1..40)), 1..40),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let messages: Vec<Message> = texts
                .iter()
                .map(|(source, numbers)| {
                    let words: Vec<String> = numbers.iter().copied().map(any_name).collect();
                    match source {
                        0 => said(Role::Assistant, &words.join(" ")),
                        1 => said(Role::User, &words.join(" ")),
                        _ => calls(&serde_json::json!({"cmd": format!("cat {}", words.join(" "))})),
                    }
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
        match number % 5 {
            0 => format!("/w/src/file_{number}.rs"),
            1 => format!("src/file_{number}.rs"),
            2 => format!("file_{number}.rs"),
            3 => format!("src/folder_{}", number % 7),
            _ => format!("someName{number}"),
        }
    }
}
