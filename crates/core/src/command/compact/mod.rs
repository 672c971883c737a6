//! Level 5: a summary takes the place of messages. The running summary can do so at once; any other is
//! begun, made elsewhere, and finished, while messages go on coming in.

mod adopt;
mod ahead;
mod finish;
mod gate;
mod hook;
mod made;
mod oldest;
mod ready;

use super::{Context, Decision, Rejection, Skip, answered, check_revision};
use crate::event::{
    Asked, CompactionFailed, CompactionStarted, Event, RequestStamp, Strategy, WhyFailed,
};
use crate::ids::{MessageId, Ordinal, Revision, Timestamp};
use crate::levels::compaction::{Keep, Kept, keep, oldest_within};
use crate::session::Session;
use crate::session_summary::stand_in;

pub use self::adopt::Adopt;
pub use self::ahead::{CompactWithPrepared, prepares_ahead};
pub use self::finish::{FailCompaction, FinishCompaction, ShortenCompaction};
use self::gate::gate;
pub use self::gate::is_compaction_due;
pub use self::hook::AnswerHook;
pub use self::made::Made;
pub use self::oldest::DropOldest;
pub use self::ready::StartReady;

/// Put the running summary in the place of what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactWithMemory {
    /// Who asks.
    pub asked: Asked,
    /// What is made for it.
    pub made: Made,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

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

impl CompactWithMemory {
    pub(super) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        if let Err(skip) = gate(session, self.asked, context.now) {
            return Ok(Decision::Skipped(skip));
        }
        let policy = &session.policy().session_memory;
        let written = session.notes().written();
        // A text whose last message has left the view says nothing about what is in it.
        let usable = written.filter(|version| {
            let covers = version.covers;
            covers.is_some_and(|covers| session.transcript().is_visible(covers))
        });
        let Some(version) = usable.filter(|_| policy.enabled) else {
            return Ok(Decision::Skipped(Skip::NothingEligible));
        };
        let kept = keep(
            session,
            Keep::Recent {
                after: version.covers,
                min_tokens: policy.keep_min_tokens.into(),
                min_messages: policy.keep_min_messages,
                max_tokens: policy.keep_max_tokens.into(),
            },
        )?;
        let compacted = self.made.compacted(
            session,
            made::What {
                key: session.compactions().next_key(),
                asked: self.asked,
                strategy: Strategy::SessionMemory,
                summary: &stand_in(session, &version.text),
                must_keep: &[],
                kept,
                adopted: None,
                before: None,
                dropped: None,
            },
        )?;
        let Ok(mut compacted) = compacted else {
            return Ok(Decision::Skipped(Skip::TooLittleGain));
        };
        // What is still over the threshold would be compacted again at once.
        if self.asked != Asked::Manual && compacted.after_tokens >= session.thresholds().compact {
            return Ok(Decision::Skipped(Skip::TooLittleGain));
        }
        compacted.request = self.request;
        Ok(Decision::Events(vec![Event::Compacted(compacted)]))
    }
}

impl StartCompaction {
    pub(super) fn decide(
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

fn sum(session: &Session, kept: &Kept) -> u64 {
    let leaving = kept.leaving.iter();
    leaving.map(|at| estimated(session, *at)).sum()
}

/// The end of a compaction whose time is over.
pub(super) fn expired(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.is_over(now))?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        asked: running.asked,
        why: WhyFailed::Expired,
        detail: "it did not finish in time".into(),
        took_ms: now.millis_since(running.at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}

/// The messages of the view, in its order, without some.
fn staying(session: &Session, leaving: &[Ordinal]) -> Vec<Ordinal> {
    let mut seen = std::collections::BTreeSet::new();
    let pieces = session.sealed().pieces().iter();
    let of_messages = pieces.filter(|piece| piece.form.is_of_a_block());
    of_messages
        .map(|piece| piece.message)
        .filter(|message| leaving.binary_search(message).is_err() && seen.insert(*message))
        .collect()
}

fn estimated(session: &Session, message: Ordinal) -> u64 {
    let entry = session.transcript().get(message);
    entry.map_or(0, |entry| entry.size.tokens.into())
}
