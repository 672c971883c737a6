//! The cost of a session's requests, and the rule that compacts a view to reduce it.
//!
//! Costs are in thousandths of the price of an uncached token. The rule needs only the difference between the view and the
//! unchanged conversation, so the prompt prefix, which both contain, does not count in it.
//!
//! The rule is that of the ski rental problem. Holding the tokens that a compaction would remove costs something with
//! each request, as renting does. A compaction costs something once, as buying does. It is due when the held tokens
//! have cost as much as it does. Such a rule costs at most twice as much as the best decisions in hindsight.
//!
//! By default, a compaction must also be covered by what earlier changes have saved. It then never makes a session dearer
//! than without changes, but the first compaction can be late, so the bound no longer holds. Where something is unknown,
//! the saving is underestimated.

use super::Session;
use crate::event::{Event, Strategy};
use crate::ids::Timestamp;
use crate::policy::Prices;

/// The expected tokens of the summary and the attachments of a session's first compaction.
const EXPECTED_SUMMARY_TOKENS: u64 = 7_000;

/// The cost of the answered requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostBalance {
    /// The total cost of the answered requests, with their prompt prefixes.
    pub sent: u64,
    /// The total cost of the same requests without the changes of the view.
    pub unmanaged: u64,
    /// The cost since the last compaction of the tokens that another one would remove.
    pub held: u64,
    /// Estimated tokens of the view directly after the last compaction. 0 without a compaction.
    pub compacted_tokens: u64,
    /// Estimated tokens by which the conversation would be larger without the changes of the view.
    pub freed: u64,
    /// The value of `freed` at the time of the last answered request.
    pub last_freed: u64,
}

impl CostBalance {
    /// Returns the cost that changes of the view have saved. Negative if they have cost more.
    fn saved(&self) -> i64 {
        difference(self.unmanaged, self.sent)
    }

    /// Returns true if the held tokens have cost as much as their removal, which makes the next request dearer by
    /// `extra`.
    fn is_held_too_long(&self, extra: i64) -> bool {
        difference(self.held, 0) >= extra
    }

    /// Begins the time after a compaction.
    fn compacted(&mut self, tokens: u64) {
        self.held = 0;
        self.compacted_tokens = tokens;
    }

    /// Records a view-changing event. `freed` is the number of estimated tokens that left the view, and `tokens` that of
    /// the view after it.
    pub(super) fn changed(&mut self, event: &Event, freed: u64, tokens: u64) {
        match event {
            Event::PolicyChanged(_) => {}
            // These events change the conversation itself, or return to an earlier view. It is unknown how much of the
            // freed tokens they concern, so nothing counts as saved.
            Event::SessionRewound(_) | Event::ContextRestored(_) => self.freed = 0,
            // The program of the caller may have made the compaction, also without the service.
            Event::CompactionFinished(event) if event.strategy == Strategy::Delegated => {
                self.freed = 0;
            }
            _ => self.freed = self.freed.saturating_add(freed),
        }
        if let Event::CompactionFinished(_) = event {
            self.compacted(tokens);
        }
    }
}

/// Returns the cost of a request of which the provider has cached the first `cached` tokens.
fn cost(prices: &Prices, tokens: u64, cached: u64) -> u64 {
    // `record_cost` limits a conversation to the context window, so the cached part can exceed it.
    let cached = cached.min(tokens);
    let read = cached.saturating_mul(prices.cache_read.milli().into());
    let written = (tokens - cached).saturating_mul(prices.cache_write.milli().into());
    read.saturating_add(written)
}

fn difference(a: u64, b: u64) -> i64 {
    let signed = |cost| i64::try_from(cost).unwrap_or(i64::MAX);
    signed(a) - signed(b)
}

impl Session {
    /// Returns true if a compaction from session memory now would reduce the cost of the session.
    pub fn compaction_reduces_cost(&self, now: Timestamp) -> bool {
        let policy = &self.policy.economy;
        policy.enabled
            && self.policy.autocompact.enabled
            && self.can_compact_from_memory()
            && self.tokens().tokens >= policy.min_view_tokens.into()
            && self.pays_for_view(self.expected_compacted_tokens(), now)
    }

    /// Returns true if session memory can replace messages, and nothing holds an automatic compaction back.
    fn can_compact_from_memory(&self) -> bool {
        let compactions = &self.compactions;
        let is_held = compactions.held_after_restore
            || compactions.held_after_veto
            || compactions.running.is_some()
            || compactions.is_paused(&self.policy.autocompact);
        !self.policy.collapse.enabled && !is_held && self.memory_for_compaction().is_some()
    }

    /// Returns true if a compaction is paid for that leaves this number of estimated tokens.
    pub(crate) fn pays_for_view(&self, compacted_tokens: u64, now: Timestamp) -> bool {
        let prices = self.policy.economy.prices();
        let view = self.ledger.all.total();
        let cached = if self.is_cache_expired(now) {
            0
        } else {
            self.cached_tokens(view)
        };
        let with = cost(&prices, compacted_tokens, 0);
        let without = cost(&prices, view, cached);
        let extra = difference(with, without);
        let costs = &self.prompt_cache.costs;
        let is_covered = costs.saved() >= extra || !self.policy.economy.spend_savings_only;
        is_covered && costs.is_held_too_long(extra)
    }

    /// Returns the estimated tokens of the view that a cache holds that has not expired. Only the cache of the last target
    /// is known. That of another target counts as complete, so that a compaction is never considered cheaper than it is.
    fn cached_tokens(&self, view: u64) -> u64 {
        let cache = &self.prompt_cache;
        let target = &self.last_served.target;
        if cache.last_request.pieces == 0 {
            0
        } else if cache.is_of(target) {
            cache.kept_tokens(target)
        } else {
            view
        }
    }

    /// Returns the estimated tokens that a compaction leaves: as many as the last one did.
    fn expected_compacted_tokens(&self) -> u64 {
        let costs = &self.prompt_cache.costs;
        if costs.compacted_tokens > 0 {
            return costs.compacted_tokens;
        }
        self.kept_tokens().min + EXPECTED_SUMMARY_TOKENS
    }

    /// Adds the cost of a request that was answered, before it becomes the last one.
    pub(super) fn record_cost(&mut self) {
        let Some(served_at) = self.prompt_cache.served_at else {
            return;
        };
        let prices = self.policy.economy.prices();
        let view = self.ledger.all.total();
        let costs = self.prompt_cache.costs;
        // A conversation above the window could not go on.
        let window = self.thresholds().window.max(view);
        let unchanged = view.saturating_add(costs.freed).min(window);
        let last = self.prompt_cache.last_request.tokens;
        // The provider looks up its cache when the request begins, so the time of the response does not count.
        let is_cached = !self.is_cache_expired(served_at);
        let (cached, unchanged_cached) = if !is_cached {
            (0, 0)
        } else if self.prompt_cache.is_of(&self.last_served.target) {
            (
                self.cached_tokens(view),
                last.saturating_add(costs.last_freed),
            )
        } else {
            // The cache of another target is unknown. It counts as complete on both sides, so that neither side gains.
            (self.cached_tokens(view), unchanged)
        };
        let sent_cost = cost(&prices, view, cached);
        let unmanaged_cost = cost(&prices, unchanged, unchanged_cached);
        let prefix = self.last_served.overhead_tokens;
        let prefix_cost = cost(&prices, prefix, if is_cached { prefix } else { 0 });
        // Tokens that were not sent before are needed now, so no compaction would have removed them.
        let removable = last
            .min(view)
            .saturating_sub(self.expected_compacted_tokens());
        let held = cost(&prices, removable, if is_cached { removable } else { 0 });
        let costs = &mut self.prompt_cache.costs;
        costs.sent = costs.sent.saturating_add(sent_cost + prefix_cost);
        costs.unmanaged = costs.unmanaged.saturating_add(unmanaged_cost + prefix_cost);
        costs.held = costs.held.saturating_add(held);
        costs.last_freed = costs.freed;
    }

    /// Returns true if the provider has evicted the last answered request from its cache. Only the server's own times are
    /// compared: those of messages come from the caller.
    fn is_cache_expired(&self, now: Timestamp) -> bool {
        let lifetime = self.policy.economy.cache_lifetime.get();
        let last = self.prompt_cache.last_request.served_at;
        last.is_none_or(|last| now.millis_since(last) >= lifetime)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the extra cost of a request before which the view is compacted.
    fn extra(prices: &Prices, compacted: u64, view: u64, cached: u64) -> i64 {
        difference(cost(prices, compacted, 0), cost(prices, view, cached))
    }

    /// Returns the cost of all requests if the view is compacted before those that `compacts` selects.
    fn total(growth: &[u64], compacted: u64, mut compacts: impl FnMut(u64, u64) -> bool) -> u64 {
        let prices = Prices::default();
        let (mut view, mut sum) = (compacted, 0);
        for new in growth {
            let cached = view;
            view += new;
            if compacts(view, cached) {
                view = compacted;
                sum += cost(&prices, view, 0);
            } else {
                sum += cost(&prices, view, cached);
            }
        }
        sum
    }

    proptest! {
        #[test]
        fn the_rule_costs_at_most_twice_as_much_as_the_best_compactions(
            growth in prop::collection::vec(100_u64..6_000, 1..14), compacted in 500_u64..10_000
        ) {
            let prices = Prices::default();
            let mut costs = CostBalance::default();
            let by_rule = total(&growth, compacted, |view, cached| {
                if costs.is_held_too_long(extra(&prices, compacted, view, cached)) {
                    costs.compacted(compacted);
                    return true;
                }
                // As in `record_cost`, tokens that are new in a request do not count as held.
                let removable = cached.saturating_sub(compacted);
                costs.held += cost(&prices, removable, removable);
                false
            });
            // Each bit of `places` decides about a compaction before one request, so all combinations are tried.
            let best = (0..1_u32 << growth.len()).map(|places| {
                let mut at = 0;
                total(&growth, compacted, |_, _| {
                    at += 1;
                    places & (1 << (at - 1)) != 0
                })
            });
            let best = best.min().unwrap_or(0);
            prop_assert!(by_rule <= 2 * best, "{by_rule} > 2 * {best}");
        }
    }
}
