//! How many tokens a session's view has.
//!
//! What a provider reported is exact and is the anchor; what came after it is estimated, by the estimator
//! that the session's policy names. Not here: what the numbers lead to (`policy`).

mod bpe;
mod bytes;
mod counter;
mod ledger;
mod size;
#[cfg(test)]
mod tests;

pub use bytes::Nature;
pub use counter::{CALL_TOKENS, Counter, MESSAGE_TOKENS, TokenTally};

pub use ledger::{Anchor, Basis, Calibration, CountMethod, TokenCount, TokenLedger, is_credible};
pub use size::{Size, TokenBreakdown};

/// The result that a text stands for, by its bytes: for limits of texts that the service writes itself
/// ([`Counter::BYTES`]). What enters a view is counted with the estimator of its session's policy.
pub fn estimate_text(text: &str) -> u32 {
    Counter::BYTES.text(text)
}

/// The longest beginning of a text that has no more than so many tokens, by the same estimate.
pub fn head_within(text: &str, max_tokens: u32) -> &str {
    let max = u64::from(max_tokens).saturating_sub(CALL_TOKENS);
    &text[..bytes::within(text, Nature::Code, max)]
}
