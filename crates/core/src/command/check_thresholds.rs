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
}

impl CheckThresholds {
    pub(super) fn decide(self, session: &Session, context: DecisionContext<'_>) -> Decided {
        let compact = if self.prompt_was_rejected {
            Some(Trigger::PromptTooLong)
        } else {
            let is_due = is_compaction_due(session) || is_truncation_due(session);
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
