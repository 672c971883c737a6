//! Encoding of decisions about tool results that were requested before the result arrived.

use palimpsest_core::event::{PersistDecided, PersistDecisionsConsumed};
use palimpsest_core::ids::{CallKey, PersistDecisionKey};
use palimpsest_core::levels::results::{UnboundResult, Verdict};
use palimpsest_core::message::Digest;
use palimpsest_core::session::PersistDecision;

use super::error::{DecodeError, sixteen};
use super::levels::{read_stored, write_stored};
use super::stamp::{read_stamp, write_stamp};
use super::v1;

const CUT: DecodeError = DecodeError::Damaged("an offer is cut");

pub(super) fn write(offer: &PersistDecision) -> v1::Offer {
    // The stored form requires a call key. Zero stands for none, and the decoder ignores it.
    let kept = |kept: &UnboundResult| write_stored(&kept.clone().of(CallKey::new(0), false));
    v1::Offer {
        key: offer.key.get(),
        tool_use_id: offer.tool_use_id.to_string(),
        tool: offer.tool.to_string(),
        call: offer.call.map(CallKey::get),
        content: bytes::Bytes::copy_from_slice(offer.content.as_bytes()),
        verdict: write_verdict(offer.verdict).into(),
        kept: offer.kept.as_ref().map(kept),
    }
}

pub(super) fn read(stored: v1::Offer) -> Result<PersistDecision, DecodeError> {
    let verdict = read_verdict(stored.verdict())?;
    let kept = stored.kept.map(read_stored).transpose()?;
    Ok(PersistDecision {
        key: PersistDecisionKey::new(stored.key),
        tool_use_id: stored.tool_use_id.into(),
        tool: stored.tool.into(),
        call: stored.call.map(CallKey::new),
        content: Digest::from_bytes(sixteen(&stored.content)?),
        verdict,
        kept: kept.as_ref().map(UnboundResult::from),
    })
}

pub(super) fn write_decided(event: &PersistDecided) -> v1::ResultOffered {
    v1::ResultOffered {
        offer: Some(write(&event.offer)),
        forgotten: event.forgotten.map(PersistDecisionKey::get),
        request: event.request.as_ref().map(write_stamp),
    }
}

pub(super) fn read_decided(stored: v1::ResultOffered) -> Result<PersistDecided, DecodeError> {
    Ok(PersistDecided {
        offer: read(stored.offer.ok_or(CUT)?)?,
        forgotten: stored.forgotten.map(PersistDecisionKey::new),
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_settled(event: &PersistDecisionsConsumed) -> v1::OffersSettled {
    v1::OffersSettled {
        offers: event.offers.iter().map(|offer| offer.get()).collect(),
    }
}

pub(super) fn read_settled(stored: v1::OffersSettled) -> PersistDecisionsConsumed {
    PersistDecisionsConsumed {
        offers: stored
            .offers
            .into_iter()
            .map(PersistDecisionKey::new)
            .collect(),
    }
}

/// Encodes a verdict. Replacements and store failures are never stored, so they have no encoding.
fn write_verdict(verdict: Verdict) -> v1::Verdict {
    match verdict {
        Verdict::Persist => v1::Verdict::Persist,
        Verdict::UnderLimit => v1::Verdict::UnderLimit,
        Verdict::Never => v1::Verdict::Never,
        Verdict::Empty => v1::Verdict::Empty,
        Verdict::Image => v1::Verdict::Picture,
        Verdict::Disabled => v1::Verdict::Disabled,
        Verdict::Replacement | Verdict::StoreFailed => v1::Verdict::Unspecified,
    }
}

fn read_verdict(stored: v1::Verdict) -> Result<Verdict, DecodeError> {
    Ok(match stored {
        v1::Verdict::Persist => Verdict::Persist,
        v1::Verdict::UnderLimit => Verdict::UnderLimit,
        v1::Verdict::Never => Verdict::Never,
        v1::Verdict::Empty => Verdict::Empty,
        v1::Verdict::Picture => Verdict::Image,
        v1::Verdict::Disabled => Verdict::Disabled,
        v1::Verdict::Unspecified => return Err(CUT),
    })
}
