//! Requests to a model and its replies.

use std::fmt;

use tokio::time::Instant;

/// A request for a summary of a conversation.
#[derive(Clone)]
pub struct SummaryRequest {
    /// The purpose of the summary.
    pub purpose: Purpose,
    /// The id of the conversation in traces. Not sent to the provider.
    pub conversation: Option<String>,
    /// The model to use in place of the endpoint's own. A [`FallbackChain`](crate::FallbackChain) passes it to the
    /// first link only, because other providers have other models.
    pub model: Option<String>,
    /// The system prompt, ideally one line. May be empty.
    pub system: String,
    /// The conversation as plain text. Tool calls and results are described in words.
    pub turns: Vec<ChatMessage>,
    /// The instruction, sent as the last user message.
    pub instruction: String,
    /// The maximum output in tokens.
    pub max_output_tokens: u32,
    /// The deadline. All retries and waits end before it.
    pub deadline: Instant,
}

/// The purpose of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A compaction of the view.
    Compaction,
    /// An update of session memory.
    Memory,
    /// The placeholder of a span.
    Span,
}

impl Purpose {
    /// Returns the name for telemetry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::Memory => "memory",
            Self::Span => "span",
        }
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user. Includes tool results.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Returns the name that both APIs use.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of the conversation. Adjacent messages of the same role are merged in the request.
#[derive(Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// The author.
    pub role: Role,
    /// The text. A blank text is omitted from the request.
    pub text: String,
}

impl ChatMessage {
    /// Creates a message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            text: text.into(),
        }
    }

    /// Creates a message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            text: text.into(),
        }
    }
}

// The implementations are manual, so that no log of a request contains the conversation.
impl fmt::Debug for ChatMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.role.name(), self.text.len())
    }
}

impl fmt::Debug for SummaryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("purpose", &self.purpose)
            .field("model", &self.model)
            .field("turns", &self.turns)
            .field("max_output_tokens", &self.max_output_tokens)
            .finish_non_exhaustive()
    }
}

/// The reply of a model. The caller validates the summary.
#[derive(Clone, PartialEq, Eq)]
pub struct SummaryReply {
    /// The text. It is never blank.
    pub text: String,
    /// The reason why the text ended.
    pub stop: StopReason,
    /// The model that answered, as named by the provider.
    pub model: String,
    /// The token usage.
    pub usage: Usage,
}

impl fmt::Debug for SummaryReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("text_bytes", &self.text.len())
            .field("stop", &self.stop)
            .field("model", &self.model)
            .field("usage", &self.usage)
            .finish()
    }
}

/// The reason why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The model finished.
    EndTurn,
    /// The output limit or the context window cut the text.
    MaxTokens,
    /// The provider reports a refusal, with a text. A refusal without text is
    /// [`Error::Refused`](crate::Error::Refused).
    Refusal,
}

/// The token usage of one or more calls. For both providers, `input` excludes tokens read from or
/// written to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens at full price.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the prompt cache.
    pub cache_read: u64,
    /// Input tokens written to the prompt cache.
    pub cache_write: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}
