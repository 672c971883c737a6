//! Spans of messages, and the placeholders that replace them.

use crate::ids::{Ordinal, SpanKey};
use crate::policy::Risk;
use crate::tokens::TokenSize;

/// A run of complete old rounds that a placeholder can replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The key of the span.
    pub key: SpanKey,
    /// The messages, in order. Never empty.
    pub messages: Vec<Ordinal>,
    /// The summary that the placeholder would contain.
    pub summary: Box<str>,
    /// The estimated risk of losing information.
    pub risk: Risk,
    /// Estimated tokens that a collapse frees.
    pub freed_tokens: u32,
    /// The model that wrote the summary. Empty if it comes from the structure of the messages.
    pub model: Box<str>,
}

impl Span {
    /// Returns the first message.
    pub fn first(&self) -> Ordinal {
        self.messages.first().copied().unwrap_or_default()
    }

    /// Returns true if the span contains the message.
    pub fn contains(&self, message: Ordinal) -> bool {
        self.messages.binary_search(&message).is_ok()
    }

    /// Returns the last message.
    pub fn last(&self) -> Ordinal {
        self.messages.last().copied().unwrap_or_default()
    }
}

/// The text that replaces a collapsed span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The span.
    pub span: Span,
    /// The text that the model sees.
    pub text: Box<str>,
    /// Estimated tokens of the text.
    pub tokens: u32,
}

impl Placeholder {
    /// Returns the size of the placeholder, which contains no tool results.
    pub fn size(&self) -> TokenSize {
        TokenSize {
            tokens: self.tokens,
            result_tokens: 0,
        }
    }
}
