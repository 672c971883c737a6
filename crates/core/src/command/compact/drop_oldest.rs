//! Removes the oldest rounds from the view without a summary.

use super::finished_event::{CompactionMessages, CompactionSpec};
use super::preconditions::is_truncation_due;
use super::range::estimated_tokens;
use crate::command::decision::SkipReason;
use crate::command::reject::Rejection;
use crate::event::{CompactionFinished, DroppedContent, Strategy, Trigger};
use crate::levels::compaction::oldest_rounds;
use crate::session::Session;
use crate::summary::SummaryPart;

/// The tokens that must leave when the oldest rounds are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropRule {
    /// At least this many tokens. `None` removes a fixed share of the rounds.
    AtLeast(Option<u64>),
    /// The provider rejected a view of `view_tokens` tokens as too long, by `gap_tokens` if known. The tokens that the
    /// view has lost since then count against the gap.
    Rejected {
        /// Counted size of the rejected view.
        view_tokens: u64,
        /// Tokens above the provider's limit.
        gap_tokens: Option<u64>,
    },
    /// A critical view shrinks below the warning threshold. Smaller steps would invalidate the provider's prompt cache
    /// on every call.
    Critical,
}

impl DropRule {
    /// Returns the tokens that must leave now, or `None` if the view is small enough. An inner `None` stands for a
    /// fixed share of the rounds.
    #[expect(clippy::option_option, reason = "both cases are part of the rule")]
    pub(crate) fn tokens(self, session: &Session) -> Option<Option<u64>> {
        let now = session.tokens().tokens;
        match self {
            Self::AtLeast(tokens) => Some(tokens),
            // The levels may have freed enough. If not, the provider rejects the next prompt again.
            Self::Rejected {
                view_tokens,
                gap_tokens: None,
            } => (now >= view_tokens).then_some(None),
            // The difference is the part of the gap that the levels have not freed.
            Self::Rejected {
                view_tokens,
                gap_tokens: Some(gap),
            } => match (now + gap).saturating_sub(view_tokens) {
                0 => None,
                tokens => Some(Some(tokens)),
            },
            Self::Critical => is_truncation_due(session).then(|| {
                let points = session.thresholds();
                // In a small window, the warning threshold may be 0.
                let target = points.warn.max(points.critical / 2);
                Some(now.saturating_sub(target))
            }),
        }
    }
}

/// Builds the compaction that removes the oldest rounds.
pub(super) fn without(
    session: &Session,
    asked: Trigger,
    rule: DropRule,
    made: &CompactionMessages,
) -> Result<Result<CompactionFinished, SkipReason>, Rejection> {
    // The record lists the dropped content, because no summary describes it.
    let tokens = rule.tokens(session).flatten();
    let (partition, rounds) = oldest_rounds(session, tokens)?;
    let (Some(first), Some(last)) = (partition.leaving.first(), partition.leaving.last()) else {
        return Ok(Err(SkipReason::NothingEligible));
    };
    let tokens = estimated_tokens(session, &partition.leaving);
    let dropped = DroppedContent {
        messages: crate::view::count(partition.leaving.len()),
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
        part: SummaryPart::Whole,
        must_keep: &[],
        partition,
        adopted: None,
        before_tokens: None,
        dropped: Some(dropped),
    };
    let compacted = made.build_event(session, what)?;
    // `build_event` fails only if the view would not become smaller.
    Ok(compacted.map_err(|_| SkipReason::TooLittleGain))
}
