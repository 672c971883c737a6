//! One session as its agent drives it: what is new goes in with `PrepareContext`, the array comes out, and
//! each array is checked by the provider's rules before it counts as sent.

use anyhow::{bail, ensure};
use bytes::Bytes;
use palimpsest_core::validate::{ParsedMessage, validate_parsed};
use palimpsest_core::view::{Provider as CheckedProvider, Target as CheckedTarget};
use palimpsest_proto::context::v1::call_tool_request::Call as ToolCall;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, AppendResult, CallToolRequest, EventKind, Format, MessageInput, Payload,
    PrepareContextRequest, PrepareContextResponse, PromptPrefix, Provider, RestoreContextRequest,
    Target,
};
use palimpsest_transcripts::replay::TokenSplit;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::story::ScriptedCall;
use crate::client::said;

/// The model that the session is played for, and its window.
pub(super) const MODEL: &str = "claude-sonnet-4-5";
pub(super) const WINDOW: u32 = 200_000;
/// The window that a reply may fill, with room to spare for what is told beside it.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// What was counted of one session's requests, as the service told it.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestTotals {
    /// The tokens of each request.
    pub(super) sent: Vec<u32>,
    /// All of them, by what the provider's cache does with them.
    pub(super) split: TokenSplit,
    /// Requests that are larger than the model's window.
    pub(super) over_window: usize,
    /// The first of them, from 1.
    pub(super) first_over: Option<usize>,
}

impl RequestTotals {
    pub(super) fn largest(&self) -> u32 {
        self.sent.iter().copied().max().unwrap_or(0)
    }
}

/// A message that was handed in, and what must come back when it is asked for.
#[derive(Debug)]
pub(super) struct SentMessage {
    pub(super) id: String,
    /// The texts of its blocks.
    pub(super) texts: Vec<String>,
}

/// How the view was before a compaction, and the way back to it.
#[derive(Debug)]
pub(super) struct BeforeCompaction {
    pub(super) revision: u64,
    pub(super) array: Vec<Bytes>,
}

pub(super) struct Player {
    pub(super) context: ContextServiceClient<Channel>,
    pub(super) session: String,
    pub(super) tally: RequestTotals,
    /// How many arrays were checked by the provider's rules.
    pub(super) checked: usize,
    pub(super) sent: Vec<SentMessage>,
    /// The ids of the turns, in the order in which they began.
    pub(super) turns: Vec<String>,
    /// Before the last compaction.
    pub(super) before: Option<BeforeCompaction>,
    /// What stands before the messages of each request.
    prefix: PromptPrefix,
    /// The session's revision, as it was told last.
    pub(super) revision: u64,
    pending: Vec<Value>,
    array: Vec<(Bytes, ParsedMessage)>,
    etag: Bytes,
}

impl Player {
    pub(super) fn new(channel: Channel, session: &str, prefix: PromptPrefix) -> Self {
        Self {
            context: ContextServiceClient::new(channel)
                .max_decoding_message_size(MAX_REPLY_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES),
            session: session.to_owned(),
            tally: RequestTotals::default(),
            checked: 0,
            sent: Vec::new(),
            turns: Vec::new(),
            before: None,
            prefix,
            revision: 0,
            pending: Vec::new(),
            array: Vec::new(),
            etag: Bytes::new(),
        }
    }

    /// What a person says; it goes out with the next request.
    pub(super) fn hear(&mut self, text: &str) {
        self.pending.push(json!({"role": "user", "content": text}));
    }

    /// What the model said and its tools returned; it goes out with the next request.
    pub(super) fn answered(&mut self, text: &str, calls: &[ScriptedCall]) {
        let uses = calls.iter().map(|call| {
            json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": call.input})
        });
        self.model_said(text, uses.collect());
        if calls.is_empty() {
            return;
        }
        let results: Vec<Value> = calls
            .iter()
            .map(|call| {
                let mut result = json!({
                    "type": "tool_result", "tool_use_id": call.id, "content": call.result,
                });
                if call.failed {
                    result["is_error"] = true.into();
                }
                result
            })
            .collect();
        self.pending
            .push(json!({"role": "user", "content": results}));
    }

    fn model_said(&mut self, text: &str, uses: Vec<Value>) {
        let mut content = vec![json!({"type": "text", "text": text})];
        content.extend(uses);
        self.pending
            .push(json!({"role": "assistant", "content": content}));
    }

    /// The model calls one of the service's tools; returns what the tool answered.
    pub(super) async fn call_own(
        &mut self,
        text: &str,
        id: &str,
        name: &str,
        input: &Value,
    ) -> anyhow::Result<String> {
        let tool_use = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        self.model_said(text, vec![tool_use.clone()]);
        self.flush().await?;
        let result = self.ask_tool(&tool_use).await?;
        let answer = result["content"].as_str().unwrap_or_default().to_owned();
        ensure!(
            result["is_error"] != true,
            "the tool {name} refused: {answer}"
        );
        self.pending
            .push(json!({"role": "user", "content": [result]}));
        Ok(answer)
    }

    /// Runs a tool of the service; what it answers is in no view yet.
    pub(super) async fn ask_tool(&mut self, tool_use: &Value) -> anyhow::Result<Value> {
        let request = CallToolRequest {
            session: self.session.clone(),
            call: Some(ToolCall::Payload(payload(tool_use))),
            ..CallToolRequest::default()
        };
        let reply = self.context.call_tool(request).await;
        let reply = reply.map_err(|status| said(&status))?.into_inner();
        self.revision = reply.revision;
        Ok(serde_json::from_slice(&reply.tool_result_json)?)
    }

    /// Hands in what is pending, without a request for the model.
    pub(super) async fn flush(&mut self) -> anyhow::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let request = AppendMessagesRequest {
            session: self.session.clone(),
            messages: inputs(&self.pending),
            target: Some(target()),
            ..AppendMessagesRequest::default()
        };
        let reply = self.context.append_messages(request).await;
        let reply = reply.map_err(|status| said(&status))?.into_inner();
        self.revision = reply.revision;
        self.note(reply.append)
    }

    /// Prepares the array for the next request, checks it, and counts it as sent.
    pub(super) async fn prepare(&mut self) -> anyhow::Result<PrepareContextResponse> {
        let reply = self.fetch().await?;
        ensure!(
            reply.sendable,
            "{}: the view cannot be sent ({:?})",
            self.session,
            reply.not_sendable_reason()
        );
        self.check()?;
        let tokens = reply
            .tokens
            .as_ref()
            .map_or(0, |tokens| tokens.total_tokens);
        let cached = reply.cache_ledger.as_ref();
        let read = cached.map_or(0, |cache| cache.reused_tokens).min(tokens);
        self.tally.sent.push(tokens);
        self.tally.split.add(TokenSplit {
            cache_read: read.into(),
            cache_write: (tokens - read).into(),
            uncached: 0,
        });
        let window = reply
            .budget
            .as_ref()
            .map_or(WINDOW, |budget| budget.window_tokens);
        if tokens > window {
            self.tally.over_window += 1;
            self.tally.first_over.get_or_insert(self.tally.sent.len());
        }
        Ok(reply)
    }

    async fn fetch(&mut self) -> anyhow::Result<PrepareContextResponse> {
        let request = PrepareContextRequest {
            session: self.session.clone(),
            messages: inputs(&self.pending),
            target: Some(target()),
            known_etag: self.etag.clone(),
            prompt_prefix: Some(self.prefix.clone()),
            ..PrepareContextRequest::default()
        };
        let reply = self.context.prepare_context(request).await;
        let reply = reply.map_err(|status| said(&status))?.into_inner();
        self.revision = reply.revision;
        self.note(reply.append.clone())?;
        ensure!(
            !reply.view_omitted,
            "{}: the view is larger than one reply may be",
            self.session
        );
        self.remember(&reply);
        self.array.truncate(reply.keep_messages as usize);
        let new = reply.messages_json.iter();
        self.array
            .extend(new.map(|json| (json.clone(), ParsedMessage::new(json))));
        self.etag = reply.etag.clone();
        ensure!(
            self.array.len() == reply.view_messages as usize,
            "{}: the array has {} messages and not {}",
            self.session,
            self.array.len(),
            reply.view_messages
        );
        Ok(reply)
    }

    /// Keeps the array as it was sent last, when a compaction is about to take its place.
    fn remember(&mut self, reply: &PrepareContextResponse) {
        let items = reply.recovery.iter().flat_map(|report| &report.items);
        let compacted = items.filter(|item| item.cause() == EventKind::Compacted);
        if let Some(revision) = compacted.map(|item| item.restore_to_revision).max() {
            self.before = Some(BeforeCompaction {
                revision,
                array: self.array(),
            });
        }
    }

    fn note(&mut self, append: Option<AppendResult>) -> anyhow::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let appended = append.map(|append| append.messages).unwrap_or_default();
        ensure!(
            appended.len() == pending.len(),
            "{}: {} messages were handed in and {} noted",
            self.session,
            pending.len(),
            appended.len()
        );
        for (message, appended) in pending.iter().zip(appended) {
            if !appended.turn_id.is_empty() {
                self.turns.push(appended.turn_id);
            }
            self.sent.push(SentMessage {
                id: appended.message_id,
                texts: texts(message),
            });
        }
        Ok(())
    }

    /// Would a provider take this array?
    fn check(&mut self) -> anyhow::Result<()> {
        let target = CheckedTarget {
            provider: CheckedProvider::Anthropic,
            model: MODEL.into(),
            thinking: false,
        };
        let violations = validate_parsed(&target, self.array.iter().map(|(_, parsed)| parsed));
        if let Some(violation) = violations.first() {
            bail!(
                "{}: request {} would be refused: {violation}",
                self.session,
                self.tally.sent.len() + 1
            );
        }
        self.checked += 1;
        Ok(())
    }

    /// The array as it is.
    pub(super) fn array(&self) -> Vec<Bytes> {
        self.array.iter().map(|(json, _)| json.clone()).collect()
    }

    /// Takes the last compaction back; returns how many messages are as they were sent, of how many.
    pub(super) async fn undo(&mut self) -> anyhow::Result<Option<(usize, usize)>> {
        let Some(before) = self.before.take() else {
            return Ok(None);
        };
        let request = RestoreContextRequest {
            session: self.session.clone(),
            to_revision: before.revision,
            force: true,
            ..RestoreContextRequest::default()
        };
        let reply = self.context.restore_context(request).await;
        reply.map_err(|status| said(&status))?;
        self.fetch().await?;
        let same = before.array.iter().zip(&self.array);
        let same = same.take_while(|(was, (is, _))| *was == is).count();
        Ok(Some((same, before.array.len())))
    }
}

/// What all requests are for.
fn target() -> Target {
    Target {
        provider: Provider::Anthropic.into(),
        model: MODEL.to_owned(),
        window_tokens: Some(WINDOW),
        ..Target::default()
    }
}

fn payload(json: &Value) -> Payload {
    Payload {
        format: Format::AnthropicMessages.into(),
        json: json.to_string().into(),
    }
}

fn inputs(messages: &[Value]) -> Vec<MessageInput> {
    let input = |message: &Value| MessageInput {
        content: Some(Content::Payload(payload(message))),
        ..MessageInput::default()
    };
    messages.iter().map(input).collect()
}

/// The texts of a message, block by block.
fn texts(message: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match &message["content"] {
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str() {
                Some("tool_use") => text(&block["input"]),
                Some("tool_result") => text(&block["content"]),
                _ => text(&block["text"]),
            })
            .collect(),
        content => vec![text(content)],
    }
}
