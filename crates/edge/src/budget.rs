//! Limits that all calls share: concurrent calls, and bytes of requests and of replies in memory.
//!
//! The sum of many large calls must not exceed the memory of the machine. Fair shares keep one tenant from using up a
//! budget.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::net::ShareGroup;
use crate::refusal::Refusal;

/// The retry delay of a rejected call. Large calls hold memory longest.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// The maximum ratio between the use of one group and the free part of a budget. A group therefore gets at most three
/// quarters of a budget, and other groups always find a part of the rest.
const MAX_RATIO_TO_FREE: usize = 3;
/// The number of groups at which dropped groups are removed from the map.
const SHARE_GROUP_SWEEP_SIZE: usize = 4_096;

/// The kind of a budget. The variants are indexes into the counters of a `ShareGroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetKind {
    /// Calls in flight.
    Calls,
    /// Bytes of requests in memory.
    Requests,
    /// Bytes of replies in memory.
    Replies,
}

/// The groups of all tenants with calls in flight, by tenant.
#[derive(Debug, Default)]
pub struct ShareGroups(Mutex<HashMap<String, Weak<ShareGroup>>>);

impl ShareGroups {
    /// Returns the group of a tenant. Creates it if necessary.
    pub fn of(&self, tenant: String) -> Arc<ShareGroup> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share_group) = groups.get(&tenant).and_then(Weak::upgrade) {
            return share_group;
        }
        // A dropped group leaves a dead `Weak` in the map. Removing them here bounds the map.
        if groups.len() >= SHARE_GROUP_SWEEP_SIZE {
            groups.retain(|_, share_group| share_group.strong_count() > 0);
        }
        let share_group = Arc::default();
        groups.insert(tenant, Arc::downgrade(&share_group));
        share_group
    }
}

/// A limit that all calls share.
#[derive(Debug)]
pub struct SharedBudget {
    kind: BudgetKind,
    max: usize,
    used: AtomicUsize,
}

impl SharedBudget {
    /// Creates a budget of `max` calls or bytes.
    pub fn new(of: BudgetKind, max: usize) -> Arc<Self> {
        Arc::new(Self {
            kind: of,
            max,
            used: AtomicUsize::new(0),
        })
    }

    /// Returns the amount in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

/// The part of a budget that one call uses. It is released on drop. A share without a budget only counts.
#[derive(Debug, Default)]
pub struct BudgetShare {
    of: Option<(Arc<SharedBudget>, Arc<ShareGroup>)>,
    used: AtomicU64,
}

impl BudgetShare {
    /// Creates an empty share.
    pub fn new(budget: &Arc<SharedBudget>, share_group: &Arc<ShareGroup>) -> Self {
        // Counted before any check, so that a second call of the group does not count as alone.
        share_group.shares[budget.kind as usize].fetch_add(1, Relaxed);
        Self {
            of: Some((Arc::clone(budget), Arc::clone(share_group))),
            used: AtomicU64::new(0),
        }
    }

    /// Creates a share of the given size, or fails if the budget does not allow it.
    pub fn take(
        budget: &Arc<SharedBudget>,
        share_group: &Arc<ShareGroup>,
        size: usize,
    ) -> Result<Self, Refusal> {
        let share = Self::new(budget, share_group);
        share.grow(size)?;
        Ok(share)
    }

    /// Returns the amount that this share uses.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Fails unless `more` fits into the budget and the group's fair share.
    pub fn check_room(&self, more: usize) -> Result<(), Refusal> {
        let Some((budget, share_group)) = &self.of else {
            return Ok(());
        };
        let used = budget.used();
        let fits = used.saturating_add(more) <= budget.max;
        // A group with a single share may use all that is free: one large call is not a flood.
        let is_alone = share_group.shares[budget.kind as usize].load(Relaxed) <= 1;
        let own = share_group.used[budget.kind as usize].load(Relaxed);
        let free = budget.max.saturating_sub(used);
        let is_fair =
            is_alone || own.saturating_add(more) <= free.saturating_mul(MAX_RATIO_TO_FREE);
        if fits && is_fair {
            return Ok(());
        }
        Err(Refusal::Overloaded {
            retry_after: RETRY_AFTER,
        })
    }

    /// Adds `more` to this share, or fails without a change.
    pub fn grow(&self, more: usize) -> Result<(), Refusal> {
        self.check_room(more)?;
        // The check and the additions are not one atomic step, so concurrent calls may exceed the limit slightly.
        if let Some((budget, share_group)) = &self.of {
            budget.used.fetch_add(more, Relaxed);
            share_group.used[budget.kind as usize].fetch_add(more, Relaxed);
        }
        self.used.fetch_add(more as u64, Relaxed);
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let used = usize::try_from(*self.used.get_mut()).unwrap_or(usize::MAX);
        if let Some((budget, share_group)) = &self.of {
            budget.used.fetch_sub(used, Relaxed);
            share_group.used[budget.kind as usize].fetch_sub(used, Relaxed);
            share_group.shares[budget.kind as usize].fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_share_is_released() {
        let budget = SharedBudget::new(BudgetKind::Requests, 100);
        let (first, second) = (Arc::default(), Arc::default());
        let one = BudgetShare::new(&budget, &first);
        one.grow(60).unwrap();
        let two = BudgetShare::new(&budget, &second);
        assert!(two.check_room(41).is_err());
        two.grow(40).unwrap();
        assert!(two.grow(1).is_err());
        assert_eq!((budget.used(), two.used()), (100, 40));
        drop(one);
        two.grow(60).unwrap();
        drop(two);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_tenant_cannot_exhaust_the_shared_budget() {
        let budget = SharedBudget::new(BudgetKind::Calls, 100);
        let (greedy, honest) = (Arc::default(), Arc::default());
        let held: Vec<_> =
            std::iter::from_fn(|| BudgetShare::take(&budget, &greedy, 1).ok()).collect();
        // At 75 calls, the group uses three times the 25 free calls.
        assert!((70..=76).contains(&held.len()), "{}", held.len());
        let others: Vec<_> = (0..10)
            .map(|_| BudgetShare::take(&budget, &honest, 1).unwrap())
            .collect();
        drop((held, others));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn tenants_have_separate_groups_that_are_dropped() {
        let groups = ShareGroups::default();
        let one = groups.of("a".into());
        assert!(Arc::ptr_eq(&one, &groups.of("a".into())));
        assert!(!Arc::ptr_eq(&one, &groups.of("b".into())));
        for n in 0..3 * SHARE_GROUP_SWEEP_SIZE {
            groups.of(n.to_string());
        }
        assert!(groups.0.lock().unwrap().len() <= SHARE_GROUP_SWEEP_SIZE);
    }
}
