//! The lowest cost of a session in hindsight, with compactions before the best requests.

use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::Prices;

use super::SentRequest;
use crate::replay::prefix_cache::{TIME_TO_LIVE_MS, TokenSplit};

/// The compactions that an optimum may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionModel {
    /// The size of a view after a compaction, in tokens. New messages are part of it, unless they are larger.
    pub compacted_tokens: u64,
    /// The minimum size of a view that is compacted, in tokens.
    pub min_view_tokens: u64,
}

/// Returns the lowest cost of a conversation, in thousandths of an uncached token.
///
/// `requests` are those of the unchanged conversation. All sets of compactions are compared by dynamic programming: the
/// cost up to a compaction does not depend on the requests after it. The time is quadratic in the number of requests.
pub fn lowest_cost_milli(
    requests: &[SentRequest],
    compaction: CompactionModel,
    prices: &Prices,
) -> u64 {
    let conversation = Conversation {
        requests,
        compaction,
        prices,
    };
    // For each request, the lowest cost of all requests up to it if it is the first one after a compaction.
    let mut compacted: Vec<Option<u64>> = vec![None; requests.len()];
    let mut lowest = conversation.continue_from(None, 0, &mut compacted);
    // A cost depends on earlier compactions only, so one pass in order is enough.
    for at in 0..requests.len() {
        if let Some(cost) = compacted[at] {
            lowest = lowest.min(conversation.continue_from(Some(at), cost, &mut compacted));
        }
    }
    lowest
}

struct Conversation<'a> {
    requests: &'a [SentRequest],
    compaction: CompactionModel,
    prices: &'a Prices,
}

impl Conversation<'_> {
    /// Returns the cost of the whole conversation without a further compaction after the request `last`. Improves the
    /// costs of the requests before which another compaction is possible.
    fn continue_from(&self, last: Option<usize>, cost: u64, compacted: &mut [Option<u64>]) -> u64 {
        let mut cost = cost;
        let mut sent = last.map_or(0, |last| self.compacted_size(last));
        let first = last.map_or(0, |last| last + 1);
        for (at, compacted) in compacted.iter_mut().enumerate().skip(first) {
            let view = match last {
                None => self.requests[at].tokens,
                Some(last) => {
                    let grown = self.requests[at]
                        .tokens
                        .saturating_sub(self.requests[last].tokens);
                    self.compacted_size(last) + grown
                }
            };
            let size = self.compacted_size(at);
            if view >= self.compaction.min_view_tokens && view > size {
                let with = cost + self.cost(size, 0);
                *compacted = Some(compacted.map_or(with, |known| known.min(with)));
            }
            // Each view begins with the one that was sent before.
            let cached = if self.is_cold(at) { 0 } else { sent.min(view) };
            cost += self.cost(view, cached);
            sent = view;
        }
        cost
    }

    fn compacted_size(&self, at: usize) -> u64 {
        let before = at
            .checked_sub(1)
            .map_or(0, |before| self.requests[before].tokens);
        let new = self.requests[at].tokens.saturating_sub(before);
        self.compaction.compacted_tokens.max(new)
    }

    fn is_cold(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| self.requests[before].at);
        before.is_none_or(|before: Timestamp| {
            self.requests[at].at.millis_since(before) >= TIME_TO_LIVE_MS
        })
    }

    fn cost(&self, view: u64, cached: u64) -> u64 {
        TokenSplit::of_request(view, cached).cost_milli(self.prices)
    }
}
