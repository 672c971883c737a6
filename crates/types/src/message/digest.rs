//! Content digests of messages: the same content always has the same 16-byte digest.
//!
//! A digest distinguishes a retry from a change and a re-emission from a new message. Metadata (ids,
//! times, usage) is not part of it.

use super::hasher::{Digest, Hasher};
use super::{Block, Message, ResultContent, Role, Thinking, ToolInput};
use crate::json::UnknownFields;

impl Digest {
    /// Computes the digest of a message's role and blocks.
    pub fn of_message(message: &Message) -> Self {
        let mut hasher = Hasher::new();
        hasher.role(message.role);
        hasher.blocks(&message.blocks);
        hasher.finish()
    }

    /// Computes the digest of a tool result's content.
    pub fn of_result(content: &ResultContent) -> Self {
        let mut hasher = Hasher::new();
        hasher.result(content);
        hasher.finish()
    }
}

impl Hasher {
    pub(super) fn role(&mut self, role: Role) {
        self.tag(match role {
            Role::User => 0,
            Role::Assistant => 1,
            Role::System => 2,
            Role::Developer => 3,
        });
    }

    fn extra(&mut self, extra: &UnknownFields) {
        // `cache_control` moves between blocks when a caller sends the same content again, so it is
        // excluded.
        for (name, value) in extra.iter().filter(|(name, _)| *name != "cache_control") {
            self.tag(1);
            self.text(name);
            self.text(value.as_str());
        }
        self.tag(0);
    }

    fn blocks(&mut self, blocks: &[Block]) {
        self.length(blocks.len());
        for block in blocks {
            self.block(block);
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Text { text, extra } => {
                self.tag(0);
                self.text(text);
                self.extra(extra);
            }
            Block::Media(media) => {
                self.media_source(media, |hasher, json| hasher.text(json.as_str()));
                self.extra(&media.extra);
            }
            Block::ToolUse(call) => {
                self.tag(2);
                self.text(&call.id);
                self.text(&call.name);
                self.tag(u8::from(matches!(call.input, ToolInput::Text(_))));
                self.text(call.input.as_str());
                self.extra(&call.extra);
            }
            Block::ToolResult(result) => {
                self.tag(3);
                self.text(&result.tool_use_id);
                self.result(&result.content);
                // Callers may add or omit `is_error: false` when they send a message again, so both
                // forms have the same digest.
                self.tag(match result.is_error {
                    None | Some(false) => 0,
                    Some(true) => 1,
                });
                self.extra(&result.extra);
            }
            Block::Thinking(Thinking::Plain {
                thinking,
                signature,
                extra,
            }) => {
                self.tag(4);
                self.text(thinking);
                self.text(signature.as_deref().unwrap_or_default());
                self.extra(extra);
            }
            Block::Thinking(Thinking::Redacted { data, extra }) => {
                self.tag(5);
                self.text(data);
                self.extra(extra);
            }
            Block::Opaque { kind, json } => {
                self.tag(6);
                self.text(kind);
                self.text(json.as_str());
            }
        }
    }

    fn result(&mut self, content: &ResultContent) {
        match content {
            ResultContent::None => self.tag(0),
            ResultContent::Text(text) => {
                self.tag(1);
                self.text(text);
            }
            ResultContent::Blocks(blocks) => {
                self.tag(2);
                self.blocks(blocks);
            }
        }
    }
}
