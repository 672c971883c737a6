//! One session from the view of its agent: appends new messages with `PrepareContext`, keeps the array, and checks each
//! array with the rules of the provider.

use anyhow::{bail, ensure};
use bytes::Bytes;
use palimpsest_core::validate::{ParsedMessage, validate_parsed};
use palimpsest_core::view::{Provider as CheckedProvider, Target as CheckedTarget};
use palimpsest_proto::context::v1::call_tool_request::Call as ToolCall;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, AppendResult, CallToolRequest, EventKind, ForkSessionRequest, Format,
    MessageInput, Payload, PrepareContextRequest, PrepareContextResponse, PromptPrefix, Provider,
    RestoreContextRequest, Target,
};
use palimpsest_transcripts::replay::TokenSplit;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::story::ScriptedCall;
use crate::client::reply_of;

/// The model of the session.
pub(super) const MODEL: &str = "claude-sonnet-4-5";
/// The context window of the model, in tokens.
pub(super) const WINDOW: u32 = 200_000;
/// The maximum size of a message, in bytes. A reply with a full context window is much smaller.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// The figures of a session's requests, as the service reported them.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestTotals {
    /// The tokens of each request.
    pub(super) sent: Vec<u32>,
    /// The sum of all tokens, split by the prompt cache.
    pub(super) split: TokenSplit,
    /// The requests that are larger than the context window.
    pub(super) over_window: usize,
    /// The first request that is larger than the context window, from 1.
    pub(super) first_over: Option<usize>,
}

impl RequestTotals {
    pub(super) fn largest(&self) -> u32 {
        self.sent.iter().copied().max().unwrap_or(0)
    }
}

/// An appended message, with the texts to compare when it is read back.
#[derive(Debug)]
pub(super) struct SentMessage {
    pub(super) id: String,
    /// The texts of its blocks.
    pub(super) texts: Vec<String>,
}

/// The array before a compaction, and the revision that restores it.
#[derive(Debug)]
pub(super) struct BeforeCompaction {
    pub(super) revision: u64,
    pub(super) array: Vec<Bytes>,
}

pub(super) struct Player {
    pub(super) context: ContextServiceClient<Channel>,
    sessions: SessionServiceClient<Channel>,
    pub(super) session: String,
    pub(super) totals: RequestTotals,
    /// The number of arrays that were checked with the rules of the provider.
    pub(super) checked: usize,
    pub(super) sent: Vec<SentMessage>,
    /// The ids of the user turns, in order.
    pub(super) turns: Vec<String>,
    /// The state before the last compaction.
    pub(super) before: Option<BeforeCompaction>,
    /// The system prompt and the tool definitions.
    prefix: PromptPrefix,
    /// The last known revision of the session.
    pub(super) revision: u64,
    pending: Vec<Value>,
    array: Vec<(Bytes, ParsedMessage)>,
    etag: Bytes,
}

impl Player {
    pub(super) fn new(channel: Channel, session: &str, prefix: PromptPrefix) -> Self {
        Self {
            sessions: SessionServiceClient::new(channel.clone()),
            context: ContextServiceClient::new(channel)
                .max_decoding_message_size(MAX_REPLY_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES),
            session: session.to_owned(),
            totals: RequestTotals::default(),
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

    /// Adds a user message to the next request.
    pub(super) fn add_user_message(&mut self, text: &str) {
        self.pending.push(json!({"role": "user", "content": text}));
    }

    /// Adds an answer of the model and the results of its tool calls to the next request.
    pub(super) fn add_model_turn(&mut self, text: &str, calls: &[ScriptedCall]) {
        let uses = calls.iter().map(|call| {
            json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": call.input})
        });
        self.add_assistant_message(text, uses.collect());
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

    fn add_assistant_message(&mut self, text: &str, uses: Vec<Value>) {
        let mut content = vec![json!({"type": "text", "text": text})];
        content.extend(uses);
        self.pending
            .push(json!({"role": "assistant", "content": content}));
    }

    /// Appends a call of the model to a tool of the service. Returns the call.
    pub(super) async fn append_service_call(
        &mut self,
        text: &str,
        id: &str,
        name: &str,
        input: &Value,
    ) -> anyhow::Result<Value> {
        let tool_use = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        self.add_assistant_message(text, vec![tool_use.clone()]);
        self.flush().await?;
        Ok(tool_use)
    }

    /// Executes an appended call to a tool of the service and adds the result to the next request. Returns the text of
    /// the result.
    pub(super) async fn answer_service_call(&mut self, tool_use: &Value) -> anyhow::Result<String> {
        let result = self.call_tool(tool_use).await?;
        let answer = result["content"].as_str().unwrap_or_default().to_owned();
        ensure!(
            result["is_error"] != true,
            "the tool {} failed: {answer}",
            tool_use["name"]
        );
        self.pending
            .push(json!({"role": "user", "content": [result]}));
        Ok(answer)
    }

    /// Calls a tool of the service. The result is not appended to the session.
    pub(super) async fn call_tool(&mut self, tool_use: &Value) -> anyhow::Result<Value> {
        let request = CallToolRequest {
            session: self.session.clone(),
            call: Some(ToolCall::Payload(payload(tool_use))),
            ..CallToolRequest::default()
        };
        let reply = reply_of(self.context.call_tool(request).await)?;
        self.revision = reply.revision;
        Ok(serde_json::from_slice(&reply.tool_result_json)?)
    }

    /// Appends the pending messages without preparing a view.
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
        let reply = reply_of(self.context.append_messages(request).await)?;
        self.revision = reply.revision;
        self.note(reply.append)
    }

    /// Prepares the array for the next request, checks it, and counts it as sent.
    pub(super) async fn prepare(&mut self) -> anyhow::Result<PrepareContextResponse> {
        let reply = self.fetch().await?;
        ensure!(
            reply.sendable,
            "{}: the view is not sendable ({:?}): report this as a defect, with the seed",
            self.session,
            reply.not_sendable_reason()
        );
        self.check()?;
        let tokens = reply
            .tokens
            .as_ref()
            .map_or(0, |tokens| tokens.total_tokens);
        let cached = reply.cache_ledger.as_ref();
        // The minimum keeps `tokens - read` from underflowing.
        let read = cached.map_or(0, |cache| cache.reused_tokens).min(tokens);
        self.totals.sent.push(tokens);
        self.totals.split.add(TokenSplit {
            cache_read: read.into(),
            cache_write: (tokens - read).into(),
            // The demo assumes an agent that caches its whole prompt, so each token is read or written.
            uncached: 0,
        });
        let window = reply
            .budget
            .as_ref()
            .map_or(WINDOW, |budget| budget.window_tokens);
        if tokens > window {
            self.totals.over_window += 1;
            self.totals.first_over.get_or_insert(self.totals.sent.len());
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
        let reply = reply_of(self.context.prepare_context(request).await)?;
        self.revision = reply.revision;
        self.note(reply.append.clone())?;
        ensure!(
            !reply.view_omitted,
            "{}: the view is too large for one reply: report this as a defect, with the seed",
            self.session
        );
        // A compaction of this reply replaces the array, so the old array is saved first.
        self.save_before_compaction(&reply);
        // The reply is a delta: the first `keep_messages` messages of the array stay.
        self.array.truncate(reply.keep_messages as usize);
        let new = reply.messages_json.iter();
        self.array
            // A message is parsed once, although each request checks the whole array.
            .extend(new.map(|json| (json.clone(), ParsedMessage::new(json))));
        self.etag = reply.etag.clone();
        ensure!(
            self.array.len() == reply.view_messages as usize,
            "{}: the array has {} messages instead of {}: report this as a defect, with the seed",
            self.session,
            self.array.len(),
            reply.view_messages
        );
        Ok(reply)
    }

    /// Saves the last sent array if the reply contains a compaction.
    fn save_before_compaction(&mut self, reply: &PrepareContextResponse) {
        let items = reply.recovery.iter().flat_map(|report| &report.items);
        let compacted = items.filter(|item| item.cause() == EventKind::Compacted);
        // Of several compactions in one reply, the last one has the highest revision.
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
            "{}: {} messages were sent and {} appended: report this as a defect, with the seed",
            self.session,
            pending.len(),
            appended.len()
        );
        for (message, appended) in pending.iter().zip(appended) {
            // Only a user input begins a turn and has an id of one.
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

    /// Checks the array with the rules of the provider.
    fn check(&mut self) -> anyhow::Result<()> {
        let target = CheckedTarget {
            provider: CheckedProvider::Anthropic,
            model: MODEL.into(),
            thinking: false,
            system_messages: false,
        };
        let violations = validate_parsed(&target, self.array.iter().map(|(_, parsed)| parsed));
        if let Some(violation) = violations.first() {
            bail!(
                "{}: the provider would reject request {}: {violation}. Report this as a defect, with the seed",
                self.session,
                self.totals.sent.len() + 1
            );
        }
        self.checked += 1;
        Ok(())
    }

    /// Returns a copy of the array.
    pub(super) fn array(&self) -> Vec<Bytes> {
        self.array.iter().map(|(json, _)| json.clone()).collect()
    }

    /// Undoes the last compaction in a fork, so that the session stays as it was played. Returns the number of restored
    /// messages, and the number of messages before the compaction. `fork` is the resource name of the fork.
    pub(super) async fn undo_in_fork(
        &mut self,
        fork: &str,
    ) -> anyhow::Result<Option<(usize, usize)>> {
        let Some(before) = self.before.take() else {
            return Ok(None);
        };
        let request = ForkSessionRequest {
            session: self.session.clone(),
            session_id: session_id(fork).to_owned(),
            title: "The same, with the last compaction undone".to_owned(),
            ..ForkSessionRequest::default()
        };
        reply_of(self.sessions.fork_session(request).await)?;
        // From here on, this player reads the fork. The played session is left as it is.
        fork.clone_into(&mut self.session);
        let request = RestoreContextRequest {
            session: self.session.clone(),
            to_revision: before.revision,
            // The array is only compared and never sent, so it may exceed the block threshold.
            force: true,
            ..RestoreContextRequest::default()
        };
        reply_of(self.context.restore_context(request).await)?;
        self.fetch().await?;
        let same = before.array.iter().zip(&self.array);
        // An equal message after a different one does not count, because providers cache prefixes.
        let same = same.take_while(|(was, (is, _))| *was == is).count();
        Ok(Some((same, before.array.len())))
    }
}

/// Returns the id in the resource name of a session.
pub(super) fn session_id(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

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

/// Returns the texts of a message, one per block.
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
