//! What is asked of a model, and what it answers.

use std::fmt;

use tokio::time::Instant;

/// A request for a summary of a conversation.
#[derive(Clone)]
pub struct Request {
    /// What the summary is for.
    pub purpose: Purpose,
    /// The model to ask, in place of the endpoint's own. A [`Chain`](crate::Chain) gives it to its
    /// first link only: the others have models of another provider.
    pub model: Option<String>,
    /// The system prompt, best one line. May be empty.
    pub system: String,
    /// The conversation, in plain text: tool calls and their results are told in words.
    pub turns: Vec<ChatMessage>,
    /// What to do with the conversation: the last message, the user's.
    pub instruction: String,
    /// The most that may be written, in tokens.
    pub max_output_tokens: u32,
    /// When the answer is of no more use. Retries and waits end by then.
    pub deadline: Instant,
}

/// What a summary is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A compaction of the view.
    Compaction,
    /// An update of the session memory.
    Memory,
    /// The summary of one span, for a collapse.
    Span,
}

impl Purpose {
    /// A name for telemetry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::Memory => "memory",
            Self::Span => "span",
        }
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user, and what tools said on the user's side.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name that both providers use.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One turn of the conversation. Neighbours of the same role are merged on the way out.
#[derive(Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said. A blank text is left out.
    pub text: String,
}

impl ChatMessage {
    /// A turn of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            text: text.into(),
        }
    }

    /// A turn of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            text: text.into(),
        }
    }
}

// Written by hand, so that no log of a request repeats a conversation.
impl fmt::Debug for ChatMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.role.name(), self.text.len())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("purpose", &self.purpose)
            .field("model", &self.model)
            .field("turns", &self.turns)
            .field("max_output_tokens", &self.max_output_tokens)
            .finish_non_exhaustive()
    }
}

/// What a model answered. Whether it makes a good summary is for the caller to judge.
#[derive(Clone, PartialEq, Eq)]
pub struct SummaryReply {
    /// The text, never blank.
    pub text: String,
    /// Why it ends where it ends.
    pub stop: Stop,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// What it cost.
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

/// Why a text ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The model had finished.
    Complete,
    /// The output limit, or the window, cut it off.
    CutAtCap,
    /// The provider says that the model declined, and there is a text. Without a text it is
    /// [`Error::Refused`](crate::Error::Refused).
    Refused,
}

/// Tokens of one call, or of several together. `input` excludes what came from the cache or went there,
/// for both providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Read at the full price.
    pub input: u64,
    /// Written by the model.
    pub output: u64,
    /// Read from the prompt cache.
    pub cache_read: u64,
    /// Written to the prompt cache.
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
