//! The settings by which tokens are counted.

use serde::{Deserialize, Serialize};

/// How the tail after the last reported usage is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenEstimator {
    /// From bytes and kind of content.
    Bytes,
    /// The byte-pair encoding `o200k`.
    O200k,
    /// The byte-pair encoding `cl100k`.
    Cl100k,
}

/// How tokens are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPolicy {
    /// The estimator for what the provider has not reported yet.
    pub estimator: TokenEstimator,
    /// Whether estimates are corrected by what reported usage teaches.
    pub calibrate: bool,
    /// The tokens of a picture or document whose size is not known.
    pub unknown_image_tokens: u32,
    /// The window of a model that nobody knows.
    pub default_window_tokens: u32,
}
