//! Cached prefixes that expire. The oldest ones are evicted.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use blake3::Hash;

struct Entry {
    lifetime: Duration,
    expires: Duration,
}

/// The cached prefixes.
pub(super) struct Entries {
    all: HashMap<Hash, Entry>,
    order: VecDeque<Hash>,
    most: usize,
}

impl Entries {
    /// Returns an empty cache for this number of prefixes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            all: HashMap::new(),
            order: VecDeque::new(),
            most,
        }
    }

    pub(super) fn is_live(&self, prefix: &Hash, now: Duration) -> bool {
        self.all
            .get(prefix)
            .is_some_and(|entry| now < entry.expires)
    }

    /// Uses a prefix: refreshes a live one with its own lifetime, and writes another one with this lifetime.
    pub(super) fn hold(&mut self, prefix: Hash, lifetime: Duration, now: Duration) {
        let is_live = self.is_live(&prefix, now);
        let entry = self.all.entry(prefix).or_insert_with(|| {
            self.order.push_back(prefix);
            Entry {
                lifetime,
                expires: now,
            }
        });
        if !is_live {
            entry.lifetime = lifetime;
        }
        entry.expires = now + entry.lifetime;
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.all.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Entries;

    #[test]
    fn a_use_refreshes_and_the_oldest_is_evicted() {
        let second = Duration::from_secs;
        let hash = |byte: u8| blake3::hash(&[byte]);
        let mut entries = Entries::new(2);
        entries.hold(hash(1), second(10), second(0));
        assert!(entries.is_live(&hash(1), second(9)));
        assert!(!entries.is_live(&hash(1), second(10)));
        // A use keeps the lifetime of a live prefix.
        entries.hold(hash(1), second(100), second(9));
        assert!(entries.is_live(&hash(1), second(18)));
        assert!(!entries.is_live(&hash(1), second(19)));
        entries.hold(hash(1), second(100), second(20));
        assert!(entries.is_live(&hash(1), second(119)));
        entries.hold(hash(2), second(100), second(20));
        entries.hold(hash(3), second(100), second(20));
        assert!(!entries.is_live(&hash(1), second(21)));
        assert!(entries.is_live(&hash(3), second(21)));
    }
}
