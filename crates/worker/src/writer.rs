//! A model that keeps the notes.

use async_trait::async_trait;

/// What a model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPrompt {
    /// The model that the session's policy names; the server's own when it names none.
    pub model: Option<Box<str>>,
    /// The one that is tried when that one fails.
    pub fallback_model: Option<Box<str>>,
    /// The system prompt.
    pub system: &'static str,
    /// The one user message: the notes, what came since, and what is wanted.
    pub prompt: String,
    /// The most tokens that it may write.
    pub max_output_tokens: u32,
}

/// What it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryReply {
    /// The text.
    pub text: String,
    /// Whether it was cut at the output cap.
    pub truncated: bool,
}

/// Why it wrote nothing. Never holds content of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WriteError(pub String);

/// Asks a model for the sections that changed. It answers in bounded time, retries included.
#[async_trait]
pub trait MemoryWriter: Send + Sync + 'static {
    /// Asks once.
    async fn write(&self, ask: MemoryPrompt) -> Result<MemoryReply, WriteError>;
}
