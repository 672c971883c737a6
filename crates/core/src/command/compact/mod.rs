//! Level 5: a summary takes the place of messages. The running summary can do so at once; any other is
//! begun, made elsewhere, and finished, while messages go on coming in.

mod adopt;
mod gate;
mod made;

use super::{Context, Decision, Rejection, Skip, answered, check_revision};
use crate::event::{Asked, CompactionFailed, CompactionStarted, Event, WhyFailed};
use crate::extract::stand_in;
use crate::ids::{CompactionKey, MessageId, Ordinal, Revision, Timestamp};
use crate::levels::compaction::{Keep, Kept, keep, spared};
use crate::message::Usage;
use crate::session::{RequestStamp, Session, Strategy};

pub use self::adopt::Adopt;
use self::gate::gate;
pub use self::made::Made;

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
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

/// Put a summary in the place of what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishCompaction {
    /// Which compaction.
    pub key: CompactionKey,
    /// How the summary was made in the end.
    pub strategy: Strategy,
    /// The summary; it is framed here.
    pub summary: Box<str>,
    /// What is made for it.
    pub made: Made,
    /// The model that wrote it; empty when none did.
    pub model: Box<str>,
    /// What that model reported.
    pub usage: Usage,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Record that a compaction came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailCompaction {
    /// Which compaction.
    pub key: CompactionKey,
    /// Why.
    pub why: WhyFailed,
    /// The same for a person. Never holds content of the conversation.
    pub detail: Box<str>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
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
                kept,
                adopted: None,
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
        if let Err(skip) = gate(session, self.asked, context.now) {
            return Ok(Decision::Skipped(skip));
        }
        let kept = keep(session, self.keep(session)?)?;
        let tokens: u64 = kept.leaving.iter().map(|at| estimated(session, *at)).sum();
        let tokens = session.ledger().calibration.apply(tokens);
        if tokens < u64::from(session.policy().autocompact.min_input_tokens) {
            return Ok(Decision::Skipped(Skip::TooLittleInput));
        }
        let timeout = session.policy().autocompact.timeout.get();
        let mut events: Vec<Event> = expired(session, context.now).into_iter().collect();
        events.push(Event::CompactionStarted(CompactionStarted {
            key: session.compactions().next_key(),
            asked: self.asked,
            strategy: self.strategy,
            expires: context.now.plus_millis(timeout),
            leaving: kept.leaving,
            before_tokens: session.tokens().tokens,
            request: self.request,
        }));
        Ok(Decision::Events(events))
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
            Scope::Whole => Keep::Recent {
                after: Some(session.transcript().next()),
                min_tokens: policy.keep_min_tokens.into(),
                min_messages: policy.keep_messages,
                max_tokens: policy.keep_max_tokens.into(),
            },
        })
    }
}

impl FinishCompaction {
    pub(super) fn decide(self, session: &Session) -> Result<Decision, Rejection> {
        let running = session.compactions().running.as_ref();
        let Some(running) = running.filter(|running| running.key == self.key) else {
            return Err(Rejection::NoSuchCompaction { key: self.key });
        };
        let fail = |why, detail: &str| {
            Ok(Decision::Events(vec![Event::CompactionFailed(
                CompactionFailed {
                    key: running.key,
                    asked: running.asked,
                    why,
                    detail: detail.into(),
                    took_ms: self.took_ms,
                },
            )]))
        };
        if running.touched {
            return fail(
                WhyFailed::RangeChanged,
                "the view was changed meanwhile, and the summary may tell of what has left it",
            );
        }
        let leaving = spared(session, &running.leaving)?;
        let kept = Kept {
            kept: staying(session, &leaving),
            leaving,
        };
        let compacted = self.made.compacted(
            session,
            made::What {
                key: running.key,
                asked: running.asked,
                strategy: self.strategy,
                summary: &self.summary,
                kept,
                adopted: None,
            },
        )?;
        match compacted {
            Err(why) => fail(why, "the view would not have become smaller"),
            Ok(mut compacted) => {
                compacted.model = self.model;
                compacted.usage = self.usage;
                compacted.took_ms = self.took_ms;
                Ok(Decision::Events(vec![Event::Compacted(compacted)]))
            }
        }
    }
}

impl FailCompaction {
    pub(super) fn decide(self, session: &Session) -> Decision {
        let running = session.compactions().running.as_ref();
        let running = running.filter(|running| running.key == self.key);
        Decision::Events(
            running
                .map(|running| {
                    Event::CompactionFailed(CompactionFailed {
                        key: running.key,
                        asked: running.asked,
                        why: self.why,
                        detail: self.detail,
                        took_ms: self.took_ms,
                    })
                })
                .into_iter()
                .collect(),
        )
    }
}

/// The end of a compaction whose time is over.
fn expired(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.expires <= now)?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        asked: running.asked,
        why: WhyFailed::Expired,
        detail: "it did not finish in time".into(),
        took_ms: now.millis_since(running.at),
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
