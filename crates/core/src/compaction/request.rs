//! The request for a compaction.

use super::step::{CompactionContext, CompactionOutcome};
use crate::command::{CompactionScope, DropRule, is_compaction_due};
use crate::event::{Event, RequestStamp, Strategy, Trigger};
use crate::ids::Revision;
use crate::session::Session;

/// A request for a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The use of the summary.
    pub purpose: Purpose,
    /// The strategy that the caller chose. `None` selects it by policy and server configuration.
    pub strategy: Option<Strategy>,
    /// True if the caller's model writes a summary that does not exist yet. Ignored if the caller chose a strategy.
    pub is_delegated: bool,
    /// The part of the view that the summary covers.
    pub scope: CompactionScope,
    /// The model for the summary. `None` selects the policy's model.
    pub model: Option<Box<str>>,
    /// Instructions for this summary. Summaries that exist already were written without them.
    pub instructions: Option<Box<str>>,
    /// The maximum size of the view with session memory, in tokens, if another summary leaves a smaller view. `None`: the
    /// policy alone decides between both.
    pub max_memory_view_tokens: Option<u64>,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
    /// True if the compaction runs on a copy of the session. It then waits for nothing and calls no hook or model.
    pub is_dry_run: bool,
}

/// The use of the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The summary replaces messages.
    Replace,
    /// The summary is prepared before the threshold is reached and used later.
    PrepareAhead,
    /// No summary. The oldest rounds leave the view.
    DropOldest(DropRule),
}

impl CompactionRequest {
    /// Creates a request for the whole view, with the strategy of the policy.
    pub fn new(trigger: Trigger) -> Self {
        Self {
            trigger,
            purpose: Purpose::Replace,
            strategy: None,
            is_delegated: false,
            scope: CompactionScope::Whole,
            model: None,
            instructions: None,
            max_memory_view_tokens: None,
            expected_revision: None,
            request: None,
            is_dry_run: false,
        }
    }

    /// Creates the request for a prepared summary. Only a model may write it.
    pub fn prepare_ahead() -> Self {
        Self {
            purpose: Purpose::PrepareAhead,
            strategy: Some(Strategy::Model),
            ..Self::new(Trigger::Auto)
        }
    }

    /// Creates the request to remove the oldest rounds.
    pub fn drop_oldest(trigger: Trigger, rule: DropRule) -> Self {
        Self {
            purpose: Purpose::DropOldest(rule),
            ..Self::new(trigger)
        }
    }

    /// Returns the dry run that shows how small one strategy would make the view.
    #[must_use]
    pub fn estimate(&self, strategy: Strategy) -> Self {
        Self {
            strategy: Some(strategy),
            is_dry_run: true,
            ..Self::new(self.trigger)
        }
    }

    /// Returns the request of the next round if the policy limits the input of one compaction. An automatic request
    /// continues until the view is under its threshold, a manual one until nothing is left.
    pub fn next_round(&self, session: &Session, last: &CompactionOutcome) -> Option<Self> {
        let is_divisible = self.scope == CompactionScope::Whole
            && self.purpose == Purpose::Replace
            && self.strategy != Some(Strategy::Delegated)
            && !self.is_dry_run;
        let is_limited = session.policy().autocompact.max_input_tokens > 0;
        let has_more = self.trigger == Trigger::Manual || is_compaction_due(session);
        // A round without effect would be repeated forever.
        let is_compacted = matches!(last.event(), Some((_, Event::CompactionFinished(_))));
        // Only the first round answers the request and checks the expected revision.
        (is_divisible && is_limited && has_more && is_compacted).then(|| Self {
            expected_revision: None,
            request: None,
            ..self.clone()
        })
    }

    /// Returns the writer of a summary that does not exist yet, if the caller chose no strategy.
    pub(super) fn writer(&self, context: &CompactionContext) -> Strategy {
        if self.is_delegated {
            Strategy::Delegated
        } else {
            context.usual()
        }
    }

    /// Returns true if a summary that was written independently of this request may be used.
    pub(super) fn takes_any(&self) -> bool {
        self.instructions.is_none()
            && self.model.is_none()
            && self.scope == CompactionScope::Whole
            && self.purpose == Purpose::Replace
    }
}
