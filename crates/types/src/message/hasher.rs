//! Digests of bytes, and the hasher that computes them. Nothing here depends on the content of messages.

use std::fmt;

use super::{Media, MediaKind, MediaSource};
use crate::json::RawJson;

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
            // Without buffered bytes, the group is hashed where it is, without a copy.
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

    pub(super) fn length(&mut self, length: usize) {
        // Digests are stored, so the byte order must not depend on the machine.
        self.update(&(length as u64).to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.update(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Hashes the kind and the source of media. `hash_json` hashes a source of another kind.
    pub(super) fn media_source(
        &mut self,
        media: &Media,
        hash_json: impl FnOnce(&mut Self, &RawJson),
    ) {
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
                hash_json(self, json);
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
