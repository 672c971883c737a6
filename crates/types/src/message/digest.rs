//! Content digests of messages: the same content always has the same 16-byte digest.
//!
//! A digest distinguishes a retry from a change and a re-emission from a new message. Metadata (ids,
//! times, usage) is not part of it.

use std::fmt;

use super::{
    Block, Media, MediaKind, MediaSource, Message, ResultContent, Role, Thinking, ToolInput,
};
use crate::json::UnknownFields;

/// A BLAKE3 hash, truncated to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Creates a digest from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Computes the digest of one byte string.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.bytes(bytes);
        hasher.finish()
    }

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

    /// Returns the digest of this digest and `next`. The last digest of a chain identifies the whole
    /// chain.
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

/// The number of bytes per update of the hasher. BLAKE3 hashes many chunks in parallel only if it
/// receives them in one aligned update.
const GROUP: usize = 64 * 1024;

/// A hasher that writes a length or a tag before every part, so that no two contents have the same
/// encoding.
pub(super) struct Hasher {
    /// The bytes since the last full group.
    buffer: Vec<u8>,
    /// The hasher of the full groups. `None` until the first group is full.
    groups: Option<blake3::Hasher>,
}

impl Hasher {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(512),
            groups: None,
        }
    }

    pub(super) fn finish(self) -> Digest {
        let hash = match self.groups {
            None => blake3::hash(&self.buffer),
            Some(mut groups) => groups.update(&self.buffer).finalize(),
        };
        let mut short = [0; 16];
        short.copy_from_slice(&hash.as_bytes()[..16]);
        Digest(short)
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while self.buffer.len() + bytes.len() >= GROUP {
            let (now, rest) = bytes.split_at(GROUP - self.buffer.len());
            let groups = self.groups.get_or_insert_with(blake3::Hasher::new);
            if self.buffer.is_empty() {
                groups.update(now);
            } else {
                self.buffer.extend_from_slice(now);
                groups.update(&self.buffer);
                self.buffer.clear();
            }
            bytes = rest;
        }
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn tag(&mut self, tag: u8) {
        self.update(&[tag]);
    }

    pub(super) fn role(&mut self, role: Role) {
        self.tag(match role {
            Role::User => 0,
            Role::Assistant => 1,
            Role::System => 2,
            Role::Developer => 3,
        });
    }

    pub(super) fn length(&mut self, length: usize) {
        self.update(&(length as u64).to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.update(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The digest does not depend on how the input is split into updates.
        #[test]
        fn chained_digests_equal_the_digest_of_the_whole(
            parts in prop::collection::vec((any::<u8>(), 0_usize..100_000), 0..6)
        ) {
            let mut hasher = Hasher::new();
            let mut whole = Vec::new();
            for (byte, length) in parts {
                let part = vec![byte; length];
                hasher.update(&part);
                whole.extend(part);
            }
            let hash = blake3::hash(&whole);
            let digest = hasher.finish();
            prop_assert_eq!(&hash.as_bytes()[..16], digest.as_bytes());
        }
    }
}
