//! What was found out about a token, by its digest. Bounded: two halves, of which the older is let go when
//! the newer is full, so that what is asked for stays. An LRU crate would keep an exact order, which nobody
//! needs here.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

/// The digest that stands for a token: tokens themselves are not kept.
pub(super) type TokenDigest = [u8; 32];

/// The digest of a token.
pub(super) fn digest_of(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// The cache.
#[derive(Debug)]
pub(super) struct TokenCache<T> {
    half: usize,
    newer: HashMap<TokenDigest, T>,
    older: HashMap<TokenDigest, T>,
}

impl<T: Clone> TokenCache<T> {
    /// One of at most so many entries.
    pub(super) fn new(max: usize) -> Self {
        Self {
            half: max.div_ceil(2).max(1),
            newer: HashMap::new(),
            older: HashMap::new(),
        }
    }

    /// What is known under a digest.
    pub(super) fn get(&mut self, digest: &TokenDigest) -> Option<T> {
        if let Some(found) = self.newer.get(digest) {
            return Some(found.clone());
        }
        let found = self.older.remove(digest)?;
        self.put(*digest, found.clone());
        Some(found)
    }

    /// Remembers something.
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
    fn it_is_bounded_and_keeps_what_is_asked_for() {
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
