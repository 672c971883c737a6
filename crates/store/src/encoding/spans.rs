//! Encoding of spans (level 4).

use palimpsest_core::event::{SpansCollapsed, SpansStaged};
use palimpsest_core::policy::Risk;
use palimpsest_core::session::{Placeholder, Span, Spans};

use super::error::DecodeError;
use super::stored_as::{StoredAs, pairs};
use super::v1;

impl StoredAs<u32> for Risk {
    fn to_proto(&self) -> u32 {
        self.milli().into()
    }

    fn from_proto(stored: u32) -> Result<Self, DecodeError> {
        let milli = u16::try_from(stored);
        Ok(Self::from_milli(milli.map_err(|_| {
            DecodeError::Damaged("a risk above the maximum")
        })?))
    }
}

/// A span. One without messages is damage, because no code expects it.
impl StoredAs<v1::Span> for Span {
    fn to_proto(&self) -> v1::Span {
        v1::Span {
            key: self.key.to_proto(),
            messages: self.messages.to_proto(),
            summary: self.summary.to_proto(),
            risk_milli: self.risk.to_proto(),
            freed: self.freed_tokens,
            model: self.model.to_proto(),
        }
    }

    fn from_proto(stored: v1::Span) -> Result<Self, DecodeError> {
        if stored.messages.is_empty() {
            return Err(DecodeError::Damaged("a span without messages"));
        }
        Ok(Self {
            key: StoredAs::from_proto(stored.key)?,
            messages: StoredAs::from_proto(stored.messages)?,
            summary: StoredAs::from_proto(stored.summary)?,
            risk: StoredAs::from_proto(stored.risk_milli)?,
            freed_tokens: stored.freed,
            model: StoredAs::from_proto(stored.model)?,
        })
    }
}

nested! { Span = Span or "a placeholder without a span" }

stored_struct! { Placeholder = Placeholder { span, text, tokens } }

stored_struct! { SpansStaged = SpansStaged { spans, armed, pass_tokens } }

stored_struct! {
    SpansCollapsed = SpansCollapsed {
        placeholders, messages, before_tokens, freed_tokens, change, request, hidden_paths,
    }
    renamed { trigger = asked, removed_calls = gone }
}

impl StoredAs<Option<v1::Spans>> for Spans {
    fn to_proto(&self) -> Option<v1::Spans> {
        let (at, placeholders) = (self.placeholders(), self.placeholders());
        Some(v1::Spans {
            staged: self.staged().iter().map(Span::to_proto).collect(),
            armed: self.armed(),
            pass_tokens: self.pass_tokens(),
            folded_at: at.map(|(at, _)| at.get()).collect(),
            placeholders: placeholders.map(|(_, one)| one.to_proto()).collect(),
            next: self.next_key().get(),
        })
    }

    fn from_proto(stored: Option<v1::Spans>) -> Result<Self, DecodeError> {
        let stored = stored.unwrap_or_default();
        Ok(Self::restore(
            StoredAs::from_proto(stored.staged)?,
            stored.armed,
            stored.pass_tokens,
            pairs(stored.folded_at, stored.placeholders)?,
            stored.next,
        ))
    }
}
