//! The oldest rounds leave without a summary.

use super::made::{Made, What};
use super::range::estimated_tokens;
use crate::command::decision::Skip;
use crate::command::reject::Rejection;
use crate::event::{Asked, Compacted, Dropped, Strategy};
use crate::levels::compaction::oldest;
use crate::session::Session;

/// The compaction without the oldest rounds.
pub(super) fn without(
    session: &Session,
    asked: Asked,
    tokens: Option<u64>,
    made: &Made,
) -> Result<Result<Compacted, Skip>, Rejection> {
    let (kept, rounds) = oldest(session, tokens)?;
    let (Some(first), Some(last)) = (kept.leaving.first(), kept.leaving.last()) else {
        return Ok(Err(Skip::NothingEligible));
    };
    let tokens = estimated_tokens(session, &kept.leaving);
    let dropped = Dropped {
        messages: crate::view::count(kept.leaving.len()),
        rounds,
        tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        first: *first,
        last: *last,
    };
    let what = What {
        key: session.compactions().next_key(),
        asked,
        strategy: Strategy::DropOldest,
        summary: "",
        must_keep: &[],
        kept,
        adopted: None,
        before: None,
        dropped: Some(dropped),
    };
    let compacted = made.compacted(session, what)?;
    Ok(compacted.map_err(|_| Skip::TooLittleGain))
}
