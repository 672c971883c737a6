//! The interface to a model that writes session memory.

use async_trait::async_trait;

/// The request to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPrompt {
    /// The id of the session in traces.
    pub conversation: String,
    /// The model that the session's policy names, or `None` for the server's model.
    pub model: Option<Box<str>>,
    /// The model for a second attempt.
    pub fallback_model: Option<Box<str>>,
    /// The system prompt.
    pub system: &'static str,
    /// The only user message: the previous text, the new messages and the instructions.
    pub prompt: String,
    /// Maximum tokens of the output.
    pub max_output_tokens: u32,
}

/// The reply of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryReply {
    /// The text of the sections that changed.
    pub text: String,
    /// True if the text was cut at the output limit.
    pub truncated: bool,
}

/// An error without any content of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryWriteError(pub String);

/// Requests changed sections from a model. The duration is bounded, including retries.
#[async_trait]
pub trait MemoryWriter: Send + Sync + 'static {
    /// Sends one request.
    async fn write(&self, ask: MemoryPrompt) -> Result<MemoryReply, MemoryWriteError>;
}
