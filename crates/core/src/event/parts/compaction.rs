//! The strategy of a compaction, and the messages that it drops.

use crate::ids::Ordinal;

/// How a summary is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The running summary stands in.
    SessionMemory,
    /// A model of the service writes it.
    Model,
    /// It is extracted from the structure of the messages.
    Extractive,
    /// The caller's own model writes it.
    Delegated,
    /// There is none: the oldest rounds just leave.
    DropOldest,
}

/// What leaves without being in a summary's input, because that was too long: the oldest rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedContent {
    /// How many messages.
    pub messages: u32,
    /// How many rounds.
    pub rounds: u32,
    /// Their estimated tokens.
    pub tokens: u32,
    /// The first of them.
    pub first: Ordinal,
    /// The last of them.
    pub last: Ordinal,
}
