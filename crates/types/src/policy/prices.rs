//! Relative token prices, used to compare the cost of an invalidated prompt cache with the tokens
//! that a change frees.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The price of a token in thousandths of the price of an uncached token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(u32);

impl Price {
    /// The maximum price: a million times that of an uncached token.
    const MAX: f64 = 1_000_000.0;

    /// Creates a price from thousandths.
    pub const fn from_milli(milli: u32) -> Self {
        Self(milli)
    }

    /// Creates a price from a number, rounded to thousandths. Returns `None` outside of 0 to
    /// 1,000,000.
    pub fn new(price: f64) -> Option<Self> {
        if !(0.0..=Self::MAX).contains(&price) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between 0 and a thousand million"
        )]
        Some(Self((price * 1_000.0).round() as u32))
    }

    /// Returns the price in thousandths.
    pub const fn milli(self) -> u32 {
        self.0
    }

    /// Returns the price as a number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let price = f64::deserialize(deserializer)?;
        Self::new(price).ok_or_else(|| D::Error::custom("must be between 0 and 1,000,000"))
    }
}

/// The prices of the tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// The price of an uncached input token. Default: 1.
    pub input: Price,
    /// The price of a token written to the prompt cache. Default: 1.25.
    pub cache_write: Price,
    /// The price of a token read from the prompt cache. Default: 0.1.
    pub cache_read: Price,
}

impl Prices {
    /// Returns the number of requests, including the next one, after which a change of the view has
    /// paid for itself. Returns `None` if nothing was invalidated, nothing was saved, or cache reads
    /// are free.
    ///
    /// Let the cache hold `k` tokens before the change. Behind it, `i` tokens stay in the view and
    /// `s` tokens leave it. Without the change, each request reads `k + i + s`. With the change, the
    /// next request reads `k` and writes `i`, and each later request reads `k + i`. The extra cost
    /// of `n` requests is `i * (write - read) - n * s * read`. It is zero at `n = i * (write - read)
    /// / (s * read)`.
    pub fn break_even(&self, invalidated: u64, saved: u64) -> Option<f64> {
        let (read, write) = (self.cache_read.get(), self.cache_write.get());
        if invalidated == 0 || saved == 0 || read <= 0.0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "views are far smaller")]
        let (invalidated, saved) = (invalidated as f64, saved as f64);
        Some((invalidated * (write - read) / (saved * read)).max(0.0))
    }
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            input: Price::from_milli(1_000),
            cache_write: Price::from_milli(1_250),
            cache_read: Price::from_milli(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_breaks_even_after_enough_cheaper_requests() {
        let prices = Prices::default();
        // 70,000 tokens are written for 1.15 more each. Each request reads 10,000 fewer tokens for
        // 0.1 each.
        let requests = prices.break_even(70_000, 10_000).unwrap();
        assert!((requests - 80.5).abs() < 1e-9, "{requests}");
        assert_eq!(prices.break_even(0, 10_000), None);
        assert_eq!(prices.break_even(70_000, 0), None);
        let free = Prices {
            cache_read: Price::from_milli(0),
            ..prices
        };
        assert_eq!(free.break_even(70_000, 10_000), None);
        let cheap = Prices {
            cache_write: Price::from_milli(50),
            ..prices
        };
        assert_eq!(cheap.break_even(70_000, 10_000), Some(0.0));
    }

    #[test]
    fn a_price_is_a_non_negative_number() {
        assert_eq!(Price::new(1.25), Some(Price::from_milli(1_250)));
        assert_eq!(Price::new(0.0), Some(Price::from_milli(0)));
        for price in [-0.1, f64::NAN, f64::INFINITY, 1e7] {
            assert_eq!(Price::new(price), None, "{price}");
        }
        assert!((Prices::default().cache_read.get() - 0.1).abs() < f64::EPSILON);
    }
}
