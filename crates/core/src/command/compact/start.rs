//! Starts a compaction. The compaction also ends in the same decision if its summary exists and no hook is awaited.

use super::drop_oldest::DropRule;
use super::external::ExternalSummary;
use super::finished_event::CompactionMessages;
use super::range::expiry_event;
use super::write::SummarySpec;
use super::{drop_oldest, existing_summary, preconditions};
use crate::command::decision::{Decided, DecisionContext, SkipReason, answered, check_revision};
use crate::command::reject::Rejection;
use crate::event::{CompactionFinished, CompactionStarted, Event, RequestStamp, Trigger};
use crate::ids::{Revision, Timestamp};
use crate::session::Session;
use crate::summary::SummaryPart;

/// Starts a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartCompaction {
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The source of the summary.
    pub source: SummarySource,
    /// True if a hook may act on the compaction. A later command then ends it, even if the summary exists.
    pub awaits_hooks: bool,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The source of the summary that replaces messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummarySource {
    /// The latest text of session memory.
    SessionMemory(CompactionMessages),
    /// The prepared summary.
    Prepared(CompactionMessages),
    /// A summary that is written after the start.
    Write(SummarySpec),
    /// A summary that another program wrote.
    External(Box<ExternalSummary>),
    /// No summary. The oldest rounds leave the view. The last resort after a rejected prompt or in a critical view.
    DropOldest {
        /// The tokens that must leave.
        rule: DropRule,
        /// The ids and messages of the compaction.
        made: CompactionMessages,
    },
}

impl StartCompaction {
    /// Creates a start without hooks, expected revision and stamp.
    pub fn new(asked: Trigger, source: SummarySource) -> Self {
        Self {
            trigger: asked,
            source,
            awaits_hooks: false,
            expected_revision: None,
            request: None,
        }
    }

    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decided::Answered(revision));
        }
        // A repeated import is recognized by its summary, even without a request id.
        if let SummarySource::External(summary) = &self.source
            && summary.is_known(session)?
        {
            return Ok(Decided::events(Vec::new()));
        }
        check_revision(session, self.expected_revision)?;
        if let Err(skip) = self.gate(session, context.now) {
            return Ok(Decided::Skipped(skip));
        }
        let compacted = match self.source {
            SummarySource::Write(spec) => {
                let kept = match spec.divide(session, self.trigger)? {
                    Ok(kept) => kept,
                    Err(skip) => return Ok(Decided::Skipped(skip)),
                };
                return Ok(start_decision(
                    session,
                    context.now,
                    CompactionStarted {
                        key: session.compactions().next_key(),
                        trigger: self.trigger,
                        strategy: spec.strategy,
                        deadline: deadline(session, context.now),
                        part: spec.scope.part(),
                        leaving: kept.leaving,
                        before_tokens: session.tokens().tokens,
                        ahead: spec.ahead,
                        instructions: spec.instructions,
                        request: self.request,
                    },
                ));
            }
            SummarySource::SessionMemory(made) => {
                existing_summary::session_memory(session, self.trigger, &made, context.now)?
            }
            SummarySource::Prepared(made) => {
                existing_summary::prepared(session, self.trigger, &made)?
            }
            SummarySource::External(summary) => {
                summary.compacted(session, self.trigger, context)?
            }
            SummarySource::DropOldest { rule, made } => {
                drop_oldest::without(session, self.trigger, rule, &made)?
            }
        };
        let mut compacted = match compacted {
            Ok(compacted) => compacted,
            Err(skip) => return Ok(Decided::Skipped(skip)),
        };
        compacted.request = self.request;
        // With hooks, only the start is recorded. The computed messages are discarded and computed again at the end.
        if self.awaits_hooks {
            let expires = deadline(session, context.now);
            return Ok(start_decision(
                session,
                context.now,
                start_of(compacted, expires),
            ));
        }
        Ok(Decided::events(vec![Event::CompactionFinished(compacted)]))
    }

    /// Returns the reason if the compaction may not start now.
    fn gate(&self, session: &Session, now: Timestamp) -> Result<(), SkipReason> {
        match &self.source {
            SummarySource::Write(spec) if spec.ahead => preconditions::gate_ahead(session, now),
            SummarySource::SessionMemory(_)
            | SummarySource::Prepared(_)
            | SummarySource::Write(_) => preconditions::check_can_start(session, self.trigger, now),
            // The other program has made this compaction already.
            SummarySource::External(_) => Ok(()),
            // Other calls may have freed the tokens meanwhile.
            SummarySource::DropOldest { rule, .. } if rule.tokens(session).is_none() => {
                Err(SkipReason::UnderThreshold)
            }
            SummarySource::DropOldest { .. } if session.policy().autocompact.enabled => Ok(()),
            SummarySource::DropOldest { .. } => Err(SkipReason::Disabled),
        }
    }
}

/// Builds the events of a start. An expired compaction, or one that this start replaces, is ended first.
fn start_decision(session: &Session, now: Timestamp, start: CompactionStarted) -> Decided {
    let ended = expiry_event(session, now).or_else(|| preconditions::displaced(session, now));
    let start = Event::CompactionStarted(start);
    Decided::events(ended.into_iter().chain([start]).collect())
}

fn deadline(session: &Session, now: Timestamp) -> Timestamp {
    now.plus_millis(session.policy().autocompact.timeout.get())
}

/// Builds the start event of a compaction whose outcome is already computed.
fn start_of(compacted: CompactionFinished, deadline: Timestamp) -> CompactionStarted {
    CompactionStarted {
        key: compacted.key,
        trigger: compacted.trigger,
        strategy: compacted.strategy,
        deadline,
        // A summary that exists before the start was written for the whole conversation.
        part: SummaryPart::Whole,
        leaving: compacted.leaving,
        before_tokens: compacted.before_tokens,
        ahead: false,
        instructions: None,
        request: compacted.request,
    }
}
