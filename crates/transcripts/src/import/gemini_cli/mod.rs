//! Importer for the session files of the Gemini CLI. They become OpenAI chat messages.
//!
//! A file is a log of records by id: a later record with the same id replaces the earlier one, a rewind removes records,
//! and a checkpoint lists the records that the conversation consists of. Old versions write one document instead.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Usage;
use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::imported::{ImportStep, Imported, ImportedCompaction, ImportedMessage, ImportedSession};
use super::line_reader::{LineReader, Remarks, parse_line, read_lines};
use super::payload::{Entry, chat_call, chat_response, chat_result, derived_id, to_payload};

/// The tag in the summary of a compaction.
const SUMMARY_TAG: &str = "<state_snapshot>";
/// The beginning of the first message, which the program writes.
const CONTEXT_TAG: &str = "<session_context>";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogLine<'a> {
    session_id: Option<Box<str>>,
    summary: Option<Box<str>>,
    kind: Option<Box<str>>,
    directories: Option<Vec<Box<str>>>,
    #[serde(borrow)]
    messages: Option<Vec<&'a RawValue>>,
    #[serde(rename = "$rewindTo")]
    rewind_to: Option<Box<str>>,
    #[serde(rename = "$set", borrow)]
    set: Option<Changes<'a>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Changes<'a> {
    summary: Option<Box<str>>,
    #[serde(borrow)]
    messages: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    id: Box<str>,
    timestamp: Option<Box<str>>,
    r#type: Box<str>,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    tokens: Option<Tokens>,
    model: Option<Box<str>>,
}

#[derive(Deserialize)]
struct ToolCall {
    id: Box<str>,
    name: Box<str>,
    #[serde(default)]
    args: Value,
    #[serde(default)]
    result: Value,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(default)]
struct Tokens {
    input: u64,
    output: u64,
    cached: u64,
    thoughts: u64,
}

pub(super) fn read(bytes: &[u8]) -> Imported<'_> {
    // A document of an old version has several lines.
    let document = std::str::from_utf8(bytes).ok();
    let document = document.and_then(|text| serde_json::from_str::<LogLine<'_>>(text).ok());
    if let Some(document) = document.filter(|document| document.messages.is_some()) {
        let mut reader = LogReader::default();
        reader.log_line(1, document, None);
        return reader.finish();
    }
    read_lines::<LogReader>(bytes)
}

impl<'a> LineReader<'a> for LogReader {
    fn line(&mut self, number: usize, text: &'a str) -> Result<(), String> {
        self.log_line(number, parse_line(text)?, Some(text));
        Ok(())
    }

    fn remarks(&mut self) -> &mut Remarks {
        &mut self.remarks
    }

    fn finish(self) -> Imported<'a> {
        let steps = self.steps();
        let session = ImportedSession {
            title: self.title,
            project_path: self.cwd.unwrap_or_default(),
            subagent: self.is_subagent,
            steps,
            ..ImportedSession::default()
        };
        self.remarks.with_sessions([session])
    }
}

#[derive(Default)]
struct LogReader {
    remarks: Remarks,
    title: Option<Box<str>>,
    cwd: Option<Box<str>>,
    is_subagent: bool,
    /// The latest version of each record, with the line of the first one.
    records: HashMap<Box<str>, (usize, Record)>,
    changes: Vec<Change>,
    /// The ids of the records that the conversation consists of, in order.
    shown: Vec<Box<str>>,
}

/// A change of the conversation.
enum Change {
    Added(Box<str>),
    /// All records after this one were removed.
    RewoundTo(Option<Box<str>>),
    Compacted {
        summary: Box<str>,
        kept: Vec<Box<str>>,
    },
    Removed {
        line: usize,
        records: Vec<Box<str>>,
    },
}

impl LogReader {
    /// Reads a line. `text` is the whole line, if it can be a record.
    fn log_line(&mut self, number: usize, line: LogLine<'_>, text: Option<&str>) {
        if let Some(id) = line.rewind_to {
            return self.rewind(&id);
        }
        if let Some(set) = line.set {
            self.title = set.summary.or(self.title.take());
            if let Some(messages) = set.messages {
                self.checkpoint(number, &messages);
            }
            return self.remarks.skip("$set");
        }
        if line.session_id.is_some() {
            self.title = line.summary.or(self.title.take());
            self.is_subagent |= line.kind.as_deref() == Some("subagent");
            let directories = line.directories.into_iter().flatten();
            self.cwd = self.cwd.take().or(directories.into_iter().next());
            for message in line.messages.unwrap_or_default() {
                self.record(number, message.get());
            }
            return self.remarks.skip("session");
        }
        match (line.id, text) {
            (Some(_), Some(text)) => self.record(number, text),
            _ => self.remarks.skip("without a type"),
        }
    }

    fn record(&mut self, line: usize, text: &str) {
        let record: Record = match parse_line(text) {
            Ok(record) => record,
            Err(problem) => return self.remarks.defect(line, problem),
        };
        if !matches!(&*record.r#type, "user" | "gemini") {
            return self.remarks.skip(&record.r#type.clone());
        }
        let id = record.id.clone();
        if let Some((_, known)) = self.records.get_mut(&id) {
            *known = record;
        } else {
            self.records.insert(id.clone(), (line, record));
            self.shown.push(id.clone());
            self.changes.push(Change::Added(id));
        }
    }

    /// Removes a record and all later ones. An unknown record removes all.
    fn rewind(&mut self, id: &str) {
        let at = self.shown.iter().position(|known| **known == *id);
        self.shown.truncate(at.unwrap_or(0));
        let last = self.shown.last().cloned();
        self.changes.push(Change::RewoundTo(last));
    }

    /// Follows a list of all records that the conversation consists of.
    fn checkpoint(&mut self, line: usize, messages: &[&RawValue]) {
        let parsed = messages
            .iter()
            .map(|message| parse_line::<Record>(message.get()));
        let parsed: Vec<Record> = match parsed.collect() {
            Ok(parsed) => parsed,
            Err(problem) => return self.remarks.defect(line, problem),
        };
        let listed: HashSet<Box<str>> = parsed.iter().map(|record| record.id.clone()).collect();
        let (kept, removed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.shown)
            .into_iter()
            .partition(|id| listed.contains(id));
        let is_new = |record: &Record| !self.records.contains_key(&record.id);
        let is_summary =
            |record: &Record| is_new(record) && text_of(&record.content).contains(SUMMARY_TAG);
        let summary = parsed.iter().find(|record| is_summary(record));
        let summary = summary.map(|record| record.id.clone());
        match summary.clone() {
            Some(summary) => {
                let kept = kept.clone();
                self.changes.push(Change::Compacted { summary, kept });
            }
            None if removed.is_empty() => {}
            None => {
                let records = removed;
                self.changes.push(Change::Removed { line, records });
            }
        }
        for record in parsed {
            let id = record.id.clone();
            self.shown.push(id.clone());
            // The list can contain shortened copies of known records, so these stay as they are.
            if self.records.contains_key(&id) || !matches!(&*record.r#type, "user" | "gemini") {
                continue;
            }
            let is_summary = summary.as_deref() == Some(&*id);
            self.records.insert(id.clone(), (line, record));
            if !is_summary {
                self.changes.push(Change::Added(id));
            }
        }
    }

    fn steps<'a>(&self) -> Vec<ImportStep<'a>> {
        let ids_of = |ids: &[Box<str>]| -> Vec<MessageId> {
            let records = ids.iter().filter_map(|id| self.records.get(id));
            records.flat_map(|(_, record)| record.ids()).collect()
        };
        let mut steps = Vec::new();
        for change in &self.changes {
            match change {
                Change::Added(id) => {
                    let Some((line, record)) = self.records.get(id) else {
                        continue;
                    };
                    let messages = record.messages(*line, self.cwd.as_deref());
                    steps.extend(messages.into_iter().map(ImportStep::Message));
                }
                Change::RewoundTo(id) => {
                    // A record with results has several messages, of which the last result is the latest.
                    let last = id
                        .as_ref()
                        .and_then(|id| ids_of(std::slice::from_ref(id)).pop());
                    steps.push(ImportStep::Rewind(last));
                }
                Change::Compacted { summary, kept } => {
                    let Some((line, record)) = self.records.get(summary) else {
                        continue;
                    };
                    let mut messages = record.messages(*line, self.cwd.as_deref()).into_iter();
                    steps.extend(messages.next().map(|summary| {
                        ImportStep::Compacted(ImportedCompaction::of_all(summary, ids_of(kept)))
                    }));
                }
                Change::Removed { line, records } => steps.push(ImportStep::Removed {
                    line: *line,
                    messages: ids_of(records),
                }),
            }
        }
        steps
    }
}

impl Record {
    /// Returns the ids of the messages that the record becomes. The program's ids are UUIDs, and the ids of results are
    /// derived from the id of their record.
    fn ids(&self) -> Vec<MessageId> {
        let Ok(id) = Uuid::parse_str(&self.id) else {
            return Vec::new();
        };
        let results = self.results().count();
        (0..=results).map(|index| derived_id(id, index)).collect()
    }

    /// Returns the calls that have a result.
    fn results(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = self.tool_calls.iter();
        calls.filter(|call| !call.result.is_null())
    }

    /// Returns the message, and for a response one message for each result of its calls.
    fn messages<'a>(&self, line: usize, cwd: Option<&str>) -> Vec<ImportedMessage<'a>> {
        let mut ids = self.ids().into_iter();
        let mut message = |payload: &Value| {
            let entry = Entry {
                line,
                id: ids.next(),
                time: self.timestamp.as_deref(),
                cwd,
            };
            entry.message(Provider::OpenAi, to_payload(payload))
        };
        let text = text_of(&self.content);
        if &*self.r#type == "user" {
            let is_context = text.trim_start().starts_with(CONTEXT_TAG);
            // Chat Completions has a list of parts for images, and a string for a text alone.
            let content = if images_of(&self.content).is_empty() {
                Value::from(text)
            } else {
                let text = json!({"type": "text", "text": text});
                let images = images_of(&self.content);
                std::iter::once(text).chain(images).collect()
            };
            let mut message = message(&json!({"role": "user", "content": content}));
            message.machine_generated = is_context;
            return vec![message];
        }
        let calls = self.tool_calls.iter();
        let calls = calls.map(|call| chat_call(&call.id, &call.name, &call.args));
        let mut response = message(&chat_response(&text, calls.collect()));
        response.model.clone_from(&self.model);
        response.usage = self.tokens.map(Into::into);
        let results = self.results();
        let results =
            results.map(|call| message(&chat_result(&call.id, &result_text(&call.result))));
        std::iter::once(response).chain(results).collect()
    }
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        // The program's `input` includes the cached tokens.
        Self {
            input_tokens: tokens.input.saturating_sub(tokens.cached),
            cache_read_tokens: tokens.cached,
            cache_write_tokens: 0,
            // The program counts thinking separately, and providers report it as output.
            output_tokens: tokens.output.saturating_add(tokens.thoughts),
        }
    }
}

/// Returns the parts of content, which is a text, a part, or a list of both.
fn parts(content: &Value) -> &[Value] {
    match content {
        Value::Array(parts) => parts,
        Value::Null => &[],
        part => std::slice::from_ref(part),
    }
}

fn text_of(content: &Value) -> String {
    let texts = parts(content).iter().filter_map(|part| match part {
        Value::String(text) => Some(&**text),
        part => part.get("text")?.as_str(),
    });
    texts.collect()
}

fn images_of(content: &Value) -> Vec<Value> {
    let images = parts(content).iter().filter_map(|part| {
        let data = part.get("inlineData")?;
        let (kind, data) = (data.get("mimeType")?.as_str()?, data.get("data")?.as_str()?);
        let url = format!("data:{kind};base64,{data}");
        Some(json!({"type": "image_url", "image_url": {"url": url}}))
    });
    images.collect()
}

/// Returns the text of a result: the outputs of its function responses, and its texts.
fn result_text(result: &Value) -> String {
    let texts = parts(result).iter().filter_map(|part| {
        let Some(response) = part.get("functionResponse") else {
            return Some(text_of(part)).filter(|text| !text.is_empty());
        };
        let response = response.get("response")?;
        let output = response.get("output").or_else(|| response.get("error"));
        Some(match output.unwrap_or(response) {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    });
    texts.collect::<Vec<_>>().join("\n")
}
