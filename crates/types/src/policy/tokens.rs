//! The settings of token counting.

use serde::{Deserialize, Serialize};

/// The estimator for content after the last reported usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenEstimator {
    /// Estimates from the number of bytes and the kind of content.
    Bytes,
    /// The byte-pair encoding `o200k`.
    O200k,
    /// The byte-pair encoding `cl100k`.
    Cl100k,
}

/// The settings of token counting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPolicy {
    /// The estimator for content without reported usage.
    pub estimator: TokenEstimator,
    /// True if reported usage corrects the estimates.
    pub calibrate: bool,
    /// The tokens of an image or a document of unknown size.
    pub unknown_image_tokens: u32,
    /// The context window of every model if a call states none, in tokens. `None` takes the window of the model from the
    /// table of models.
    pub default_window_tokens: Option<u32>,
}
