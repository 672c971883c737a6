//! Importer for the session files of pi: JSON lines with messages in a form of its own. They become Anthropic messages.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

use palimpsest_core::ids::MessageId;
use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::imported::{ImportStep, Imported, ImportedCompaction, ImportedMessage, ImportedSession};
use super::line_reader::{LineReader, Remarks, parse_line, read_lines};
use super::payload::{Entry, derived_id, to_payload};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionLine<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    cwd: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<Cow<'a, str>>,
    first_kept_entry_index: Option<usize>,
    #[serde(borrow)]
    first_kept_entry_id: Option<Cow<'a, str>>,
    tokens_before: Option<u32>,
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(
    tag = "role",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
enum PiMessage {
    User {
        content: Content,
    },
    Assistant {
        content: Vec<Value>,
        model: Option<Value>,
        usage: Option<PiUsage>,
    },
    ToolResult {
        tool_call_id: String,
        content: Content,
        #[serde(default)]
        is_error: bool,
    },
    BashExecution {
        command: String,
        #[serde(default)]
        output: String,
        exit_code: Option<i64>,
        #[serde(default)]
        exclude_from_context: bool,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PiUsage {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cache_write: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

pub(super) fn read(bytes: &[u8]) -> Imported<'_> {
    read_lines::<PiReader<'_>>(bytes)
}

#[derive(Default)]
struct PiReader<'a> {
    remarks: Remarks,
    session: ImportedSession<'a>,
    id: Option<Uuid>,
    cwd: Option<Box<str>>,
    /// All lines, in order. A compaction of an old version refers to them by index.
    entries: Vec<PiEntry>,
    /// The index of a line by its id. Files of old versions have no ids.
    by_id: HashMap<Box<str>, usize>,
}

/// A line of the file.
struct PiEntry {
    /// The index of the line before it in its branch.
    parent: Option<usize>,
    /// The message, if the line contains one.
    message: Option<MessageId>,
}

impl<'a> LineReader<'a> for PiReader<'a> {
    fn line(&mut self, number: usize, text: &'a str) -> Result<(), String> {
        let line: SessionLine<'a> = parse_line(text)?;
        let parent = self.follow_branch(&line);
        let message = match (&*line.r#type, line.message, &line.summary, &line.content) {
            ("message", Some(message), _, _) => {
                let message = parse_line(message.get())?;
                self.message(number, &line, message)
            }
            // Content of an extension for the model, and the summary of an abandoned branch.
            ("custom_message", _, _, Some(content)) => {
                let payload = json!({"role": "user", "content": blocks(content)});
                self.machine_message(number, &line, &payload)
            }
            ("branch_summary", _, Some(summary), _) => {
                let payload = json!({"role": "user", "content": summary});
                self.machine_message(number, &line, &payload)
            }
            ("compaction", _, Some(summary), _) => self.compacted(number, &line, summary),
            (kind, ..) => {
                if kind == "session" {
                    self.start(&line);
                }
                self.remarks.skip(kind);
                None
            }
        };
        if let Some(id) = &line.id {
            self.by_id.insert((**id).into(), self.entries.len());
        }
        self.entries.push(PiEntry { parent, message });
        Ok(())
    }

    fn remarks(&mut self) -> &mut Remarks {
        &mut self.remarks
    }

    fn finish(self) -> Imported<'a> {
        self.remarks.with_sessions([self.session])
    }
}

impl<'a> PiReader<'a> {
    fn start(&mut self, line: &SessionLine<'a>) {
        self.id = line.id.as_ref().and_then(|id| Uuid::parse_str(id).ok());
        self.cwd = line.cwd.as_deref().map(Into::into);
        self.session.project_path = self.cwd.clone().unwrap_or_default();
    }

    /// Returns the index of the line before this one in its branch. Leaves the branch of the last line if it is another.
    fn follow_branch(&mut self, line: &SessionLine<'a>) -> Option<usize> {
        let last = self.entries.len().checked_sub(1);
        // Only lines with an id form a tree, and the first line is no part of it.
        if line.id.is_none() || line.r#type == "session" {
            return last;
        }
        let parent = line.parent_id.as_deref();
        let parent = parent.and_then(|parent| self.by_id.get(parent).copied());
        let shown = self.last_message(parent);
        // Branches that differ only in lines without messages show the same conversation.
        if shown != self.last_message(last) {
            self.session.steps.push(ImportStep::Rewind(shown));
        }
        parent
    }

    /// Returns the last message of a branch.
    fn last_message(&self, end: Option<usize>) -> Option<MessageId> {
        let mut at = end;
        // A parent is always an earlier line, so the loop ends.
        while let Some(entry) = at.and_then(|at| self.entries.get(at)) {
            if entry.message.is_some() {
                return entry.message;
            }
            at = entry.parent;
        }
        None
    }

    fn message(
        &mut self,
        number: usize,
        line: &SessionLine<'a>,
        message: PiMessage,
    ) -> Option<MessageId> {
        let mut is_hidden = false;
        let payload = match message {
            PiMessage::User { content } => json!({"role": "user", "content": blocks(&content)}),
            PiMessage::Assistant {
                content,
                model,
                usage,
            } => {
                let content: Vec<Value> = content.iter().filter_map(block).collect();
                let usage = usage.unwrap_or_default();
                let usage = json!({
                    "input_tokens": usage.input,
                    "output_tokens": usage.output,
                    "cache_read_input_tokens": usage.cache_read,
                    "cache_creation_input_tokens": usage.cache_write,
                });
                json!({"role": "assistant", "model": model, "content": content, "usage": usage})
            }
            PiMessage::ToolResult {
                tool_call_id,
                content,
                is_error,
            } => json!({"role": "user", "content": [{
                "type": "tool_result",
                "tool_use_id": tool_call_id,
                "content": blocks(&content),
                "is_error": is_error,
            }]}),
            PiMessage::BashExecution {
                command,
                output,
                exit_code,
                exclude_from_context,
            } => {
                // A person can run a command whose output the model does not get.
                is_hidden = exclude_from_context;
                let code = exit_code.filter(|code| *code != 0);
                let code = code.map(|code| format!("\nExit code: {code}"));
                let code = code.unwrap_or_default();
                let text = format!("The user ran `{command}`:\n```\n{output}\n```{code}");
                json!({"role": "user", "content": text})
            }
            PiMessage::Other => {
                self.remarks.skip("message of an unknown role");
                return None;
            }
        };
        let message = self.imported(number, line, &payload);
        self.push(ImportedMessage {
            transcript_only: is_hidden,
            ..message
        })
    }

    fn machine_message(
        &mut self,
        number: usize,
        line: &SessionLine<'a>,
        payload: &Value,
    ) -> Option<MessageId> {
        let message = self.imported(number, line, payload);
        self.push(ImportedMessage {
            machine_generated: true,
            ..message
        })
    }

    fn compacted(
        &mut self,
        number: usize,
        line: &SessionLine<'a>,
        summary: &str,
    ) -> Option<MessageId> {
        let first = line.first_kept_entry_id.as_deref();
        let first = first.and_then(|id| self.by_id.get(id).copied());
        let first = first.or(line.first_kept_entry_index);
        let mut kept = Vec::new();
        // The lines are followed by their parents, because lines of other branches lie between them.
        let mut at = self.entries.len().checked_sub(1);
        while let Some(index) = at.filter(|at| first.is_some_and(|first| *at >= first)) {
            let entry = &self.entries[index];
            kept.extend(entry.message);
            at = entry.parent;
        }
        kept.reverse();
        let summary = json!({"role": "user", "content": summary});
        let summary = self.imported(number, line, &summary);
        let id = summary.id;
        let step = ImportedCompaction {
            before_tokens: line.tokens_before,
            ..ImportedCompaction::of_all(summary, kept)
        };
        self.session.steps.push(ImportStep::Compacted(step));
        id
    }

    fn imported(
        &self,
        number: usize,
        line: &SessionLine<'a>,
        payload: &Value,
    ) -> ImportedMessage<'a> {
        let entry = Entry {
            line: number,
            id: self.id.map(|id| derived_id(id, number)),
            time: line.timestamp.as_deref(),
            cwd: self.cwd.as_deref(),
        };
        entry.message(Provider::Anthropic, to_payload(payload))
    }

    fn push(&mut self, message: ImportedMessage<'a>) -> Option<MessageId> {
        let id = message.id;
        self.session.steps.push(ImportStep::Message(message));
        id
    }
}

/// Returns content as Anthropic blocks.
fn blocks(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) => vec![json!({"type": "text", "text": text})],
        Content::Parts(parts) => parts.iter().filter_map(block).collect(),
    }
}

/// Returns a part of a message as a block. Thinking without a signature is left out, because no provider accepts it.
fn block(part: &Value) -> Option<Value> {
    let field = |name: &str| part.get(name).cloned().unwrap_or_default();
    Some(match part.get("type").and_then(Value::as_str) {
        Some("image") => {
            let source = json!({
                "type": "base64",
                "media_type": field("mimeType"),
                "data": field("data"),
            });
            json!({"type": "image", "source": source})
        }
        Some("toolCall") => json!({
            "type": "tool_use",
            "id": field("id"),
            "name": field("name"),
            "input": field("arguments"),
        }),
        Some("thinking") => {
            let signature = part.get("thinkingSignature")?;
            json!({"type": "thinking", "thinking": field("thinking"), "signature": signature})
        }
        _ => part.clone(),
    })
}
