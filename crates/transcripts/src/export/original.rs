//! The data of an exported message.

use std::sync::Arc;

use palimpsest_core::ids::Ordinal;
use palimpsest_core::message::Message;
use palimpsest_core::session::{TranscriptEntry, Visibility};

/// An original message and its index entry.
#[derive(Debug, Clone)]
pub struct OriginalMessage {
    /// The position in the transcript.
    pub ordinal: Ordinal,
    /// The index entry.
    pub entry: TranscriptEntry,
    /// The content.
    pub message: Arc<Message>,
    /// The stored results of the message that are lost permanently.
    pub unreadable: Vec<UnreadableResult>,
}

impl OriginalMessage {
    /// Returns true for a recorded response that is no part of the conversation: the caller sent another version of it
    /// back, or none.
    pub(super) fn is_superseded_response(&self) -> bool {
        self.entry.visibility == Visibility::TranscriptOnly && !self.message.transcript_only
    }
}

/// A stored result that is lost permanently. The message keeps its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableResult {
    /// The index of the block.
    pub block: u16,
    /// The name of the file.
    pub file: Box<str>,
    /// The reason.
    pub loss: BlobLoss,
}

/// The reason for which a stored result is lost permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobLoss {
    /// The file does not exist.
    Missing,
    /// The content of the file does not match its digest in the log.
    Damaged,
}

impl BlobLoss {
    /// Returns the reason as written in exports and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "MISSING",
            Self::Damaged => "DAMAGED",
        }
    }
}

/// A stored result whose message has not been appended. Its content exists only in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingResult {
    /// The provider's id of the call.
    pub tool_use_id: Box<str>,
    /// The name of the tool.
    pub tool: Box<str>,
    /// The name of the file.
    pub file: Box<str>,
    /// The SHA-256 of the file.
    pub sha256: [u8; 32],
}
