//! Importer for the exports of OpenCode: one document with a session, whose messages have parts. They become Anthropic
//! messages.

#[cfg(test)]
mod tests;

use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::message::Usage;
use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::imported::{ImportStep, Imported, ImportedCompaction, ImportedMessage, ImportedSession};
use super::line_reader::{Remarks, parse_line};
use super::payload::{Entry, to_payload};

#[derive(Deserialize)]
struct Export {
    info: SessionInfo,
    messages: Vec<ExportedMessage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionInfo {
    title: Option<Box<str>>,
    #[serde(default)]
    directory: Box<str>,
    #[serde(rename = "parentID")]
    parent: Option<Box<str>>,
}

#[derive(Deserialize)]
struct ExportedMessage {
    info: MessageInfo,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct MessageInfo {
    id: Box<str>,
    role: Box<str>,
    time: Option<MessageTime>,
    #[serde(rename = "modelID")]
    model: Option<Box<str>>,
    /// True for a response that is the summary of a compaction. The messages of a user have an object.
    #[serde(default)]
    summary: Value,
}

#[derive(Deserialize)]
struct MessageTime {
    created: i64,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Part {
    Text {
        text: String,
        #[serde(default)]
        synthetic: bool,
        #[serde(default)]
        ignored: bool,
    },
    Reasoning {
        text: String,
        #[serde(default)]
        metadata: Value,
    },
    File {
        mime: String,
        url: String,
        filename: Option<String>,
    },
    Tool {
        #[serde(rename = "callID")]
        call: String,
        tool: String,
        state: ToolState,
    },
    StepStart,
    StepFinish {
        tokens: Tokens,
    },
    Compaction {
        #[serde(default)]
        auto: bool,
        tail_start_id: Option<Box<str>>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct ToolState {
    #[serde(default)]
    input: Value,
    output: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    input: u64,
    output: u64,
    #[serde(default)]
    reasoning: u64,
    #[serde(default)]
    cache: CacheTokens,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CacheTokens {
    read: u64,
    write: u64,
}

pub(super) fn read(bytes: &[u8]) -> Imported<'_> {
    let mut remarks = Remarks::default();
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned());
    let export: Export = match text.and_then(parse_line) {
        Ok(export) => export,
        Err(problem) => {
            remarks.defect(1, problem);
            return remarks.with_sessions([]);
        }
    };
    let mut reader = ExportReader {
        cwd: export.info.directory,
        ..ExportReader::default()
    };
    for message in &export.messages {
        reader.message(message);
    }
    remarks.with_sessions([ImportedSession {
        title: export.info.title,
        project_path: reader.cwd,
        subagent: export.info.parent.is_some(),
        steps: reader.steps,
        ..ImportedSession::default()
    }])
}

#[derive(Default)]
struct ExportReader<'a> {
    cwd: Box<str>,
    steps: Vec<ImportStep<'a>>,
    /// The messages so far, with the ids of the program's messages.
    known: Vec<(Box<str>, MessageId)>,
    /// A requested compaction whose summary follows.
    compaction: Option<RequestedCompaction>,
}

struct RequestedCompaction {
    is_manual: bool,
    kept: Vec<MessageId>,
}

impl ExportReader<'_> {
    fn message(&mut self, message: &ExportedMessage) {
        if &*message.info.role == "assistant" {
            if message.info.summary == Value::Bool(true)
                && let Some(requested) = self.compaction.take()
            {
                self.compacted(message, requested);
            } else {
                self.response(message);
            }
            return;
        }
        let requested = message.parts.iter().find_map(|part| match part {
            Part::Compaction {
                auto,
                tail_start_id,
            } => Some((!auto, tail_start_id.as_deref())),
            _ => None,
        });
        if let Some((is_manual, first)) = requested {
            let mut known = self.known.iter();
            // One message of the program can become several, and the first of them begins the tail.
            let first = known.position(|(name, _)| Some(&**name) == first);
            let kept = first.map_or(&[][..], |first| &self.known[first..]);
            let kept = kept.iter().map(|(_, id)| *id).collect();
            self.compaction = Some(RequestedCompaction { is_manual, kept });
            return;
        }
        let blocks: Vec<Value> = message.parts.iter().filter_map(block_of_user).collect();
        if !blocks.is_empty() {
            // A file, or one text of a person, makes the whole message a person's.
            let is_by_machine = message
                .parts
                .iter()
                .all(|part| matches!(part, Part::Text { synthetic, .. } if *synthetic));
            let payload = json!({"role": "user", "content": blocks});
            self.push(message, 0, &payload, |message| {
                message.machine_generated = is_by_machine;
            });
        }
    }

    /// Adds the steps of a response. Each one is a call of the model.
    fn response(&mut self, message: &ExportedMessage) {
        let mut number = 0;
        for step in message.parts.split(|part| matches!(part, Part::StepStart)) {
            let (mut blocks, mut results, mut usage) = (Vec::new(), Vec::new(), None);
            for part in step {
                match part {
                    Part::Text { text, ignored, .. } if !ignored && !text.is_empty() => {
                        blocks.push(json!({"type": "text", "text": text}));
                    }
                    Part::Reasoning { text, metadata } => {
                        // Thinking without a signature is left out, because no provider accepts it.
                        if let Some(signature) = metadata.pointer("/anthropic/signature") {
                            blocks.push(json!({
                                "type": "thinking", "thinking": text, "signature": signature,
                            }));
                        }
                    }
                    Part::Tool { call, tool, state } => {
                        let input = &state.input;
                        blocks.push(json!({
                            "type": "tool_use", "id": call, "name": tool, "input": input,
                        }));
                        let failed = state.output.is_none();
                        if let Some(text) = state.output.as_ref().or(state.error.as_ref()) {
                            results.push(json!({
                                "type": "tool_result", "tool_use_id": call, "content": text,
                                "is_error": failed,
                            }));
                        }
                    }
                    Part::StepFinish { tokens } => usage = Some(Usage::from(tokens)),
                    _ => {}
                }
            }
            if !blocks.is_empty() {
                let payload = json!({"role": "assistant", "content": blocks});
                let model = message.info.model.clone();
                self.push(message, number, &payload, |message| {
                    (message.model, message.usage) = (model, usage);
                });
            }
            if !results.is_empty() {
                let payload = json!({"role": "user", "content": results});
                self.push(message, number + 1, &payload, |_| {});
            }
            // Each step has two numbers, so a missing result does not change the ids of later steps.
            number += 2;
        }
    }

    fn compacted(&mut self, message: &ExportedMessage, requested: RequestedCompaction) {
        let texts = message.parts.iter().filter_map(|part| match part {
            Part::Text { text, .. } => Some(&**text),
            _ => None,
        });
        let text: String = texts.collect::<Vec<_>>().join("\n\n");
        let payload = json!({"role": "user", "content": text});
        let summary = self.imported(message, 0, &payload);
        self.know(message, &summary);
        self.steps.push(ImportStep::Compacted(ImportedCompaction {
            manual: requested.is_manual,
            ..ImportedCompaction::of_all(summary, requested.kept)
        }));
    }

    /// Adds a message. `number` distinguishes the messages that one of the program's messages becomes.
    fn push(
        &mut self,
        message: &ExportedMessage,
        number: u32,
        payload: &Value,
        change: impl FnOnce(&mut ImportedMessage<'_>),
    ) {
        let mut imported = self.imported(message, number, payload);
        change(&mut imported);
        self.know(message, &imported);
        self.steps.push(ImportStep::Message(imported));
    }

    fn know(&mut self, message: &ExportedMessage, imported: &ImportedMessage<'_>) {
        let id = imported.id.map(|id| (message.info.id.clone(), id));
        self.known.extend(id);
    }

    fn imported<'m>(
        &self,
        message: &ExportedMessage,
        number: u32,
        payload: &Value,
    ) -> ImportedMessage<'m> {
        let entry = Entry {
            // The document is one line or many, and its parts have no lines of their own.
            line: 1,
            id: Some(id_of(&message.info.id, number)),
            time: None,
            cwd: Some(&*self.cwd).filter(|cwd| !cwd.is_empty()),
        };
        let time = message.info.time.as_ref();
        ImportedMessage {
            at: time.map(|time| Timestamp::from_millis(time.created)),
            ..entry.message(Provider::Anthropic, to_payload(payload))
        }
    }
}

/// Returns an id that is the same in each import.
fn id_of(message: &str, number: u32) -> MessageId {
    let digest = Sha256::digest(format!("{message}/{number}"));
    let bytes: [u8; 16] = std::array::from_fn(|at| digest[at]);
    MessageId::new(Uuid::from_bytes(bytes))
}

fn block_of_user(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text, ignored, .. } if !ignored && !text.is_empty() => {
            Some(json!({"type": "text", "text": text}))
        }
        Part::File {
            mime,
            url,
            filename,
        } => {
            // The URL of an image contains it: `data:image/png;base64,…`.
            let data = url.split_once(";base64,").map(|(_, data)| data);
            if let Some(data) = data.filter(|_| mime.starts_with("image/")) {
                let source = json!({"type": "base64", "media_type": mime, "data": data});
                return Some(json!({"type": "image", "source": source}));
            }
            let name = filename.as_deref().unwrap_or("a file");
            Some(json!({"type": "text", "text": format!("[Attached {name}, {mime}]")}))
        }
        _ => None,
    }
}

impl From<&Tokens> for Usage {
    fn from(tokens: &Tokens) -> Self {
        Self {
            input_tokens: tokens.input,
            cache_read_tokens: tokens.cache.read,
            cache_write_tokens: tokens.cache.write,
            // The program counts reasoning separately, and providers report it as output.
            output_tokens: tokens.output.saturating_add(tokens.reasoning),
        }
    }
}
