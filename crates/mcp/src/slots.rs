//! The number of requests in progress, in total and of each credential.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;

/// The maximum number of requests in progress. With the maximum size of a request, they need 32 MiB.
pub(crate) const MAX_REQUESTS: usize = 128;
/// The part of them that one credential can have, so that others are served too. Callers without a credential share it.
pub(crate) const MAX_OF_CREDENTIAL: usize = MAX_REQUESTS / 4 * 3;

/// Counts the requests in progress.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    counts: Arc<Mutex<Counts>>,
    /// Digests are keyed, so that no caller can choose a credential with the digest of another one.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// The requests of each credential, by its digest. Credentials without requests have no entry.
    of_credential: HashMap<u64, usize>,
}

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Arc<Mutex<Counts>>,
    credential: u64,
}

impl Slots {
    /// Begins a request with these credentials. `None` if too many requests are in progress.
    pub(crate) fn take(&self, credentials: &HeaderMap) -> Option<Slot> {
        let values = credentials.values().map(http::HeaderValue::as_bytes);
        let credential = self.hasher.hash_one(values.collect::<Vec<_>>());
        let mut counts = lock(&self.counts);
        let of_credential = counts.of_credential.get(&credential).copied();
        let of_credential = of_credential.unwrap_or_default();
        // Nothing is counted before both limits are checked, so a rejected request leaves no trace.
        if counts.all >= MAX_REQUESTS || of_credential >= MAX_OF_CREDENTIAL {
            return None;
        }
        counts.all += 1;
        counts.of_credential.insert(credential, of_credential + 1);
        Some(Slot {
            counts: Arc::clone(&self.counts),
            credential,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.all -= 1;
        if let Some(count) = counts.of_credential.get_mut(&self.credential) {
            *count -= 1;
            if *count == 0 {
                counts.of_credential.remove(&self.credential);
            }
        }
    }
}

/// The counts are complete after each step, also after a panic.
fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_credential_leaves_slots_to_others() {
        let slots = Slots::default();
        let of = |key: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", key.parse().unwrap());
            headers
        };
        let take = |key: &'static str| -> Vec<Slot> {
            std::iter::from_fn(|| slots.take(&of(key))).collect()
        };
        // One credential gets 96 of the 128 slots, and the next one the other 32.
        let first = take("Bearer a");
        assert_eq!(first.len(), MAX_OF_CREDENTIAL);
        let second = take("Bearer b");
        assert_eq!(second.len(), MAX_REQUESTS - MAX_OF_CREDENTIAL);
        assert!(slots.take(&HeaderMap::new()).is_none());
        drop((first, second));
        assert!(lock(&slots.counts).of_credential.is_empty());
        assert_eq!(take("Bearer b").len(), MAX_OF_CREDENTIAL);
    }
}
