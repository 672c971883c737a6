//! The beginning of a compaction whose summary is made elsewhere.

use super::ahead;
use super::gate::gate;
use super::range::{expired, sum};
use crate::command::decision::{Context, Decision, Skip, answered, check_revision};
use crate::command::reject::Rejection;
use crate::event::{Asked, CompactionStarted, Event, RequestStamp, Strategy};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::levels::compaction::{Keep, Kept, keep, oldest_within};
use crate::session::Session;

/// Which part is summarised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Everything but what is always kept, and the end that the policy keeps.
    #[default]
    Whole,
    /// Up to and including a message.
    UpTo(MessageId),
    /// From a message on.
    From(MessageId),
}

/// Begin to summarise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartCompaction {
    /// Who asks.
    pub asked: Asked,
    /// How the summary will be made.
    pub strategy: Strategy,
    /// Which part.
    pub scope: Scope,
    /// Whether the summary is written ahead of its time, to be put in its place later.
    pub ahead: bool,
    /// What the caller wants of this summary.
    pub instructions: Option<Box<str>>,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

impl StartCompaction {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        let gated = if self.ahead {
            ahead::gate(session, context.now)
        } else {
            gate(session, self.asked, context.now)
        };
        if let Err(skip) = gated {
            return Ok(Decision::Skipped(skip));
        }
        let kept = match self.parted(session)? {
            Ok(kept) => kept,
            Err(skip) => return Ok(Decision::Skipped(skip)),
        };
        let timeout = session.policy().autocompact.timeout.get();
        let ended =
            expired(session, context.now).or_else(|| ahead::displaced(session, context.now));
        let mut events: Vec<Event> = ended.into_iter().collect();
        events.push(Event::CompactionStarted(CompactionStarted {
            key: session.compactions().next_key(),
            asked: self.asked,
            strategy: self.strategy,
            expires: context.now.plus_millis(timeout),
            leaving: kept.leaving,
            before_tokens: session.tokens().tokens,
            ahead: self.ahead,
            instructions: self.instructions,
            request: self.request,
        }));
        Ok(Decision::Events(events))
    }

    /// Parts the view into messages that leave and messages that stay. Returns the reason if too little
    /// would leave.
    fn parted(&self, session: &Session) -> Result<Result<Kept, Skip>, Rejection> {
        let least = u64::from(session.policy().autocompact.min_input_tokens);
        let by_hand = matches!(self.asked, Asked::Manual | Asked::Model);
        let enough = |kept: &Kept| {
            by_hand || session.ledger().calibration.apply(sum(session, kept)) >= least
        };
        // A prompt that was refused loses its past first; the last turn only when that is too little.
        if self.asked == Asked::Provider
            && self.scope == Scope::Whole
            && let Some(before) = before_last_turn(session)
        {
            let kept = keep(session, Keep::After(before))?;
            if enough(&kept) && !kept.leaving.is_empty() {
                return Ok(Ok(kept));
            }
        }
        let mut kept = keep(session, self.keep(session)?)?;
        let most = session.policy().autocompact.max_input_tokens;
        if most > 0 && self.scope == Scope::Whole {
            kept = oldest_within(session, kept, most.into())?;
        }
        if !enough(&kept) {
            return Ok(Err(Skip::TooLittleInput));
        }
        // A summary of nothing but an earlier summary only loses what that one tells.
        let is_new = |at: &Ordinal| {
            let entry = session.transcript().get(*at);
            entry.is_some_and(|entry| !entry.kind.is_framing())
        };
        if by_hand && !kept.leaving.iter().any(is_new) {
            return Ok(Err(Skip::NothingEligible));
        }
        Ok(Ok(kept))
    }

    fn keep(&self, session: &Session) -> Result<Keep, Rejection> {
        let place = |id: MessageId| -> Result<Ordinal, Rejection> {
            let found = session.transcript().find(id);
            let place = found.ok_or(Rejection::NoSuchMessage { id })?;
            if !session.transcript().is_visible(place) {
                return Err(Rejection::NotVisible { id });
            }
            Ok(place)
        };
        let policy = &session.policy().autocompact;
        Ok(match self.scope {
            Scope::UpTo(id) => Keep::After(place(id)?),
            Scope::From(id) => Keep::Before(place(id)?),
            Scope::Whole => Keep::Last {
                messages: policy.keep_messages,
                min_tokens: policy.keep_min_tokens.into(),
                max_tokens: policy.keep_max_tokens.into(),
            },
        })
    }
}

/// The last message before the user turn that is going on.
fn before_last_turn(session: &Session) -> Option<Ordinal> {
    let start = session.turns().start(session.current_turn()?)?;
    start.get().checked_sub(1).map(Ordinal::new)
}
