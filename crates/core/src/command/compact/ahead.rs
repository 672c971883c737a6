//! A summary that is written ahead of its time: at the warning threshold, so that none has to be waited for
//! at the next one.

use super::made::{self, Made};
use super::range::staying;
use crate::command::decision::{Context, Decision, Skip, answered, check_revision};
use crate::command::reject::Rejection;
use crate::event::{Asked, CompactionFailed, Event, RequestStamp, WhyFailed};
use crate::ids::{Revision, Timestamp};
use crate::levels::compaction::{Kept, spared};
use crate::session::Session;

/// Put the summary that was written ahead in the place of what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactWithPrepared {
    /// Who asks.
    pub asked: Asked,
    /// What is made for it.
    pub made: Made,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

impl CompactWithPrepared {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        if let Err(skip) = super::gate::gate(session, self.asked, context.now) {
            return Ok(Decision::Skipped(skip));
        }
        let Some(prepared) = &session.compactions().prepared else {
            return Ok(Decision::Skipped(Skip::NothingEligible));
        };
        let leaving = spared(session, &prepared.leaving)?;
        let kept = Kept {
            kept: staying(session, &leaving),
            leaving,
        };
        let compacted = self.made.compacted(
            session,
            made::What {
                key: prepared.key,
                asked: self.asked,
                strategy: prepared.strategy,
                summary: &prepared.text,
                must_keep: &prepared.hooks.must_keep,
                kept,
                adopted: None,
                before: None,
                dropped: prepared.dropped,
            },
        )?;
        let Ok(mut compacted) = compacted else {
            return Ok(Decision::Skipped(Skip::TooLittleGain));
        };
        // So much came since that the view would be compacted again at once.
        if compacted.after_tokens >= session.thresholds().compact {
            return Ok(Decision::Skipped(Skip::TooLittleGain));
        }
        compacted.model.clone_from(&prepared.model);
        compacted.usage = prepared.usage;
        compacted.took_ms = prepared.took_ms;
        compacted.hooks.clone_from(&prepared.hooks.calls);
        compacted.request = self.request;
        Ok(Decision::Events(vec![Event::Compacted(compacted)]))
    }
}

/// Whether a summary is to be written ahead now.
pub fn prepares_ahead(session: &Session, now: Timestamp) -> bool {
    gate(session, now).is_ok()
}

/// Whether one may be begun; if not, why.
pub(super) fn gate(session: &Session, now: Timestamp) -> Result<(), Skip> {
    let (policy, compactions) = (&session.policy().autocompact, session.compactions());
    if !(policy.enabled && policy.prepare_ahead) || policy.reactive_only {
        return Err(Skip::Disabled);
    }
    if session.policy().collapse.enabled {
        return Err(Skip::CollapseEnabled);
    }
    let running = compactions.running.as_ref();
    if running.is_some_and(|running| !running.is_over(now)) {
        return Err(Skip::AlreadyRunning);
    }
    if compactions.prepared.is_some() || compactions.floor.is_some() {
        return Err(Skip::NothingEligible);
    }
    if compactions.held {
        return Err(Skip::Held);
    }
    if compactions.vetoed {
        return Err(Skip::Vetoed);
    }
    if compactions.ahead_failed {
        return Err(Skip::Paused);
    }
    let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
    if tokens < thresholds.warn || tokens >= thresholds.compact {
        return Err(Skip::UnderThreshold);
    }
    Ok(())
}

/// The end of one that is written ahead, because another compaction takes its place.
pub(super) fn displaced(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.ahead)?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        asked: running.asked,
        why: WhyFailed::RangeChanged,
        detail: "another compaction took its place".into(),
        took_ms: now.millis_since(running.at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}
