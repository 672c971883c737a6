//! One entry of the table, as the data file and configurations state it.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::name::NamePattern;
use super::price::{LongPrices, ModelPrices};
use crate::policy::WindowHint;

/// The known properties of a model. A property that is not known is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelSpec {
    /// The context window: input and output of one request.
    pub window_tokens: Option<u32>,
    /// The maximum input of one request, if lower than the window.
    pub max_input_tokens: Option<u32>,
    /// The maximum output of one request.
    pub max_output_tokens: Option<u32>,
    /// The prices of the maker's own API.
    pub prices: Option<ModelPrices>,
    /// The prices of a request with a long input.
    pub long_prices: Option<LongPrices>,
    /// The rules of the provider's prompt cache.
    pub cache: CacheRules,
}

/// The rules of a provider's prompt cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheRules {
    /// The use of markers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markers: Option<CacheMarkers>,
    /// The minimum length of a prefix that is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<u32>,
    /// The lifetimes that a request can choose, in seconds, from the shortest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ttls_s: Vec<u32>,
    /// The number of blocks before a marker in which an earlier entry is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookback_blocks: Option<u32>,
    /// The maximum number of markers in one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_markers: Option<u32>,
}

/// The use of markers for a prompt cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheMarkers {
    /// The model has no prompt cache.
    None,
    /// Only a request with a marker is cached.
    Explicit,
    /// Every request is cached, and markers do not exist.
    Automatic,
    /// Every request is cached, and a request can also have markers.
    Both,
}

/// The properties of the models whose names match one of the patterns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StatedEntry", into = "StatedEntry")]
pub struct ModelEntry {
    /// The patterns. Never empty.
    pub names: Vec<NamePattern>,
    /// The properties.
    pub spec: ModelSpec,
}

/// The reason for which an entry of a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelEntryError {
    /// The path of the invalid field in the entry, such as `prices.input`. Empty if the whole entry is invalid.
    pub path: String,
    /// The description of the problem.
    pub message: String,
}

/// The fields of an entry in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedEntry {
    names: Vec<NamePattern>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_tokens: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_input_tokens: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<ModelPrices>,
    #[serde(skip_serializing_if = "Option::is_none")]
    long_prices: Option<LongPrices>,
    #[serde(default, skip_serializing_if = "CacheRules::is_empty")]
    cache: CacheRules,
}

impl From<ModelEntry> for StatedEntry {
    fn from(entry: ModelEntry) -> Self {
        let tokens = |number: Option<u32>| number.and_then(NonZeroU32::new);
        let spec = entry.spec;
        Self {
            names: entry.names,
            window_tokens: tokens(spec.window_tokens),
            max_input_tokens: tokens(spec.max_input_tokens),
            max_output_tokens: tokens(spec.max_output_tokens),
            prices: spec.prices,
            long_prices: spec.long_prices,
            cache: spec.cache,
        }
    }
}

impl TryFrom<StatedEntry> for ModelEntry {
    type Error = &'static str;

    fn try_from(stated: StatedEntry) -> Result<Self, Self::Error> {
        let StatedEntry {
            names,
            window_tokens,
            max_input_tokens,
            max_output_tokens,
            prices,
            long_prices,
            cache,
        } = stated;
        if names.is_empty() {
            return Err("names must have at least one name");
        }
        // The two limits are overridden together, so one of them alone would be combined with another model's.
        if max_input_tokens.is_some() && window_tokens.is_none() {
            return Err("max_input_tokens has no effect without window_tokens");
        }
        // `None` is lower than any number. The check above covers a limit without a window.
        if max_input_tokens > window_tokens {
            return Err("max_input_tokens must not be more than window_tokens");
        }
        if long_prices.is_some() && prices.is_none() {
            return Err("long_prices has no effect without prices");
        }
        let tokens = |number: Option<NonZeroU32>| number.map(NonZeroU32::get);
        Ok(Self {
            names,
            spec: ModelSpec {
                window_tokens: tokens(window_tokens),
                max_input_tokens: tokens(max_input_tokens),
                max_output_tokens: tokens(max_output_tokens),
                prices,
                long_prices,
                cache,
            },
        })
    }
}

impl ModelEntry {
    /// Reads an entry of a configuration.
    ///
    /// # Errors
    ///
    /// Fails if a field is unknown or has an invalid value.
    pub fn from_json(value: Value) -> Result<Self, ModelEntryError> {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            ModelEntryError {
                // `serde_path_to_error` writes the root as a dot.
                path: if path == "." { String::new() } else { path },
                message: error.into_inner().to_string(),
            }
        })
    }
}

impl ModelSpec {
    /// Returns the sizes of the model in the form in which a caller states them.
    pub fn window(&self) -> WindowHint {
        WindowHint {
            window_tokens: self.window_tokens.map(u64::from),
            max_output_tokens: self.max_output_tokens.map(u64::from),
            input_limit_tokens: self.max_input_tokens.map(u64::from),
        }
    }

    /// Returns the prices of a request with `input_tokens` tokens of input, whether they are read from the cache or not.
    pub fn prices_for(&self, input_tokens: u64) -> Option<ModelPrices> {
        let long = self.long_prices.as_ref();
        let long = long.filter(|long| input_tokens > u64::from(long.above_input_tokens));
        long.map(|long| long.prices).or(self.prices)
    }

    /// Returns these properties. Those that are not stated are taken from `under`.
    pub(super) fn or(&self, under: &Self) -> Self {
        // The window and the limit of its input belong together, and so do the prices.
        let sizes = if self.window_tokens.is_some() {
            self
        } else {
            under
        };
        let priced = if self.prices.is_some() { self } else { under };
        Self {
            window_tokens: sizes.window_tokens,
            max_input_tokens: sizes.max_input_tokens,
            max_output_tokens: self.max_output_tokens.or(under.max_output_tokens),
            prices: priced.prices,
            long_prices: priced.long_prices,
            cache: self.cache.or(&under.cache),
        }
    }
}

impl CacheRules {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns these rules. Those that are not stated are taken from `under`.
    pub(super) fn or(&self, under: &Self) -> Self {
        // A model without a cache has no other rules.
        if self.markers == Some(CacheMarkers::None) {
            return self.clone();
        }
        let ttls_s = if self.ttls_s.is_empty() {
            &under.ttls_s
        } else {
            &self.ttls_s
        };
        Self {
            markers: self.markers.or(under.markers),
            min_tokens: self.min_tokens.or(under.min_tokens),
            ttls_s: ttls_s.clone(),
            lookback_blocks: self.lookback_blocks.or(under.lookback_blocks),
            max_markers: self.max_markers.or(under.max_markers),
        }
    }
}
