//! A model with its sizes and prices from the table of models.

use palimpsest_core::models::{ModelPrices, ModelTable, NamePattern, UsdPerMillion};
use palimpsest_core::policy::{Price, Prices, WindowHint};
use palimpsest_transcripts::replay::TokenSplit;

/// The maximum number of names that an error suggests.
const MAX_SUGGESTIONS: usize = 3;
/// The lowest similarity of a suggested name, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;

/// A model of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelChoice {
    /// The context window, in tokens.
    pub(crate) window: u32,
    /// The sizes beside the window.
    pub(crate) limits: WindowHint,
    prices: Option<ModelPrices>,
}

/// Finds a model by its name. The error names similar models.
pub(crate) fn model(name: &str) -> Result<ModelChoice, String> {
    let table = ModelTable::builtin();
    let Some(spec) = table.find(name.trim()) else {
        let similar = similar(&table, name.trim());
        let hint = if similar.is_empty() {
            "pass --window instead".to_owned()
        } else {
            format!("similar names are {}; or pass --window", similar.join(", "))
        };
        return Err(format!("is not in the table of models: {hint}"));
    };
    let window = spec.window_tokens;
    let window = window.ok_or("has no window in the table of models: pass --window instead")?;
    Ok(ModelChoice {
        window,
        limits: WindowHint {
            window_tokens: None,
            ..spec.window()
        },
        prices: spec.prices,
    })
}

/// Returns the most similar names, best first.
fn similar(table: &ModelTable, name: &str) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let patterns = table.names().map(NamePattern::as_str);
    let mut found: Vec<(f64, &str)> = patterns
        // A pattern is compared without the wildcards at its ends.
        .map(|pattern| pattern.trim_matches('*'))
        .map(|pattern| (strsim::jaro_winkler(&name, pattern), pattern))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let names = found.into_iter().map(|(_, pattern)| pattern.to_owned());
    names.take(MAX_SUGGESTIONS).collect()
}

impl ModelChoice {
    /// Returns the prices relative to that of an uncached token. Input without a price of its own costs as uncached input.
    pub(crate) fn relative_prices(&self) -> Option<Prices> {
        let prices = self.prices?;
        let input = prices.input?.dollars();
        let relative = |price: Option<UsdPerMillion>| match price {
            Some(price) => Price::new(price.dollars() / input),
            None => Price::new(1.0),
        };
        Some(Prices {
            input: Price::new(1.0)?,
            cache_write: relative(prices.cache_write)?,
            cache_read: relative(prices.cache_read)?,
        })
    }

    /// Returns the cost of the input in US dollars. The higher prices of a long input are left out.
    pub(crate) fn input_usd(&self, split: &TokenSplit) -> Option<f64> {
        let prices = self.prices?;
        let input = prices.input?;
        let parts = [
            (split.uncached, Some(input)),
            (split.cache_write, prices.cache_write),
            (split.cache_read, prices.cache_read),
        ];
        let cost = |(tokens, price): (u64, Option<UsdPerMillion>)| {
            u128::from(tokens) * u128::from(price.unwrap_or(input).micros())
        };
        let sum: u128 = parts.into_iter().map(cost).sum();
        #[expect(clippy::cast_precision_loss, reason = "cents are shown")]
        let sum = sum as f64;
        // The price of a token is in millionths of a millionth of a dollar.
        Some(sum / 1e12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_sizes_and_prices_of_the_table() {
        let sonnet = model("anthropic/claude-sonnet-4-5-20250929").unwrap();
        assert_eq!(sonnet.window, 200_000);
        let split = TokenSplit {
            cache_read: 1_000_000,
            cache_write: 1_000_000,
            uncached: 2_000_000,
        };
        let usd = sonnet.input_usd(&split).unwrap();
        // One million tokens are read for $0.30, one is written for $3.75, and two are uncached for $3 each.
        assert!((usd - (0.3 + 3.75 + 6.0)).abs() < 1e-9, "{usd}");
        assert_eq!(sonnet.relative_prices(), Some(Prices::default()));
        // A model without a prompt cache pays the same for all input.
        let without_cache = model("gpt-4").unwrap().relative_prices().unwrap();
        assert_eq!(without_cache.cache_read, without_cache.input);
    }

    #[test]
    fn an_unknown_model_is_rejected_with_similar_names() {
        let error = model("claude-sonet-4-5").unwrap_err();
        assert!(error.contains("claude-sonnet-4-5"), "{error}");
        let error = model("zzz").unwrap_err();
        assert!(error.ends_with("pass --window instead"), "{error}");
    }
}
