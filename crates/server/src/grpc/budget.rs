//! How many bytes of requests are in memory at one time: many large calls must not add up to more than
//! the machine has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::errors::ServiceError;

/// When memory may be free again: calls that bring much take longest to come.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The memory for requests.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            used: AtomicUsize::new(0),
        })
    }

    /// How many bytes there are now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// One call's part, given back when it is dropped. Without a budget it only counts.
#[derive(Debug, Default)]
pub(super) struct Share {
    budget: Option<Arc<Budget>>,
    bytes: AtomicU64,
}

impl Share {
    pub(super) fn of(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Some(Arc::clone(budget)),
            bytes: AtomicU64::new(0),
        }
    }

    /// How many bytes have come.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether so much more would fit now.
    pub(super) fn has_room(&self, bytes: usize) -> Result<(), ServiceError> {
        match &self.budget {
            Some(budget) if budget.used().saturating_add(bytes) > budget.max => {
                Err(ServiceError::Overloaded {
                    retry_after: RETRY_AFTER,
                })
            }
            _ => Ok(()),
        }
    }

    /// Takes so much more.
    pub(super) fn grow(&self, bytes: usize) -> Result<(), ServiceError> {
        self.has_room(bytes)?;
        if let Some(budget) = &self.budget {
            budget.used.fetch_add(bytes, Ordering::Relaxed);
        }
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = usize::try_from(*self.bytes.get_mut()).unwrap_or(usize::MAX);
        if let Some(budget) = &self.budget {
            budget.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_takes_is_given_back() {
        let budget = Budget::new(100);
        let one = Share::of(&budget);
        one.grow(60).unwrap();
        let two = Share::of(&budget);
        assert!(two.has_room(41).is_err());
        two.grow(40).unwrap();
        assert!(two.grow(1).is_err());
        assert_eq!((budget.used(), two.bytes()), (100, 40));
        drop(one);
        two.grow(60).unwrap();
        drop(two);
        assert_eq!(budget.used(), 0);
    }
}
