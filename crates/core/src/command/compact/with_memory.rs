//! A compaction with the running summary, which is there already.

use super::gate::gate;
use super::made::{self, Made};
use crate::command::decision::{Context, Decision, Skip, answered, check_revision};
use crate::command::reject::Rejection;
use crate::event::{Asked, Event, RequestStamp, Strategy};
use crate::ids::Revision;
use crate::levels::compaction::{Keep, keep};
use crate::session::Session;
use crate::session_summary::stand_in;

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

impl CompactWithMemory {
    pub(in crate::command) fn decide(
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
