//! The strategies of a compaction, and the content that it drops.

use crate::ids::Ordinal;

/// The source of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The text of session memory.
    SessionMemory,
    /// A model that the service calls.
    Model,
    /// Extraction from the structure of the messages, without a model.
    Extractive,
    /// The caller's model.
    Delegated,
    /// No summary. The oldest rounds leave the view.
    DropOldest,
}

/// The oldest rounds of a compaction, which left the view without being covered by its summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedContent {
    /// Number of messages.
    pub messages: u32,
    /// Number of rounds.
    pub rounds: u32,
    /// Estimated tokens.
    pub tokens: u32,
    /// The first message.
    pub first: Ordinal,
    /// The last message.
    pub last: Ordinal,
}
