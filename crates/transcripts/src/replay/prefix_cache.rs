//! A simulation of a provider's prompt cache for a sequence of views.

use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::Prices;

use super::caller::BlockId;

/// The time for which a provider keeps an unused prefix, in milliseconds: the default of five
/// minutes. Each use restarts it.
pub(super) const TIME_TO_LIVE_MS: u64 = 5 * 60 * 1_000;
/// The minimum size of a prompt that a provider caches, in tokens.
pub(super) const MIN_CACHEABLE_TOKENS: u64 = 1_024;

/// The tokens of requests by cache usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenSplit {
    /// Tokens read from the prompt cache.
    pub cache_read: u64,
    /// Tokens written to the prompt cache.
    pub cache_write: u64,
    /// Tokens that were not cached.
    pub uncached: u64,
}

impl TokenSplit {
    /// Returns the sum.
    pub const fn total(&self) -> u64 {
        self.cache_read + self.cache_write + self.uncached
    }

    /// Returns the tokens of a request that begins with `shared` tokens of the cached one. A prompt, and a prefix, below
    /// the minimum size is not cached.
    pub(super) fn of_request(tokens: u64, shared: u64) -> Self {
        if tokens < MIN_CACHEABLE_TOKENS {
            return Self {
                uncached: tokens,
                ..Self::default()
            };
        }
        let cache_read = if shared < MIN_CACHEABLE_TOKENS {
            0
        } else {
            shared
        };
        Self {
            cache_read,
            cache_write: tokens - cache_read,
            uncached: 0,
        }
    }

    /// Returns the cost in thousandths of an uncached token.
    pub fn cost_milli(&self, prices: &Prices) -> u64 {
        let parts = [
            (self.cache_read, prices.cache_read),
            (self.cache_write, prices.cache_write),
            (self.uncached, prices.input),
        ];
        parts
            .into_iter()
            .map(|(tokens, price)| tokens.saturating_mul(price.milli().into()))
            .fold(0, u64::saturating_add)
    }

    /// Adds other tokens.
    pub fn add(&mut self, other: Self) {
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.uncached += other.uncached;
    }
}

/// The cache of one conversation. It contains the view that was sent last.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    blocks: Vec<BlockId>,
    last_used: Timestamp,
}

impl PrefixCache {
    /// Sends a view and returns its tokens by cache usage. `tokens` counts a prefix of the view.
    pub(super) fn send(
        &mut self,
        view: &[BlockId],
        now: Timestamp,
        tokens: impl Fn(&[BlockId]) -> u64,
    ) -> TokenSplit {
        let all = tokens(view);
        if now.millis_since(self.last_used) >= TIME_TO_LIVE_MS {
            self.blocks.clear();
        }
        self.last_used = now;
        let same = |(a, b): &(&BlockId, &BlockId)| a == b;
        let shared = view.iter().zip(&self.blocks).take_while(same).count();
        self.blocks.clear();
        // Providers do not cache a prompt below this size, so the next request reads nothing.
        if all >= MIN_CACHEABLE_TOKENS {
            self.blocks.extend_from_slice(view);
        }
        TokenSplit::of_request(all, tokens(&view[..shared]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts 1,000 tokens per block.
    fn thousands(part: &[BlockId]) -> u64 {
        part.len() as u64 * 1_000
    }

    fn send(cache: &mut PrefixCache, view: &[BlockId], minute: i64) -> (u64, u64, u64) {
        let now = Timestamp::from_millis(minute * 60_000);
        let split = cache.send(view, now, thousands);
        (split.cache_read, split.cache_write, split.uncached)
    }

    #[test]
    fn the_prefix_is_read_and_the_rest_is_written() {
        let mut cache = PrefixCache::default();
        assert_eq!(send(&mut cache, &[1], 0), (0, 0, 1_000));
        assert_eq!(send(&mut cache, &[1, 2], 1), (0, 2_000, 0));
        assert_eq!(send(&mut cache, &[1, 2, 3], 2), (2_000, 1_000, 0));
        // A change in the middle invalidates all following blocks.
        assert_eq!(send(&mut cache, &[1, 2, 9, 4], 3), (2_000, 2_000, 0));
        assert_eq!(send(&mut cache, &[7, 2, 9, 4], 4), (0, 4_000, 0));
        // A shared prefix below the minimum size was not cached.
        assert_eq!(send(&mut cache, &[7, 8, 9], 5), (0, 3_000, 0));
        // Each use restarts the lifetime. The prefix expires after five minutes without a use.
        assert_eq!(send(&mut cache, &[7, 8, 9], 9), (3_000, 0, 0));
        assert_eq!(send(&mut cache, &[7, 8, 9], 14), (0, 3_000, 0));
    }

    #[test]
    fn costs_follow_the_prices() {
        let split = TokenSplit {
            cache_read: 10_000,
            cache_write: 1_000,
            uncached: 10,
        };
        let expected = 10_000 * 100 + 1_000 * 1_250 + 10 * 1_000;
        assert_eq!(split.cost_milli(&Prices::default()), expected);
    }

    proptest! {
        #[test]
        fn every_token_is_counted_once(
            views in prop::collection::vec((prop::collection::vec(0_u32..4, 0..12), 0_i64..9), 0..20)
        ) {
            let mut cache = PrefixCache::default();
            let (mut minute, mut before) = (0, Vec::new());
            for (view, pause) in views {
                minute += pause;
                let now = Timestamp::from_millis(minute * 60_000);
                let split = cache.send(&view, now, thousands);
                prop_assert_eq!(split.total(), thousands(&view));
                let shared = view.iter().zip(&before).take_while(|(a, b)| a == b).count();
                prop_assert!(split.cache_read <= thousands(&view[..shared]));
                prop_assert!(pause < 5 || split.cache_read == 0);
                before = view;
            }
        }
    }
}
