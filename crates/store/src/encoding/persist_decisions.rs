//! Encoding of decisions about tool results that were requested before the result arrived.

use palimpsest_core::event::{PersistDecided, PersistDecisionsConsumed};
use palimpsest_core::ids::CallKey;
use palimpsest_core::levels::results::{StoredResult, UnboundResult, Verdict};
use palimpsest_core::session::PersistDecision;

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

/// A stored result without a call. The stored form requires a call key. Zero stands for none, and the decoder ignores
/// it.
impl StoredAs<v1::StoredResult> for UnboundResult {
    fn to_proto(&self) -> v1::StoredResult {
        self.clone().bind(CallKey::new(0), false).to_proto()
    }

    fn from_proto(stored: v1::StoredResult) -> Result<Self, DecodeError> {
        StoredResult::from_proto(stored).map(|stored| Self::from(&stored))
    }
}

stored_struct! {
    PersistDecision = Offer { key, tool_use_id, tool, call, content, verdict }
    renamed { stored = kept }
    or "a persist decision without its result"
}

stored_struct! {
    PersistDecided = ResultOffered { request }
    renamed { decision = offer, evicted = forgotten }
}

stored_struct! {
    PersistDecisionsConsumed = OffersSettled {}
    renamed { decisions = offers }
}

/// A verdict. Replacements and store failures are never stored, so they have no number.
impl StoredAs<i32> for Verdict {
    fn to_proto(&self) -> i32 {
        let stored = match self {
            Self::Persist => v1::Verdict::Persist,
            Self::UnderLimit => v1::Verdict::UnderLimit,
            Self::Never => v1::Verdict::Never,
            Self::Empty => v1::Verdict::Empty,
            Self::Image => v1::Verdict::Picture,
            Self::Disabled => v1::Verdict::Disabled,
            Self::Replacement | Self::StoreFailed => v1::Verdict::Unspecified,
        };
        stored.into()
    }

    fn from_proto(stored: i32) -> Result<Self, DecodeError> {
        Ok(match v1::Verdict::try_from(stored).unwrap_or_default() {
            v1::Verdict::Persist => Self::Persist,
            v1::Verdict::UnderLimit => Self::UnderLimit,
            v1::Verdict::Never => Self::Never,
            v1::Verdict::Empty => Self::Empty,
            v1::Verdict::Picture => Self::Image,
            v1::Verdict::Disabled => Self::Disabled,
            v1::Verdict::Unspecified => {
                return Err(DecodeError::Damaged("a persist decision without a verdict"));
            }
        })
    }
}
