//! What a message says, in sixteen bytes: the same content always gives the same digest.
//!
//! It tells a retry from a change, and a re-emitted message from a new one; metadata (ids, times,
//! usage) takes no part in it.

use std::fmt;

use super::{
    Block, Media, MediaKind, MediaSource, Message, ResultContent, Role, Thinking, ToolInput,
};
use crate::json::Extra;

/// A truncated BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest([u8; 16]);

impl Digest {
    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The digest of one text.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.bytes(bytes);
        hasher.finish()
    }

    /// The digest of what a message says.
    pub fn of_message(message: &Message) -> Self {
        let mut hasher = Hasher::new();
        hasher.tag(match message.role {
            Role::User => 0,
            Role::Assistant => 1,
            Role::System => 2,
            Role::Developer => 3,
        });
        hasher.blocks(&message.blocks);
        hasher.finish()
    }

    /// The digest of what a tool returned.
    pub fn of_result(content: &ResultContent) -> Self {
        let mut hasher = Hasher::new();
        hasher.result(content);
        hasher.finish()
    }

    /// This digest, continued by `next`: a chain whose last link stands for the whole.
    #[must_use]
    pub fn chain(self, next: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.bytes(&self.0);
        hasher.bytes(next);
        hasher.finish()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Every part is preceded by its length or its kind, so that no two contents spell the same.
struct Hasher(blake3::Hasher);

impl Hasher {
    fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    fn finish(self) -> Digest {
        let mut short = [0; 16];
        short.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        Digest(short)
    }

    fn tag(&mut self, tag: u8) {
        self.0.update(&[tag]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn extra(&mut self, extra: &Extra) {
        // A cache marker moves from block to block between two sendings of the same content.
        for (name, value) in extra.iter().filter(|(name, _)| *name != "cache_control") {
            self.tag(1);
            self.text(name);
            self.text(value.as_str());
        }
        self.tag(0);
    }

    fn blocks(&mut self, blocks: &[Block]) {
        self.0.update(&(blocks.len() as u64).to_le_bytes());
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
            Block::Media(media) => self.media(media),
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

    fn media(&mut self, media: &Media) {
        self.tag(match media.kind {
            MediaKind::Image => 10,
            MediaKind::Document => 11,
        });
        match &media.source {
            MediaSource::Base64 { media_type, data } => {
                self.tag(0);
                self.text(media_type);
                self.text(data);
            }
            MediaSource::Url(url) => {
                self.tag(1);
                self.text(url);
            }
            MediaSource::Other(json) => {
                self.tag(2);
                self.text(json.as_str());
            }
        }
        self.extra(&media.extra);
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
