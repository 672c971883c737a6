//! A bounded cache of verified tokens, by digest.
//!
//! The cache has two halves. When the newer half is full, it replaces the older one, so frequently used entries stay.
//! An LRU crate would maintain an exact order, which is not needed here.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

/// The SHA-256 digest of a token. Tokens themselves are not stored.
pub(super) type TokenDigest = [u8; 32];

pub(super) fn digest_of(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// A cache with two generations.
#[derive(Debug)]
pub(super) struct TokenCache<T> {
    half: usize,
    newer: HashMap<TokenDigest, T>,
    older: HashMap<TokenDigest, T>,
}

impl<T: Clone> TokenCache<T> {
    /// Creates a cache with at most `max` entries, rounded up to an even number.
    pub(super) fn new(max: usize) -> Self {
        Self {
            half: max.div_ceil(2).max(1),
            newer: HashMap::new(),
            older: HashMap::new(),
        }
    }

    /// Returns the value of a digest. A value from the older half moves to the newer one.
    pub(super) fn get(&mut self, digest: &TokenDigest) -> Option<T> {
        if let Some(found) = self.newer.get(digest) {
            return Some(found.clone());
        }
        // Moving a used entry to the newer half protects it from the next replacement.
        let found = self.older.remove(digest)?;
        self.put(*digest, found.clone());
        Some(found)
    }

    /// Inserts a value, and drops the older half if the newer one is full.
    pub(super) fn put(&mut self, digest: TokenDigest, value: T) {
        if self.newer.len() >= self.half {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(digest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_used_entries() {
        let digest = |n: u16| {
            let mut digest = [0; 32];
            digest[..2].copy_from_slice(&n.to_be_bytes());
            digest
        };
        let mut cache = TokenCache::new(100);
        cache.put(digest(0), 0);
        for n in 1..10_000 {
            cache.put(digest(n), n);
            assert_eq!(cache.get(&digest(0)), Some(0));
            assert!(cache.newer.len() + cache.older.len() <= 101);
        }
        assert_eq!(cache.get(&digest(1)), None);
    }
}
