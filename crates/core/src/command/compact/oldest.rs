//! Removes the oldest rounds from the view without a summary.

use super::made::{CompactionMessages, CompactionSpec};
use super::range::estimated_tokens;
use crate::command::decision::SkipReason;
use crate::command::reject::Rejection;
use crate::event::{CompactionFinished, DroppedContent, Strategy, Trigger};
use crate::levels::compaction::oldest;
use crate::session::Session;

/// Builds the compaction that removes the oldest rounds.
pub(super) fn without(
    session: &Session,
    asked: Trigger,
    tokens: Option<u64>,
    made: &CompactionMessages,
) -> Result<Result<CompactionFinished, SkipReason>, Rejection> {
    // The record lists the dropped content, because no summary describes it.
    let (kept, rounds) = oldest(session, tokens)?;
    let (Some(first), Some(last)) = (kept.leaving.first(), kept.leaving.last()) else {
        return Ok(Err(SkipReason::NothingEligible));
    };
    let tokens = estimated_tokens(session, &kept.leaving);
    let dropped = DroppedContent {
        messages: crate::view::count(kept.leaving.len()),
        rounds,
        tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        first: *first,
        last: *last,
    };
    let what = CompactionSpec {
        key: session.compactions().next_key(),
        trigger: asked,
        strategy: Strategy::DropOldest,
        summary: "",
        must_keep: &[],
        kept,
        adopted: None,
        before: None,
        dropped: Some(dropped),
    };
    let compacted = made.compacted(session, what)?;
    Ok(compacted.map_err(|_| SkipReason::TooLittleGain))
}
