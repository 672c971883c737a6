//! Spans of messages, and the placeholders that replace them.

use crate::ids::{Ordinal, SpanKey};
use crate::policy::Risk;
use crate::tokens::Size;

/// A run of old messages for which a summary may stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its key.
    pub key: SpanKey,
    /// Its messages, in order; never empty.
    pub messages: Vec<Ordinal>,
    /// What may stand in their place.
    pub summary: Box<str>,
    /// How much might be lost.
    pub risk: Risk,
    /// What it frees, estimated.
    pub freed: u32,
}

impl Span {
    /// Its first message.
    pub fn first(&self) -> Ordinal {
        self.messages.first().copied().unwrap_or_default()
    }

    /// Whether it holds a message.
    pub fn holds(&self, message: Ordinal) -> bool {
        self.messages.binary_search(&message).is_ok()
    }

    /// Its last message.
    pub fn last(&self) -> Ordinal {
        self.messages.last().copied().unwrap_or_default()
    }
}

/// What stands in the place of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The span.
    pub span: Span,
    /// What the model sees.
    pub text: Box<str>,
    /// Its estimated tokens.
    pub tokens: u32,
}

impl Placeholder {
    /// Its size.
    pub fn size(&self) -> Size {
        Size {
            tokens: self.tokens,
            result_tokens: 0,
        }
    }
}
