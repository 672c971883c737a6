//! Importer for the rollout files of Codex: JSON lines with items of OpenAI's Responses API.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Usage;
use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::imported::{ImportStep, Imported, ImportedCompaction, ImportedMessage, ImportedSession};
use super::line_reader::{LineReader, Remarks, parse_line, read_lines};
use super::payload::{Entry, derived_id, to_payload};

/// The beginnings of user messages that Codex writes.
const MACHINE_TAGS: [&str; 7] = [
    "<environment_context>",
    "# AGENTS.md instructions",
    "<user_instructions>",
    "<turn_aborted>",
    "<skill>",
    "<subagent_notification>",
    "Warning: ",
];

/// The program that writes exports in this format.
pub(crate) const EXPORTER: &str = "palimpsest";

/// The text in place of a summary that only the provider can read.
const UNREADABLE_SUMMARY: &str =
    "Codex compacted the conversation here. Its summary cannot be read.";

#[derive(Deserialize)]
struct RolloutLine<'a> {
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SessionMeta<'a> {
    id: Option<Uuid>,
    #[serde(borrow, default)]
    originator: Cow<'a, str>,
    #[serde(borrow)]
    cwd: Option<Cow<'a, str>>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    git: Option<Git>,
}

#[derive(Deserialize)]
struct Git {
    branch: Option<Box<str>>,
}

#[derive(Deserialize)]
struct TurnContext {
    cwd: Option<Box<str>>,
    model: Option<Box<str>>,
}

#[derive(Deserialize)]
struct RolloutEvent<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    info: Option<TokenInfo>,
    #[serde(default)]
    num_turns: usize,
}

#[derive(Deserialize)]
struct TokenInfo {
    last_token_usage: Option<TokenUsage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenUsage {
    #[serde(rename = "input_tokens")]
    input: u64,
    #[serde(rename = "cached_input_tokens")]
    cached: u64,
    #[serde(rename = "output_tokens")]
    output: u64,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    encrypted_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Compacted<'a> {
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    replacement_history: Option<Vec<&'a RawValue>>,
}

pub(super) fn read(bytes: &[u8]) -> Imported<'_> {
    read_lines::<RolloutReader<'_>>(bytes)
}

#[derive(Default)]
struct RolloutReader<'a> {
    remarks: Remarks,
    session: ImportedSession<'a>,
    id: Option<Uuid>,
    cwd: Option<Box<str>>,
    model: Option<Box<str>>,
    /// The messages that no rollback has removed, in order.
    shown: Vec<ShownItem>,
    /// The messages with equal content, in order. A compaction repeats the messages that it keeps without ids.
    by_content: HashMap<(String, String), Vec<MessageId>>,
    /// True if the file is an export of Palimpsest.
    is_export: bool,
    /// The index of the step with the latest item of the model.
    last_response: Option<usize>,
}

struct ShownItem {
    id: Option<MessageId>,
    /// True if a person wrote the message, so that it begins a turn.
    begins_turn: bool,
}

impl<'a> LineReader<'a> for RolloutReader<'a> {
    fn line(&mut self, number: usize, text: &'a str) -> Result<(), String> {
        let line: RolloutLine<'a> = parse_line(text)?;
        let kind = &*line.r#type;
        let Some(payload) = line.payload else {
            self.remarks.skip(kind);
            return Ok(());
        };
        match kind {
            "response_item" => {
                let item: Item<'a> = parse_line(payload.get())?;
                let time = line.timestamp.as_deref();
                self.item(self.imported(number, time, Cow::Borrowed(payload)), &item);
            }
            "compacted" => self.compacted(number, line.timestamp.as_deref(), payload)?,
            "session_meta" => self.session_meta(parse_line(payload.get())?),
            "turn_context" => {
                let context: TurnContext = parse_line(payload.get())?;
                self.cwd = context.cwd.or(self.cwd.take());
                self.model = context.model.or(self.model.take());
                self.remarks.skip(kind);
            }
            "event_msg" => {
                self.event(parse_line(payload.get())?);
                self.remarks.skip(kind);
            }
            _ => self.remarks.skip(kind),
        }
        Ok(())
    }

    fn remarks(&mut self) -> &mut Remarks {
        &mut self.remarks
    }

    fn finish(self) -> Imported<'a> {
        self.remarks.with_sessions([self.session])
    }
}

impl<'a> RolloutReader<'a> {
    fn session_meta(&mut self, meta: SessionMeta<'a>) {
        self.remarks.skip("session_meta");
        // A fork repeats the lines of its origin, so only the first line describes the session.
        if self.id.is_some() {
            return;
        }
        self.id = meta.id;
        self.is_export = meta.originator == EXPORTER;
        self.cwd = meta.cwd.map(Into::into);
        self.session.project_path = self.cwd.clone().unwrap_or_default();
        self.session.branch = meta.git.and_then(|git| git.branch).unwrap_or_default();
        // The source of a session without a person is an object.
        self.session.subagent = meta
            .source
            .is_some_and(|source| source.get().contains("\"subagent\""));
    }

    fn event(&mut self, event: RolloutEvent<'a>) {
        let usage = event.info.and_then(|info| info.last_token_usage);
        match &*event.r#type {
            "token_count" => {
                // Codex writes this event after the items of a response, so the usage belongs to the latest item.
                if let (Some(usage), Some(at)) = (usage, self.last_response.take()) {
                    // Steps are only appended, so the index stays valid.
                    self.session.steps[at].set_usage(usage.into());
                }
            }
            "thread_rolled_back" => self.roll_back(event.num_turns),
            _ => {}
        }
    }

    fn roll_back(&mut self, turns: usize) {
        let starts = self.shown.iter().enumerate();
        let mut starts = starts.rev().filter(|(_, item)| item.begins_turn);
        // Turns are counted from the end, so the last of two is at index 1.
        let Some((at, _)) = turns.checked_sub(1).and_then(|skipped| starts.nth(skipped)) else {
            return;
        };
        self.shown.truncate(at);
        let last = self.shown.iter().rev().find_map(|item| item.id);
        self.session.steps.push(ImportStep::Rewind(last));
    }

    fn item(&mut self, mut message: ImportedMessage<'a>, item: &Item<'a>) {
        let is_message = item.r#type == "message";
        let text = if is_message {
            text_of(item.content)
        } else {
            String::new()
        };
        let is_user = is_message && item.role == "user";
        message.machine_generated = is_user && is_machine_text(&text);
        if let Some((id, content)) = message.id.zip(item.content()) {
            self.by_content.entry(content).or_default().push(id);
        }
        self.shown.push(ShownItem {
            id: message.id,
            begins_turn: is_user && !message.machine_generated,
        });
        // Outputs of tools and messages of other roles are input of the model. All other items are its response.
        let is_given = item.r#type.ends_with("_output") || is_message && item.role != "assistant";
        if !is_given {
            message.model.clone_from(&self.model);
            self.last_response = Some(self.session.steps.len());
        }
        self.session.steps.push(ImportStep::Message(message));
    }

    fn compacted(
        &mut self,
        number: usize,
        time: Option<&str>,
        payload: &'a RawValue,
    ) -> Result<(), String> {
        let compacted: Compacted<'a> = parse_line(payload.get())?;
        let mut kept: Vec<MessageId> = Vec::new();
        let mut is_encrypted = false;
        let items = compacted.replacement_history.unwrap_or_default();
        // Of equal messages, the later ones are kept.
        for item in items.into_iter().rev() {
            let item: Item<'a> = parse_line(item.get())?;
            let content = item.content();
            let known = content.and_then(|content| self.by_content.get(&content));
            let mut known = known.into_iter().flatten().rev();
            match known.find(|id| !kept.contains(id)) {
                Some(id) => kept.push(*id),
                // An unknown item of another type contains the summary in a form that only the provider can read.
                None => is_encrypted |= !matches!(&*item.r#type, "message" | "reasoning"),
            }
        }
        kept.sort_by_key(|id| self.shown.iter().position(|item| item.id == Some(*id)));
        let is_kept = |item: &ShownItem| item.id.is_some_and(|id| kept.contains(&id));
        let mut text = &*compacted.message;
        // An export without a summary records that messages have left the view.
        if text.is_empty() && self.is_export {
            let removed = self.shown.iter().filter(|item| !is_kept(item));
            let messages: Vec<MessageId> = removed.filter_map(|item| item.id).collect();
            self.shown.retain(is_kept);
            if !messages.is_empty() {
                let line = number;
                let step = ImportStep::Removed { line, messages };
                self.session.steps.push(step);
            }
            return Ok(());
        }
        if text.is_empty() {
            text = UNREADABLE_SUMMARY;
            let problem = if is_encrypted {
                "has an encrypted summary: a sentence stands for it"
            } else {
                "marks a compaction without a summary: a sentence stands for it"
            };
            self.remarks.defect(number, problem);
        }
        let part = json!({"type": "input_text", "text": text});
        let summary = json!({"type": "message", "role": "user", "content": [part]});
        let summary = self.imported(number, time, to_payload(&summary));
        self.shown.retain(is_kept);
        let step = ImportedCompaction::of_all(summary, kept);
        self.session.steps.push(ImportStep::Compacted(step));
        Ok(())
    }

    fn imported(
        &self,
        line: usize,
        time: Option<&str>,
        payload: Cow<'a, RawValue>,
    ) -> ImportedMessage<'a> {
        let entry = Entry {
            line,
            id: self.id.map(|id| derived_id(id, line)),
            time,
            cwd: self.cwd.as_deref(),
        };
        entry.message(Provider::OpenAiResponses, payload)
    }
}

impl Item<'_> {
    /// Returns the part of an item that a compaction repeats. `None` if the item has none.
    fn content(&self) -> Option<(String, String)> {
        if self.r#type == "message" {
            return Some((self.role.to_string(), text_of(self.content)));
        }
        // Reasoning has no `call_id`, and its encrypted content identifies it.
        let key = self
            .call_id
            .as_deref()
            .or(self.encrypted_content.as_deref())?;
        Some((self.r#type.to_string(), key.to_owned()))
    }
}

impl From<TokenUsage> for Usage {
    fn from(usage: TokenUsage) -> Self {
        // The program's `input_tokens` includes the cached tokens.
        Self {
            input_tokens: usage.input.saturating_sub(usage.cached),
            cache_read_tokens: usage.cached,
            cache_write_tokens: 0,
            output_tokens: usage.output,
        }
    }
}

/// Returns true if Codex writes user messages that begin like this text.
pub(crate) fn is_machine_text(text: &str) -> bool {
    MACHINE_TAGS.iter().any(|tag| text.starts_with(tag))
}

/// Returns the text of a message's content, which is a string or a list of parts.
fn text_of(content: Option<&RawValue>) -> String {
    let content = content.map_or("null", RawValue::get);
    if let Ok(text) = serde_json::from_str::<String>(content) {
        return text;
    }
    let parts: Vec<ContentPart<'_>> = serde_json::from_str(content).unwrap_or_default();
    parts.iter().map(|part| &*part.text).collect()
}
