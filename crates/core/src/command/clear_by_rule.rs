//! Level 3 by the rule of a caller, in place of the thresholds of the policy.

use super::clear::{ClearPlan, decide_plan, freed_tokens};
use super::decision::{Decided, DecisionContext, SkipReason};
use super::reject::Rejection;
use crate::event::Trigger;
use crate::ids::CallKey;
use crate::levels::clearing::is_clearable_except;
use crate::session::Session;

/// Clears the oldest tool results when a caller's rule applies. The results are not stored. The log has the originals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearByRule {
    /// The condition.
    pub above: ClearAbove,
    /// The number of latest results that stay.
    pub keep_results: u64,
    /// The minimum number of freed tokens. Below it nothing is cleared.
    pub min_freed_tokens: u64,
    /// The tools whose results stay.
    pub excluded_tools: Box<[Box<str>]>,
}

/// The size above which results are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearAbove {
    /// The size of the view and the prompt prefix, in tokens.
    Tokens(u64),
    /// The number of results in the view that are not cleared. Those of excluded tools do not count.
    Results(u64),
}

impl ClearByRule {
    pub(super) fn decide(
        &self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        if !session.policy().microcompact.enabled {
            return Ok(Decided::Skipped(SkipReason::Disabled));
        }
        decide_plan(
            self.plan(session),
            session,
            (Trigger::Manual, None),
            context,
        )
    }

    fn plan(&self, session: &Session) -> Result<ClearPlan, SkipReason> {
        let live = session.sealed().live_results().iter().copied();
        let mut calls: Vec<CallKey> = live
            .filter(|call| is_clearable_except(session, *call, &self.excluded_tools))
            .collect();
        let is_above = match self.above {
            ClearAbove::Tokens(most) => session.tokens().tokens > most,
            ClearAbove::Results(most) => calls.len() as u64 > most,
        };
        if !is_above {
            return Err(SkipReason::UnderThreshold);
        }
        let kept = usize::try_from(self.keep_results).unwrap_or(usize::MAX);
        calls.truncate(calls.len().saturating_sub(kept));
        // A result that is not larger than the marker would free nothing, so it stays.
        calls.retain(|call| freed_tokens(session, *call) > 0);
        ClearPlan::by_size(session, calls, self.min_freed_tokens, false)
    }
}
