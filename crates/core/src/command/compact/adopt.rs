//! A compaction that the caller's own program has made already: its summary takes the place of what it
//! stood for there. Transcripts of other programs come in with theirs in this way.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::made::{Made, What};
use crate::command::append::{check, check_parents};
use crate::command::decision::{Context, Decision, Skip, answered, check_revision};
use crate::command::reject::{Conflict, Rejection};
use crate::event::{Asked, Event, RequestStamp, Strategy};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::levels::compaction::replace;
use crate::message::{Block, Digest, Kind, Message, Role};
use crate::session::Session;

/// Put a summary that came from outside in the place of messages. The view has to be served before: what
/// has no place in it cannot be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopt {
    /// The summary, as its program showed it to the model.
    pub summary: Arc<Message>,
    /// The first message that it stands for; the first of all by default.
    pub first: Option<MessageId>,
    /// The last one; the last of all by default.
    pub last: Option<MessageId>,
    /// Messages between these that stayed word for word.
    pub kept: Vec<MessageId>,
    /// Who had asked for it.
    pub asked: Asked,
    /// What the view had before, in tokens, as far as that was said.
    pub before_tokens: Option<u64>,
    /// The id of the message that marks it.
    pub mark: MessageId,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

impl Adopt {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        let mut summary = Message::clone(&self.summary);
        (summary.kind, summary.meta, summary.transcript_only) = (Kind::Summary, true, false);
        if is_known(session, &summary)? {
            return Ok(Decision::Events(Vec::new()));
        }
        check_revision(session, self.expected_revision)?;
        check_parents(session, std::slice::from_ref(&self.summary))?;
        let own = &session.policy().limits;
        check(0, &self.summary, &context.limits.narrowed_by(own), own)?;
        let leaving = self.leaving(session)?;
        let kept = replace(session, |message| leaving.contains(&message))?;
        let made = Made {
            mark: self.mark,
            summary: self.summary.id,
            request: None,
            attached: Vec::new(),
        };
        let compacted = made.compacted(
            session,
            What {
                key: session.compactions().next_key(),
                asked: self.asked,
                strategy: Strategy::Delegated,
                summary: "",
                must_keep: &[],
                kept,
                adopted: Some(Arc::new(summary)),
                before: self.before_tokens,
                dropped: None,
            },
        )?;
        let Ok(mut compacted) = compacted else {
            return Ok(Decision::Skipped(Skip::NothingEligible));
        };
        compacted.request = self.request;
        Ok(Decision::Events(vec![Event::Compacted(compacted)]))
    }

    /// The messages that are named.
    fn leaving(&self, session: &Session) -> Result<BTreeSet<Ordinal>, Rejection> {
        let transcript = session.transcript();
        let place = |id: MessageId| {
            let found = transcript.find(id);
            found.ok_or(Rejection::NoSuchMessage { id })
        };
        let first = self.first.map(place).transpose()?;
        let last = self.last.map(place).transpose()?;
        let kept = self.kept.iter().map(|id| place(*id));
        let kept: BTreeSet<Ordinal> = kept.collect::<Result<_, _>>()?;
        let all = transcript.entries().map(|(at, _)| at);
        let named = all.filter(|at| {
            first.is_none_or(|first| first <= *at)
                && last.is_none_or(|last| *at <= last)
                && !kept.contains(at)
        });
        Ok(named.collect())
    }
}

/// Whether a summary was taken in before.
fn is_known(session: &Session, summary: &Message) -> Result<bool, Rejection> {
    let is_text = matches!(&*summary.blocks, [block @ Block::Text { .. }] if !block.is_blank());
    if summary.role != Role::User || !is_text {
        return Err(Rejection::invalid(
            "messages[0]",
            "must be a message of the user's with one block of text where adopted_compaction is set",
        ));
    }
    let transcript = session.transcript();
    let known = transcript.find(summary.id);
    let Some(known) = known.and_then(|at| transcript.get(at)) else {
        return Ok(false);
    };
    let given = Digest::of_message(summary);
    if known.digest == given {
        return Ok(true);
    }
    Err(Rejection::Conflict(Conflict::Message {
        id: summary.id,
        recorded: known.digest,
        given,
    }))
}
