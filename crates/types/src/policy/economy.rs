//! The settings of compactions that reduce the cost of a session.

use serde::{Deserialize, Serialize};

use super::prices::{Price, Prices};
use super::unit::Millis;

/// Compactions below the threshold of level 5, as soon as the requests since the last one have cost as much as the
/// next one will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EconomyPolicy {
    /// True if such compactions start automatically.
    pub enabled: bool,
    /// True if a compaction may cost at most what earlier changes of the view have saved.
    pub spend_savings_only: bool,
    /// The minimum size of a view that is compacted, in tokens.
    pub min_view_tokens: u32,
    /// The time for which the provider keeps an unused prefix in its prompt cache.
    pub cache_lifetime: Millis,
    /// The price of a token that is written to the prompt cache, relative to an uncached one.
    pub cache_write_price: Price,
    /// The price of a token that is read from the prompt cache, relative to an uncached one.
    pub cache_read_price: Price,
}

impl EconomyPolicy {
    /// Returns the prices of a request's tokens.
    pub fn prices(&self) -> Prices {
        Prices {
            cache_write: self.cache_write_price,
            cache_read: self.cache_read_price,
            ..Prices::default()
        }
    }
}
