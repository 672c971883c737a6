//! The last values of sessions, with a limit on their bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palimpsest_core::ids::SessionKey;

/// A value for each session. If all values exceed the limit, those that were stored first are dropped.
#[derive(Debug)]
pub struct LastOfSessions<V> {
    values: Mutex<Values<V>>,
    max_bytes: usize,
}

#[derive(Debug)]
struct Values<V> {
    by_session: HashMap<SessionKey, Stored<V>>,
    /// The sessions, ordered by the number of their last change.
    order: BTreeMap<u64, SessionKey>,
    changes: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Stored<V> {
    change: u64,
    bytes: usize,
    value: Arc<V>,
}

impl<V> LastOfSessions<V> {
    /// Creates an empty store for values of `max_bytes` in total.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            values: Mutex::new(Values {
                by_session: HashMap::new(),
                order: BTreeMap::new(),
                changes: 0,
                bytes: 0,
            }),
            max_bytes,
        }
    }

    /// Returns the value of a session.
    pub fn get(&self, key: &SessionKey) -> Option<Arc<V>> {
        let values = self.lock();
        let stored = values.by_session.get(key)?;
        Some(Arc::clone(&stored.value))
    }

    /// Stores the value of a session, which has `bytes` bytes.
    pub fn insert(&self, key: &SessionKey, value: V, bytes: usize) {
        let value = Arc::new(value);
        let mut values = self.lock();
        // Dropped after the lock is released, because a large value takes time.
        let mut dropped = vec![values.remove(key)];
        values.changes += 1;
        let change = values.changes;
        values.bytes += bytes;
        values.order.insert(change, key.clone());
        let stored = Stored {
            change,
            bytes,
            value,
        };
        values.by_session.insert(key.clone(), stored);
        while values.bytes > self.max_bytes
            && let Some((_, oldest)) = values.order.pop_first()
        {
            dropped.push(values.remove(&oldest));
        }
        drop(values);
    }

    /// Drops the value of a session.
    pub fn remove(&self, key: &SessionKey) {
        let removed = self.lock().remove(key);
        drop(removed);
    }

    /// Returns the number of values and their bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let values = self.lock();
        assert_eq!(values.by_session.len(), values.order.len());
        (values.by_session.len(), values.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Values<V>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Values<V> {
    fn remove(&mut self, key: &SessionKey) -> Option<Arc<V>> {
        let stored = self.by_session.remove(key)?;
        self.order.remove(&stored.change);
        self.bytes -= stored.bytes;
        Some(stored.value)
    }
}
