//! Prices of models in US dollars.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A price in US dollars for a million tokens, exact to a millionth of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsdPerMillion(u64);

impl UsdPerMillion {
    /// The highest accepted price, in dollars.
    const MAX: f64 = 1_000_000.0;

    /// Creates a price from dollars. Returns `None` outside of 0 to 1,000,000.
    pub fn new(dollars: f64) -> Option<Self> {
        if !(0.0..=Self::MAX).contains(&dollars) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between 0 and a million million"
        )]
        Some(Self((dollars * 1_000_000.0).round() as u64))
    }

    /// Returns the price of a million tokens in millionths of a dollar. This number is also the price of one token in
    /// millionths of a millionth.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Returns the price in dollars.
    pub fn dollars(self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "it is at most a million million"
        )]
        let micros = self.0 as f64;
        micros / 1_000_000.0
    }
}

impl<'de> Deserialize<'de> for UsdPerMillion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::new(dollars).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "must be a price from 0 to 1000000 dollars, is {dollars}"
            ))
        })
    }
}

impl Serialize for UsdPerMillion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

/// The prices of a model. A price that is not known is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelPrices {
    /// Input without the prompt cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<UsdPerMillion>,
    /// Output, with thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<UsdPerMillion>,
    /// Input that is read from the prompt cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<UsdPerMillion>,
    /// Input that is written to the prompt cache with the shortest lifetime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<UsdPerMillion>,
    /// Input that is written to the prompt cache with the longest lifetime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<UsdPerMillion>,
}

/// The prices of a request with a long input. They apply to the whole request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrices {
    /// The number of input tokens above which these prices apply.
    pub above_input_tokens: u32,
    /// The prices.
    pub prices: ModelPrices,
}
