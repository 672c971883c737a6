//! What a message says, in sixteen bytes: the same content always gives the same digest.
//!
//! It tells a retry from a change, and a re-emitted message from a new one; metadata (ids, times,
//! usage) takes no part in it.

use std::fmt;

use super::{
    Block, Media, MediaKind, MediaSource, Message, ResultContent, Role, Thinking, ToolInput,
};
use crate::json::UnknownFields;

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

/// How many bytes are digested at one time. BLAKE3 works on many of its chunks side by side, but only on
/// those that it is given together and that begin where such a group may.
const GROUP: usize = 64 * 1024;

/// Every part is preceded by its length or its kind, so that no two contents spell the same.
struct Hasher {
    /// What came since the last whole group.
    waiting: Vec<u8>,
    /// The groups, once there is one.
    groups: Option<blake3::Hasher>,
}

impl Hasher {
    fn new() -> Self {
        Self {
            waiting: Vec::with_capacity(512),
            groups: None,
        }
    }

    fn finish(self) -> Digest {
        let hash = match self.groups {
            None => blake3::hash(&self.waiting),
            Some(mut groups) => groups.update(&self.waiting).finalize(),
        };
        let mut short = [0; 16];
        short.copy_from_slice(&hash.as_bytes()[..16]);
        Digest(short)
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while self.waiting.len() + bytes.len() >= GROUP {
            let (now, rest) = bytes.split_at(GROUP - self.waiting.len());
            let groups = self.groups.get_or_insert_with(blake3::Hasher::new);
            if self.waiting.is_empty() {
                groups.update(now);
            } else {
                self.waiting.extend_from_slice(now);
                groups.update(&self.waiting);
                self.waiting.clear();
            }
            bytes = rest;
        }
        self.waiting.extend_from_slice(bytes);
    }

    fn tag(&mut self, tag: u8) {
        self.update(&[tag]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.update(&(bytes.len() as u64).to_le_bytes());
        self.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn extra(&mut self, extra: &UnknownFields) {
        // A cache marker moves from block to block between two sendings of the same content.
        for (name, value) in extra.iter().filter(|(name, _)| *name != "cache_control") {
            self.tag(1);
            self.text(name);
            self.text(value.as_str());
        }
        self.tag(0);
    }

    fn blocks(&mut self, blocks: &[Block]) {
        self.update(&(blocks.len() as u64).to_le_bytes());
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a text is handed over, it is the digest of all of it.
        #[test]
        fn parts_make_the_digest_of_the_whole(
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
