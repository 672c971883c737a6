//! Token counts of a session's view.
//!
//! The usage that a provider reported is exact and serves as the anchor. Everything after it is
//! estimated by the estimator of the session's policy. The reactions to the counts are defined in
//! `policy`.

mod bpe;
mod bytes;
mod counter;
mod ledger;
mod request;
mod size;
#[cfg(test)]
mod tests;

pub use bytes::TextKind;
pub use counter::{CALL_TOKENS, MESSAGE_TOKENS, TokenCounter, TokenTally};

pub use ledger::{
    Anchor, Calibration, CountMethod, EstimateBasis, TokenCount, TokenLedger, is_credible,
};
pub use request::{PrefixTokens, RequestParts};
pub use size::{TokenBreakdown, TokenSize};

/// Estimates a text as the content of a tool result, with [`TokenCounter::BYTES`]. Used for size limits
/// of texts that the service writes itself. Content of a view is counted with the session's
/// estimator.
pub fn estimate_text(text: &str) -> u32 {
    TokenCounter::BYTES.text(text)
}

/// Returns the longest prefix of a text with at most `max_tokens` tokens, by the estimate of
/// [`estimate_text`].
pub fn head_within(text: &str, max_tokens: u32) -> &str {
    let max = u64::from(max_tokens).saturating_sub(CALL_TOKENS);
    &text[..bytes::prefix_within(text, TextKind::Code, max)]
}
