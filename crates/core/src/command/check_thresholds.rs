//! Checks the thresholds of a view that is about to be returned. The work that is due begins after the commit.

use super::compact::{is_compaction_due, is_truncation_due, prepares_ahead};
use super::decision::{Decided, Decision, DecisionContext};
use crate::effect::{Effect, FollowUp};
use crate::event::Trigger;
use crate::levels::collapse::is_due;
use crate::session::Session;

/// Checks the thresholds of the view. Makes no event: every effect is a follow-up.
///
/// Only a call that prepares a view checks the thresholds. An append above a threshold starts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckThresholds {
    /// True if the provider rejected the last prompt as too long.
    pub prompt_was_rejected: bool,
    /// The size of the view at which the caller requests a compaction, in tokens. `None`: the policy alone decides.
    pub compact_at: Option<u64>,
    /// True if the caller waits for a compaction that only reduces the cost. The reply then contains the compacted view.
    pub waits_for_lower_cost: bool,
}

impl CheckThresholds {
    pub(super) fn decide(self, session: &Session, context: DecisionContext<'_>) -> Decided {
        let compact = if self.prompt_was_rejected {
            Some(Trigger::PromptTooLong)
        } else if self.compact_at.is_some_and(|at| is_requested(session, at)) {
            Some(Trigger::Manual)
        } else {
            let is_due = is_compaction_due(session)
                || is_truncation_due(session)
                || self.waits_for_lower_cost && session.compaction_reduces_cost(context.now);
            is_due.then_some(Trigger::Auto)
        };
        // The compaction comes first, because a caller may wait for it.
        let due = [
            compact.map(FollowUp::Compact),
            is_due(session).then_some(FollowUp::StageSpans),
            prepares_ahead(session, context.now).then_some(FollowUp::PrepareSummary),
        ];
        Decided::Now(Decision {
            events: Vec::new(),
            effects: due.into_iter().flatten().map(Effect::FollowUp).collect(),
        })
    }
}

/// Returns true if the view has reached the size at which the caller requests a compaction.
fn is_requested(session: &Session, at: u64) -> bool {
    let policy = &session.policy().autocompact;
    let tokens = session.tokens().tokens;
    // A view that a compaction leaves above this size would otherwise be compacted with each request.
    let compactions = session.compactions().boundaries.iter();
    let floor = compactions.last().map_or(0, |last| last.after_tokens);
    let has_grown = tokens.saturating_sub(floor) >= policy.min_input_tokens.into();
    policy.manual_enabled && tokens >= at && has_grown
}
