//! What a conversation is made of: messages and their blocks, as callers send them.
//!
//! A message never changes once it is in the log. Not here: how a provider writes one (`codec`), and
//! what the model gets to see of it (`view`).

mod block;
mod digest;
mod media;

pub use block::{Block, ResultContent, Thinking, ToolInput, ToolResult, ToolUse};
pub use digest::Digest;
pub use media::{Media, MediaKind, MediaProblem, MediaSource};

use crate::ids::{MessageId, Timestamp};
use crate::json::UnknownFields;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user, and the results of tools.
    User,
    /// The model.
    Assistant,
    /// The operator, in band.
    System,
    /// The operator, in the newer word of one provider.
    Developer,
}

impl Role {
    /// Whether the operator speaks.
    pub const fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }
}

/// What a message is in the life of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageKind {
    /// A part of the conversation.
    #[default]
    Ordinary,
    /// The summary that a compaction left.
    Summary,
    /// The mark that a compaction left.
    Boundary,
    /// Something that was attached again after a compaction.
    Attachment,
    /// What a hook said.
    Hook,
    /// Made by the service or the caller's own machinery.
    Synthetic,
}

impl MessageKind {
    /// Whether it stands around a conversation and is no part of it.
    pub const fn is_framing(self) -> bool {
        matches!(
            self,
            Self::Summary | Self::Boundary | Self::Attachment | Self::Hook
        )
    }
}

/// In whose words unknown fields are written. They are given back to that provider alone: another
/// would refuse them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageOrigin {
    /// The typed contract: meant for whichever provider is asked.
    #[default]
    Typed,
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Chat Completions API.
    OpenAi,
}

/// The model's reported usage of one request. Zero means "not reported".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Usage {
    /// Prompt tokens that were neither read from the cache nor written to it.
    pub input_tokens: u64,
    /// Prompt tokens read from the cache.
    pub cache_read_tokens: u64,
    /// Prompt tokens written to the cache.
    pub cache_write_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
}

impl Usage {
    /// Everything that was in the window when the response ended.
    pub const fn total_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
            .saturating_add(self.output_tokens)
    }

    /// The larger of each: the fragments of one response report different parts of one usage.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.max(other.input_tokens),
            cache_read_tokens: self.cache_read_tokens.max(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.max(other.cache_write_tokens),
            output_tokens: self.output_tokens.max(other.output_tokens),
        }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id, unique in the session.
    pub id: MessageId,
    /// The message it follows, as the caller sees it.
    pub parent: Option<MessageId>,
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
    /// When it was said; the caller's clock.
    pub at: Option<Timestamp>,
    /// The provider's own id; the fragments of one response share it.
    pub provider_message_id: Option<Box<str>>,
    /// The model that wrote it.
    pub model: Option<Box<str>>,
    /// What the provider reported for the request that gave it.
    pub usage: Option<Usage>,
    /// What it is in the life of the session.
    pub kind: MessageKind,
    /// Not a human's words, though the user speaks.
    pub machine_generated: bool,
    /// Never shown to a model.
    pub transcript_only: bool,
    /// In whose words the unknown fields are written.
    pub origin: MessageOrigin,
    /// Unknown fields of the message.
    pub extra: UnknownFields,
    /// The caller's own notes: git branch, working folder, permission mode and the like.
    pub attributes: Vec<(Box<str>, Box<str>)>,
}

impl Message {
    /// A plain message without metadata.
    pub fn new(id: MessageId, role: Role, mut blocks: Vec<Block>) -> Self {
        // It is held as long as its session is in memory, and most have one block.
        blocks.shrink_to_fit();
        Self {
            id,
            parent: None,
            role,
            blocks,
            at: None,
            provider_message_id: None,
            model: None,
            usage: None,
            kind: MessageKind::Ordinary,
            machine_generated: false,
            transcript_only: false,
            origin: MessageOrigin::Typed,
            extra: UnknownFields::default(),
            attributes: Vec::new(),
        }
    }

    /// The size of its content.
    pub fn content_bytes(&self) -> usize {
        self.blocks.iter().map(Block::content_bytes).sum()
    }

    /// Whether a person speaks: such a message begins a user turn.
    pub fn is_real_user_input(&self) -> bool {
        self.role == Role::User
            && self.kind == MessageKind::Ordinary
            && !self.machine_generated
            && !self.transcript_only
            && !self.is_results_alone()
            && self.blocks.iter().any(|block| !block.is_blank())
    }

    /// Whether it is made of tool results alone.
    pub fn is_results_alone(&self) -> bool {
        !self.blocks.is_empty()
            && self
                .blocks
                .iter()
                .all(|block| matches!(block, Block::ToolResult(_)))
    }
}
