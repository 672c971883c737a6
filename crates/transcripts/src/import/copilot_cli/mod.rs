//! Importer for the event files of the Copilot CLI: JSON lines with events. They become OpenAI chat messages.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Usage;
use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::imported::{ImportStep, Imported, ImportedCompaction, ImportedSession};
use super::line_reader::{LineReader, Remarks, parse_line, read_lines};
use super::payload::{Entry, chat_call, chat_response, chat_result, to_payload};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventLine<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    agent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EventData {
    content: Option<Box<str>>,
    transformed_content: Option<Box<str>>,
    model: Option<Box<str>>,
    tool_requests: Vec<ToolRequest>,
    tool_call_id: Option<Box<str>>,
    /// The call of the subagent that the event belongs to.
    parent_tool_call_id: Option<Box<str>>,
    result: Option<ToolOutput>,
    error: Option<ToolError>,
    context: Option<SessionContext>,
    summary_content: Option<Box<str>>,
    pre_compaction_tokens: Option<u32>,
    up_to_event_id: Option<Box<str>>,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolRequest {
    tool_call_id: Box<str>,
    name: Box<str>,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct ToolOutput {
    content: Option<Box<str>>,
}

#[derive(Deserialize)]
struct ToolError {
    message: Option<Box<str>>,
}

#[derive(Deserialize)]
struct SessionContext {
    cwd: Option<Box<str>>,
    branch: Option<Box<str>>,
}

pub(super) fn read(bytes: &[u8]) -> Imported<'_> {
    read_lines::<EventReader<'_>>(bytes)
}

#[derive(Default)]
struct EventReader<'a> {
    remarks: Remarks,
    context: Option<SessionContext>,
    /// One session for the main conversation and one per subagent, by the agent's id.
    sessions: BTreeMap<String, SessionBuilder<'a>>,
}

#[derive(Default)]
struct SessionBuilder<'a> {
    steps: Vec<ImportStep<'a>>,
    /// The messages that no rewind has removed, in order.
    shown: Vec<MessageId>,
    /// The system messages, which no compaction replaces.
    system: Vec<MessageId>,
    /// The number of shown messages before an event, by the id of the event.
    before_event: HashMap<Box<str>, usize>,
    /// The index of the step with the latest message of the model.
    last_response: Option<usize>,
}

impl<'a> LineReader<'a> for EventReader<'a> {
    fn line(&mut self, number: usize, text: &'a str) -> Result<(), String> {
        let line: EventLine<'a> = parse_line(text)?;
        let data = line.data.map_or("{}", RawValue::get);
        // The data of other events can have any form and is not parsed.
        let mut data: EventData = match &*line.r#type {
            "system.message"
            | "system.notification"
            | "user.message"
            | "assistant.message"
            | "assistant.usage"
            | "tool.execution_complete"
            | "session.start"
            | "session.resume"
            | "session.compaction_complete"
            | "session.snapshot_rewind" => parse_line(data)?,
            kind => {
                self.remarks.skip(kind);
                return Ok(());
            }
        };
        let agent = line.agent_id.as_deref().map(Into::into);
        let agent = agent.or(data.parent_tool_call_id.take());
        let builder = self.sessions.entry(agent.unwrap_or_default().into());
        let builder = builder.or_default();
        // A rewind names the first event that it removes.
        if let Some(id) = &line.id {
            builder
                .before_event
                .insert((**id).into(), builder.shown.len());
        }
        let context = self.context.as_ref();
        let entry = Entry {
            line: number,
            id: line.id.as_deref().and_then(MessageId::parse),
            time: line.timestamp.as_deref(),
            cwd: context.and_then(|context| context.cwd.as_deref()),
        };
        match &*line.r#type {
            "session.start" | "session.resume" => {
                self.context = data.context.or(self.context.take());
                self.remarks.skip(&line.r#type);
            }
            "session.compaction_complete" => return builder.compacted(entry, data),
            "session.snapshot_rewind" => builder.rewind(data.up_to_event_id.as_deref()),
            "assistant.usage" => {
                builder.set_usage(&data);
                self.remarks.skip(&line.r#type);
            }
            kind => builder.message(entry, kind, data),
        }
        Ok(())
    }

    fn remarks(&mut self) -> &mut Remarks {
        &mut self.remarks
    }

    fn finish(self) -> Imported<'a> {
        let context = self.context.as_ref();
        let cwd = context.and_then(|context| context.cwd.clone());
        let branch = context.and_then(|context| context.branch.clone());
        let sessions = self.sessions.into_iter();
        let sessions = sessions.map(|(agent, builder)| ImportedSession {
            subagent: !agent.is_empty(),
            suffix: agent,
            project_path: cwd.clone().unwrap_or_default(),
            branch: branch.clone().unwrap_or_default(),
            steps: builder.steps,
            ..ImportedSession::default()
        });
        self.remarks.with_sessions(sessions)
    }
}

impl SessionBuilder<'_> {
    fn message(&mut self, entry: Entry<'_>, kind: &str, data: EventData) {
        let content = data.content.unwrap_or_default();
        let payload = match kind {
            "system.message" => json!({"role": "system", "content": content}),
            // The transformed content is what the model reads.
            "user.message" => {
                let content = data.transformed_content.unwrap_or(content);
                json!({"role": "user", "content": content})
            }
            "system.notification" => json!({"role": "user", "content": content}),
            "assistant.message" => {
                let calls = data.tool_requests.iter().map(|request| {
                    chat_call(&request.tool_call_id, &request.name, &request.arguments)
                });
                chat_response(&content, calls.collect())
            }
            _ => {
                let output = data.result.and_then(|result| result.content);
                let error = data.error.and_then(|error| error.message);
                let content = output.or(error).unwrap_or_default();
                chat_result(&data.tool_call_id.unwrap_or_default(), &content)
            }
        };
        let mut message = entry.message(Provider::OpenAi, to_payload(&payload));
        message.machine_generated = kind == "system.notification";
        if kind == "assistant.message" {
            message.model = data.model;
            self.last_response = Some(self.steps.len());
        }
        self.shown.extend(message.id);
        if kind == "system.message" {
            self.system.extend(message.id);
        }
        self.steps.push(ImportStep::Message(message));
    }

    fn set_usage(&mut self, data: &EventData) {
        if let Some(at) = self.last_response.take() {
            // The program's `inputTokens` includes the cached tokens.
            let cached = data
                .cache_read_tokens
                .saturating_add(data.cache_write_tokens);
            // Steps are only appended, so the index stays valid.
            self.steps[at].set_usage(Usage {
                input_tokens: data.input_tokens.saturating_sub(cached),
                cache_read_tokens: data.cache_read_tokens,
                cache_write_tokens: data.cache_write_tokens,
                output_tokens: data.output_tokens,
            });
        }
    }

    /// Removes the event with the id and all later ones.
    fn rewind(&mut self, event: Option<&str>) {
        let before = event.and_then(|event| self.before_event.get(event));
        if let Some(before) = before.filter(|before| **before < self.shown.len()) {
            self.shown.truncate(*before);
            let last = self.shown.last().copied();
            self.steps.push(ImportStep::Rewind(last));
        }
    }

    fn compacted(&mut self, entry: Entry<'_>, data: EventData) -> Result<(), String> {
        let summary = data.summary_content.filter(|summary| !summary.is_empty());
        let summary = summary.ok_or("marks a compaction without a summary")?;
        let payload = to_payload(&json!({"role": "user", "content": summary}));
        let summary = entry.message(Provider::OpenAi, payload);
        let kept = self.system.clone();
        self.shown.clone_from(&kept);
        self.shown.extend(summary.id);
        // No later rewind goes back before the summary.
        self.before_event.clear();
        let step = ImportedCompaction {
            before_tokens: data.pre_compaction_tokens,
            ..ImportedCompaction::of_all(summary, kept)
        };
        self.steps.push(ImportStep::Compacted(step));
        Ok(())
    }
}
