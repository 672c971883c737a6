//! The interface between the gateway and the context of sessions.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::array::ChainHead;
use palimpsest_core::ids::{ProjectId, SessionId, SessionKey};
use palimpsest_core::message::{Digest, Usage};
use palimpsest_engine::turn::JsonParts;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::reading::{ResponseApi, ResponseEnd, ResponseSummary};

/// The context of sessions, as the gateway uses it.
#[async_trait]
pub trait ContextPort: fmt::Debug + Send + Sync + 'static {
    /// Takes the conversation of a request and returns the body for the model.
    async fn prepare(&self, request: ModelRequest) -> Result<PreparedRequest, Unmanaged>;

    /// Records a response. The agent gets the last event of the response after the record, or after
    /// `gateway.hold_timeout_ms`.
    async fn record(&self, response: RecordedResponse) -> Result<(), RecordError>;

    /// Runs the calls of offered tools in a response.
    async fn run_tools(&self, calls: OwnCalls) -> Result<ToolRound, RecordError>;
}

/// A request to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRequest {
    /// The project of the caller.
    pub project: ProjectId,
    /// The digest of the credentials. A conversation without a name is searched among those with equal credentials.
    pub scope: Digest,
    /// The API of the request.
    pub api: ResponseApi,
    /// The session that a header names.
    pub session: Option<NamedSession>,
    /// The body as JSON, without a content coding.
    pub body: JsonParts,
    /// The purpose of the request.
    pub purpose: Purpose,
}

/// A session that a header names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSession {
    /// The session.
    pub id: SessionId,
    /// True if the caller named a session of Palimpsest. False for the conversation of an agent, under whose name the
    /// agent can send side requests too.
    pub is_own: bool,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A response of the model.
    Response,
    /// A response of the model, after the provider rejected the first body as too long.
    ShorterPrompt {
        /// The number of tokens above the limit, if the provider reports it.
        gap_tokens: Option<u64>,
    },
    /// A count of tokens. It changes no session.
    Count,
    /// A compaction, which the gateway answers itself.
    Compaction {
        /// True if the answer consists of the summary, so that the session needs one.
        requires_summary: bool,
    },
}

/// The options of a request to a model that traces report.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelOptions {
    /// The maximum output in tokens. `None` if the request has none.
    pub max_output_tokens: Option<u64>,
    /// The temperature. `None` if the request has none.
    pub temperature: Option<f64>,
    /// True if the agent asks for a stream.
    pub streams: bool,
}

/// A request whose conversation a session has taken.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedRequest {
    /// The body for the model.
    pub body: ModelBody,
    /// The model that the request names.
    pub model: Option<String>,
    /// The options that traces report.
    pub options: ModelOptions,
    /// The place for the response.
    pub place: ResponsePlace,
    /// The tools that the body offers in addition to the agent's. `None` without such tools.
    pub offered: Option<OfferedTools>,
    /// The edits of the context that the session has served, and that the body does not contain. `None` without them.
    pub edits: Option<EditReport>,
}

/// Edits of the context that a session has served in place of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditReport {
    /// The edits. Empty if the body only lacks summaries that the agent sent back.
    pub kinds: Vec<EditKind>,
    /// The summary of a compaction, which the response begins with.
    pub summary: Option<String>,
    /// Set if the response ends after the summary.
    pub pause: Option<Pause>,
    /// The cleared tool results of the view.
    pub cleared: ClearedResults,
    /// The values of the header `anthropic-beta` that the body does not need.
    pub unused_betas: Vec<&'static str>,
}

/// The kind of an edit of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditKind {
    /// A compaction.
    Compact,
    /// The removal of old tool results.
    ClearToolUses,
    /// The removal of thinking. Only a request to keep all of it is served.
    ClearThinking,
}

impl EditKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Compact, Self::ClearToolUses, Self::ClearThinking];

    /// Returns the kind of a type in the provider's API.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.api_type() == name)
    }

    /// Returns the type in the provider's API.
    pub const fn api_type(self) -> &'static str {
        match self {
            Self::Compact => "compact_20260112",
            Self::ClearToolUses => "clear_tool_uses_20250919",
            Self::ClearThinking => "clear_thinking_20251015",
        }
    }

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::ClearToolUses => "clear_tool_uses",
            Self::ClearThinking => "clear_thinking",
        }
    }
}

impl EditReport {
    /// Returns true if an edit has an effect on the prompt.
    pub fn is_applied(&self, kind: EditKind) -> bool {
        match kind {
            EditKind::Compact => self.summary.is_some(),
            EditKind::ClearToolUses => self.cleared.count > 0,
            EditKind::ClearThinking => false,
        }
    }

    /// Returns true if the response differs from that of the provider.
    pub fn changes_response(&self) -> bool {
        !self.kinds.is_empty()
    }
}

/// A response that ends after the summary of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// The id of the response.
    pub id: String,
    /// True if the agent asked for a stream.
    pub streams: bool,
}

/// Tool results of a view that are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClearedResults {
    /// The number of results.
    pub count: u64,
    /// The tokens that this frees, as the session estimates them.
    pub tokens: u64,
}

/// The tools of the service that a body offers to the model. The gateway runs their calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedTools {
    /// The names.
    pub names: Arc<[String]>,
    /// The position after the last message in the body.
    pub array_end: usize,
}

/// A response with calls of offered tools.
#[derive(Debug, Clone)]
pub struct OwnCalls {
    /// The session of the response.
    pub session: SessionKey,
    /// The API of the response.
    pub api: ResponseApi,
    /// The names of the offered tools.
    pub names: Arc<[String]>,
    /// The JSON of the response, as the provider sends it without a stream.
    pub json: Bytes,
    /// False if the response has used up its calls. Each call then fails, and the model is told to continue.
    pub may_run: bool,
}

/// The results of calls of offered tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRound {
    /// The messages of the model with the calls, as JSON for an array of a request, with commas between them.
    pub calls: Vec<u8>,
    /// The results, in the same form.
    pub results: Vec<u8>,
    /// The number of calls by their outcome.
    pub counts: ToolCounts,
}

/// The number of calls of offered tools by their outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolCounts {
    /// Calls with a result.
    pub ok: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls of a response that had used up its calls.
    pub exhausted: u64,
}

/// A part of a response: the calls of offered tools that the model made, and their results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRound {
    /// The JSON of the provider's response.
    pub json: Bytes,
    /// The results, as JSON for an array of a request, with commas between them.
    pub results: Bytes,
}

/// A request that can be sent to the model.
#[derive(Debug)]
pub struct PreparedRequest {
    /// The request.
    pub request: ManagedRequest,
    /// The commit of the conversation. `None` if the conversation is committed.
    pub commit: Option<PendingCommit>,
}

impl From<ManagedRequest> for PreparedRequest {
    fn from(request: ManagedRequest) -> Self {
        Self {
            request,
            commit: None,
        }
    }
}

/// The task that commits a conversation. It continues if this value is dropped.
#[derive(Debug)]
pub struct PendingCommit {
    task: JoinHandle<Result<ManagedRequest, Unmanaged>>,
    deadline: Instant,
}

impl PendingCommit {
    /// Creates a commit from its task. Its outcome is a timeout after the deadline.
    pub fn new(task: JoinHandle<Result<ManagedRequest, Unmanaged>>, deadline: Instant) -> Self {
        Self { task, deadline }
    }

    /// Waits for the commit. Returns the request as the committed conversation has it.
    pub async fn outcome(self) -> Result<ManagedRequest, Unmanaged> {
        // A dropped `JoinHandle` detaches its task, so the commit continues after the deadline.
        match timeout_at(self.deadline, self.task).await {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(error)) => {
                tracing::error!(%error, "preparing a request ended with a panic");
                Err(Unmanaged::Defect)
            }
            Err(_elapsed) => Err(Unmanaged::Timeout),
        }
    }
}

/// The body of a request for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelBody {
    /// No level has changed the conversation, so the agent's own body is sent.
    Original,
    /// The agent's body with the view in place of the conversation.
    View(JsonParts),
    /// A level has changed the conversation, and the view cannot be sent. The agent's own body is sent.
    Unsendable,
    /// The conversation was compacted on request. Nothing is sent.
    Compacted(Box<CompactedConversation>),
}

/// A conversation that was compacted on request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactedConversation {
    /// The unique part of the id of the answer.
    pub id: String,
    /// The time, in seconds since 1970.
    pub created_at_seconds: i64,
    /// The items of the compacted conversation as JSON, in order.
    pub items: Vec<Bytes>,
    /// The item with the last summary as JSON. `None` if the conversation has no summary.
    pub summary: Option<Bytes>,
    /// The tokens of the model that wrote the summary.
    pub usage: Usage,
}

/// The session and the end of its array to which a response belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePlace {
    /// The session.
    pub session: SessionKey,
    /// The end of the array that the model got.
    pub after: ChainHead,
}

/// The reason for a request whose conversation no session has taken. It is forwarded as the agent sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmanaged {
    /// The body exceeds `gateway.max_request_bytes`.
    TooLarge,
    /// `gateway.max_request_bytes_in_flight` is in use.
    Memory,
    /// The body has an unknown or invalid content coding.
    Encoding,
    /// The body is not in a form that Palimpsest can read.
    Unreadable,
    /// The provider keeps a part of the conversation, so the body does not contain all of it.
    Stateful,
    /// The session rejects the conversation, for example because of a limit or a quota.
    Rejected,
    /// The store is not available.
    Store,
    /// The session was not ready within `gateway.prepare_timeout_ms`.
    Timeout,
    /// A defect of Palimpsest.
    Defect,
}

impl Unmanaged {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::TooLarge,
        Self::Memory,
        Self::Encoding,
        Self::Unreadable,
        Self::Stateful,
        Self::Rejected,
        Self::Store,
        Self::Timeout,
        Self::Defect,
    ];

    /// Returns the name in headers, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Memory => "memory",
            Self::Encoding => "encoding",
            Self::Unreadable => "unreadable",
            Self::Stateful => "stateful",
            Self::Rejected => "rejected",
            Self::Store => "store",
            Self::Timeout => "timeout",
            Self::Defect => "defect",
        }
    }
}

/// A response of a provider to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// The place of the response.
    pub place: ResponsePlace,
    /// The API of the response.
    pub api: ResponseApi,
    /// The end of the response.
    pub end: ResponseEnd,
    /// The provider's earlier responses within this one. Each ended with calls of offered tools only.
    pub rounds: Vec<ResponseRound>,
    /// The JSON of the response, as the provider sends it without a stream.
    pub json: Bytes,
    /// The results of calls of offered tools in the response, beside calls of the agent's tools. Empty without such calls.
    pub results: Bytes,
    /// The names of the offered tools. Empty if none were offered.
    pub offered: Arc<[String]>,
    /// Usage and stop reason of the response.
    pub summary: ResponseSummary,
}

/// The reason for a response that was not recorded. The text contains no content.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);
