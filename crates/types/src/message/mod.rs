//! Messages and their blocks, as callers send them.
//!
//! A message never changes after it is in the log. The formats of providers are in `codec`, and the
//! model's view of messages is in `view`.

mod block;
mod canonical;
mod digest;
mod hasher;
mod json_value;
mod media;

pub use block::{Block, CallKind, ResultContent, Thinking, ToolInput, ToolResult, ToolUse};
pub use canonical::{CANONICAL_VERSION, CanonicalDigests};
pub use hasher::Digest;
pub use media::{Media, MediaKind, MediaProblem, MediaSource};

use crate::ids::{MessageId, Timestamp};
use crate::json::UnknownFields;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user. Tool results have this role too.
    User,
    /// The model.
    Assistant,
    /// The operator, by a message inside the conversation.
    System,
    /// The operator, by the role that replaces `system` in newer OpenAI models.
    Developer,
}

impl Role {
    /// Returns true if the operator is the author.
    pub const fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }
}

/// The function of a message in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageKind {
    /// A part of the conversation.
    #[default]
    Ordinary,
    /// The summary of a compaction.
    Summary,
    /// The boundary marker of a compaction.
    Boundary,
    /// Content that was attached again after a compaction.
    Attachment,
    /// The output of a hook.
    Hook,
    /// A message that the service or the caller's software generated.
    Synthetic,
}

impl MessageKind {
    /// Returns true if the message frames the conversation and is not a part of it.
    pub const fn is_framing(self) -> bool {
        matches!(
            self,
            Self::Summary | Self::Boundary | Self::Attachment | Self::Hook
        )
    }
}

/// The API format of a message's unknown fields. These fields are returned to that provider only,
/// because other providers reject them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageOrigin {
    /// The typed contract. The fields are sent to any provider.
    #[default]
    Typed,
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Chat Completions API.
    OpenAi,
    /// OpenAI's Responses API.
    OpenAiResponses,
}

/// The token usage of one request as the provider reported it. 0 means "not reported".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Usage {
    /// The prompt tokens that were neither read from the cache nor written to it.
    pub input_tokens: u64,
    /// The prompt tokens that were read from the cache.
    pub cache_read_tokens: u64,
    /// The prompt tokens that were written to the cache.
    pub cache_write_tokens: u64,
    /// The tokens that the model wrote.
    pub output_tokens: u64,
}

impl Usage {
    /// Returns the number of tokens in the context window at the end of the response.
    pub const fn total_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
            .saturating_add(self.output_tokens)
    }

    /// Returns the maximum of each number. The fragments of one response report different parts of
    /// one usage.
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
    /// The message id, unique within the session.
    pub id: MessageId,
    /// The preceding message according to the caller.
    pub parent: Option<MessageId>,
    /// The author.
    pub role: Role,
    /// The content, in order.
    pub blocks: Vec<Block>,
    /// The time of the message, by the caller's clock.
    pub at: Option<Timestamp>,
    /// The provider's id. The fragments of one response share it.
    pub provider_message_id: Option<Box<str>>,
    /// The model that wrote the message.
    pub model: Option<Box<str>>,
    /// The usage that the provider reported for the request.
    pub usage: Option<Usage>,
    /// The function of the message in the session.
    pub kind: MessageKind,
    /// True if the role is user but no person wrote the message.
    pub machine_generated: bool,
    /// True if no model ever sees the message.
    pub transcript_only: bool,
    /// The API format of the unknown fields.
    pub origin: MessageOrigin,
    /// Message fields that the service does not interpret.
    pub extra: UnknownFields,
    /// The caller's attributes, such as git branch, working directory and permission mode.
    pub attributes: Vec<(Box<str>, Box<str>)>,
}

impl Message {
    /// Creates a message without metadata.
    pub fn new(id: MessageId, role: Role, mut blocks: Vec<Block>) -> Self {
        // The message stays in memory as long as its session, and most messages have one block.
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

    /// Returns the size of the content in bytes.
    pub fn content_bytes(&self) -> usize {
        self.blocks.iter().map(Block::content_bytes).sum()
    }

    /// Returns true if a person wrote the message. Such a message starts a user turn.
    pub fn is_real_user_input(&self) -> bool {
        self.role == Role::User
            && self.kind == MessageKind::Ordinary
            && !self.machine_generated
            && !self.transcript_only
            && !self.has_only_results()
            && !self.is_item_of_software()
            && self.blocks.iter().any(|block| !block.is_blank())
    }

    /// Returns true if the message is an item of OpenAI's Responses API that the caller's software adds, such as a
    /// compaction.
    fn is_item_of_software(&self) -> bool {
        // The types `input_text`, `input_image` and `input_file` are content of a message.
        let is_item = |block: &Block| matches!(block, Block::Opaque { kind, .. } if !kind.starts_with("input_") && &**kind != "message");
        self.origin == MessageOrigin::OpenAiResponses && self.blocks.iter().any(is_item)
    }

    /// Returns true if the message contains tool results only.
    pub fn has_only_results(&self) -> bool {
        !self.blocks.is_empty()
            && self
                .blocks
                .iter()
                .all(|block| matches!(block, Block::ToolResult(_)))
    }
}
