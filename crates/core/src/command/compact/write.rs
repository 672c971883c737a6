//! Selects the messages that a summary has to cover.

use super::range::estimated_tokens;
use crate::command::decision::{SkipReason, find_visible};
use crate::command::reject::Rejection;
use crate::event::{Strategy, Trigger};
use crate::ids::{MessageId, Ordinal};
use crate::levels::compaction::{
    KeepRule, MessagePartition, count_unanswered, limit_leaving_tokens, partition,
};
use crate::session::Session;
use crate::summary::SummaryPart;

/// The part of the view that a summary covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionScope {
    /// All messages except those that always stay and the recent ones that the policy keeps.
    #[default]
    Whole,
    /// All messages up to and including this one.
    UpTo(MessageId),
    /// All messages from this one on.
    From(MessageId),
}

impl CompactionScope {
    /// Returns the part of the conversation that the summary replaces.
    pub(super) const fn part(self) -> SummaryPart {
        match self {
            Self::Whole => SummaryPart::Whole,
            Self::UpTo(_) => SummaryPart::Beginning,
            Self::From(_) => SummaryPart::End,
        }
    }
}

/// The parameters of a summary that has to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarySpec {
    /// The source of the summary.
    pub strategy: Strategy,
    /// The part of the view that it covers.
    pub scope: CompactionScope,
    /// True if the summary is prepared before the threshold is reached and used later.
    pub ahead: bool,
    /// The caller's additional instructions for the summary.
    pub instructions: Option<Box<str>>,
}

impl SummarySpec {
    /// Creates the parameters of a summary of the whole view, without instructions.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            scope: CompactionScope::Whole,
            ahead: false,
            instructions: None,
        }
    }

    /// Divides the view into messages that leave and messages that stay. Returns the reason if too little would leave.
    pub(super) fn divide(
        &self,
        session: &Session,
        asked: Trigger,
    ) -> Result<Result<MessagePartition, SkipReason>, Rejection> {
        let least = u64::from(session.policy().autocompact.min_input_tokens);
        // A request of a caller or of the model has no minimum input.
        let by_hand = asked.is_by_hand();
        let enough = |kept: &MessagePartition| {
            by_hand
                || session
                    .ledger()
                    .calibration
                    .apply(estimated_tokens(session, &kept.leaving))
                    >= least
        };
        // After a rejected prompt, the history before the current turn leaves first. The turn itself leaves only if the
        // history has too few tokens.
        if asked == Trigger::PromptTooLong
            && self.scope == CompactionScope::Whole
            && let Some(before) = before_last_turn(session)
        {
            let kept = partition(session, KeepRule::After(before))?;
            if enough(&kept) && !kept.leaving.is_empty() {
                return Ok(Ok(kept));
            }
        }
        let mut kept = match self.keeping_unanswered(session, asked)? {
            Some(kept) if enough(&kept) => kept,
            // The results leave only if the next request would not fit otherwise.
            Some(_) if session.tokens().tokens < session.thresholds().block => {
                return Ok(Err(SkipReason::TooLittleInput));
            }
            _ => partition(session, self.keep(session)?)?,
        };
        // A long history is summarized in parts: the input is limited to the oldest messages.
        let most = session.policy().autocompact.max_input_tokens;
        if most > 0 && self.scope == CompactionScope::Whole {
            kept = limit_leaving_tokens(session, kept, most.into())?;
        }
        if !enough(&kept) {
            return Ok(Err(SkipReason::TooLittleInput));
        }
        // Summarizing only an earlier summary would only lose information.
        let is_new = |at: &Ordinal| {
            let entry = session.transcript().get(*at);
            entry.is_some_and(|entry| !entry.kind.is_framing())
        };
        if by_hand && !kept.leaving.iter().any(is_new) {
            return Ok(Err(SkipReason::NothingEligible));
        }
        Ok(Ok(kept))
    }

    /// Divides the view so that the tool results stay that the model has not read. `None` without such results, if they
    /// need more than half of the compaction threshold, and for all but automatic compactions of the whole view.
    fn keeping_unanswered(
        &self,
        session: &Session,
        asked: Trigger,
    ) -> Result<Option<MessagePartition>, Rejection> {
        if asked != Trigger::Auto || self.scope != CompactionScope::Whole {
            return Ok(None);
        }
        let unanswered = count_unanswered(session, session.thresholds().compact / 2);
        if unanswered == 0 {
            return Ok(None);
        }
        Ok(Some(partition(session, keep_last(session, unanswered))?))
    }

    fn keep(&self, session: &Session) -> Result<KeepRule, Rejection> {
        Ok(match self.scope {
            CompactionScope::UpTo(id) => KeepRule::After(find_visible(session, id)?),
            CompactionScope::From(id) => KeepRule::Before(find_visible(session, id)?),
            CompactionScope::Whole => keep_last(session, 0),
        })
    }
}

/// Returns the rule that keeps the messages of the policy, and at least `least` messages.
fn keep_last(session: &Session, least: u32) -> KeepRule {
    let policy = &session.policy().autocompact;
    KeepRule::Last {
        messages: policy.keep_messages.max(least),
        min_tokens: policy.keep_min_tokens.into(),
        max_tokens: policy.keep_max_tokens.into(),
    }
}

/// Returns the last message before the current user turn.
fn before_last_turn(session: &Session) -> Option<Ordinal> {
    let start = session.turns().start(session.current_turn()?)?;
    start.get().checked_sub(1).map(Ordinal::new)
}
