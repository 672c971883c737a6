//! The cache of loaded sessions: least recently used first out, limited by bytes.
//!
//! No existing crate fits. The weight of a session changes while it is cached. The handle of a session in use must
//! stay, because a second handle would compete with the first. Only the session behind the handle can be evicted, as
//! soon as no call works on it. A watcher does not need the session in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use palimpsest_core::ids::SessionKey;

use super::handle::{LoadedSession, SessionHandle};

/// Estimated bytes of an entry without its session.
const ENTRY_BYTES: usize = 512;
/// Entries in use that one eviction checks before it gives up. The next eviction starts with other entries.
const MAX_PASSED_OVER: usize = 64;

#[derive(Debug)]
pub(super) struct SessionCache {
    max_bytes: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<SessionKey, Slot>,
    /// The sessions, ordered by the number of their last use.
    order: BTreeMap<u64, SessionKey>,
    uses: u64,
    bytes: usize,
    hits: u64,
    misses: u64,
    evictions: u64,
}

/// Fill level and counters of the session cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheStats {
    /// Sessions in memory.
    pub sessions: usize,
    /// Approximate bytes of these sessions.
    pub bytes: usize,
    /// The limit of `bytes`.
    pub max_bytes: usize,
    /// Lookups that found the session in the cache.
    pub hits: u64,
    /// Lookups that did not find the session in the cache.
    pub misses: u64,
    /// Sessions that were evicted.
    pub evictions: u64,
}

#[derive(Debug)]
struct Slot {
    handle: Arc<SessionHandle>,
    used: u64,
    bytes: usize,
}

impl SessionCache {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            inner: Mutex::default(),
        }
    }

    /// Returns the handle of a session, creating it if needed. The session may not be loaded yet.
    pub(super) fn handle(&self, key: &SessionKey) -> Arc<SessionHandle> {
        let mut inner = self.lock();
        inner.uses += 1;
        let now = inner.uses;
        if let Some(slot) = inner.slots.get_mut(key) {
            let handle = Arc::clone(&slot.handle);
            let before = std::mem::replace(&mut slot.used, now);
            inner.hits += 1;
            if let Some(key) = inner.order.remove(&before) {
                inner.order.insert(now, key);
            }
            return handle;
        }
        inner.misses += 1;
        let handle = Arc::new(SessionHandle::new());
        inner.slots.insert(
            key.clone(),
            Slot {
                handle: Arc::clone(&handle),
                used: now,
                bytes: ENTRY_BYTES,
            },
        );
        inner.order.insert(now, key.clone());
        inner.bytes += ENTRY_BYTES;
        let evicted = inner.evict(self.max_bytes);
        // Evicted sessions are freed after the lock is released, because freeing a large one takes time.
        drop(inner);
        drop(evicted);
        handle
    }

    /// Returns the handle of a session, or `None` if it is not cached.
    pub(super) fn find_handle(&self, key: &SessionKey) -> Option<Arc<SessionHandle>> {
        let inner = self.lock();
        inner.slots.get(key).map(|slot| Arc::clone(&slot.handle))
    }

    /// Records the current size of a session, and evicts others if the limit is exceeded.
    pub(super) fn update_weight(&self, key: &SessionKey, bytes: usize) {
        let mut inner = self.lock();
        let Some(slot) = inner.slots.get_mut(key) else {
            return;
        };
        let bytes = bytes + ENTRY_BYTES;
        let before = std::mem::replace(&mut slot.bytes, bytes);
        inner.bytes = inner.bytes - before + bytes;
        // Dropping a large session takes time, so the evicted ones are dropped after the lock.
        let evicted = inner.evict(self.max_bytes);
        drop(inner);
        drop(evicted);
    }

    /// Returns true if a call or a watcher holds the session's handle.
    pub(super) fn is_in_use(&self, key: &SessionKey) -> bool {
        let inner = self.lock();
        let slot = inner.slots.get(key);
        slot.is_some_and(|slot| Arc::strong_count(&slot.handle) > 1)
    }

    pub(super) fn stats(&self) -> CacheStats {
        let inner = self.lock();
        CacheStats {
            sessions: inner.slots.len(),
            bytes: inner.bytes,
            max_bytes: self.max_bytes,
            hits: inner.hits,
            misses: inner.misses,
            evictions: inner.evictions,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A poisoned lock is safe to use: no code under the lock can panic between two related changes.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Evicts the least recently used sessions until the limit holds. Of an entry in use only the session is evicted,
    /// and only if its lock is free. Returns the evicted values, so that the caller drops them after unlocking.
    fn evict(&mut self, max_bytes: usize) -> Vec<Evicted> {
        let mut evicted = Vec::new();
        let mut passed_over = 0;
        while self.bytes > max_bytes && passed_over < MAX_PASSED_OVER {
            let Some((_, key)) = self.order.pop_first() else {
                break;
            };
            let Some(slot) = self.slots.get_mut(&key) else {
                continue;
            };
            // A count of one is the cache's own reference. New references are only made under the lock, so the entry
            // is unused.
            if Arc::strong_count(&slot.handle) == 1 {
                self.bytes -= slot.bytes;
                self.evictions += 1;
                evicted.extend(
                    self.slots
                        .remove(&key)
                        .map(|slot| Evicted::Slot(slot.handle)),
                );
                continue;
            }
            passed_over += 1;
            if let Some(loaded) = slot.handle.release() {
                self.bytes -= std::mem::replace(&mut slot.bytes, ENTRY_BYTES) - ENTRY_BYTES;
                self.evictions += 1;
                evicted.push(Evicted::Session(loaded));
            }
            // The entry moves to the end, so that the next eviction checks other entries first.
            self.uses += 1;
            slot.used = self.uses;
            self.order.insert(self.uses, key);
        }
        evicted
    }
}

/// A value that left the cache and is dropped after the lock is released.
enum Evicted {
    Slot(#[expect(dead_code, reason = "it is held to be dropped")] Arc<SessionHandle>),
    Session(#[expect(dead_code, reason = "it is held to be dropped")] Box<LoadedSession>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> SessionKey {
        SessionKey::parse(&format!("projects/p/sessions/s{n}")).unwrap()
    }

    #[test]
    fn the_least_recently_used_session_is_evicted_unless_in_use() {
        let cache = SessionCache::new(10_000);
        let held = cache.handle(&key(0));
        cache.update_weight(&key(0), 4_000);
        cache.handle(&key(1));
        cache.update_weight(&key(1), 3_000);
        cache.handle(&key(2));
        cache.update_weight(&key(2), 3_000);
        // 0 is in use, so 1 was evicted.
        assert!(Arc::ptr_eq(&held, &cache.handle(&key(0))));
        let now = cache.stats();
        assert_eq!(
            (now.bytes, now.sessions),
            (4_000 + 3_000 + 2 * ENTRY_BYTES, 2)
        );
        assert_eq!((now.hits, now.misses, now.evictions), (1, 3, 1));
        drop(held);
        cache.update_weight(&key(2), 9_000);
        assert_eq!(cache.stats().sessions, 1);
    }

    #[test]
    fn the_cache_bounds_many_small_sessions() {
        let cache = SessionCache::new(100 * ENTRY_BYTES);
        for n in 0..10_000 {
            cache.handle(&key(n));
        }
        assert!(cache.stats().sessions <= 100);
    }
}
