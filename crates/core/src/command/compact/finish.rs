//! How a compaction that has begun goes on and ends.

use super::hook::called;
use super::made::{self, Made};
use super::range::{expired, staying};
use crate::command::decision::{Context, Decision, Skip, answered};
use crate::command::reject::Rejection;
use crate::event::{
    CompactionFailed, CompactionShortened, Dropped, Event, HookCall, RequestStamp, Strategy,
    SummaryPrepared, WhyFailed,
};
use crate::ids::CompactionKey;
use crate::levels::compaction::{Kept, spared};
use crate::message::Usage;
use crate::session::{Running, Session};

/// Put a summary in the place of what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishCompaction {
    /// Which compaction.
    pub key: CompactionKey,
    /// How often its input had been made shorter for this summary.
    pub attempt: u32,
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
    /// What was not in the summary's input.
    pub dropped: Option<Dropped>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What hooks did at its end, in order. What they added is among what is made.
    pub hooks: Vec<HookCall>,
    /// So that a retry of whoever brings the summary is recognised.
    pub request: Option<RequestStamp>,
    /// The delegation that it answers.
    pub commit: Option<RequestStamp>,
}

/// Record that a compaction came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailCompaction {
    /// Which compaction.
    pub key: CompactionKey,
    /// How often its input had been made shorter by then.
    pub attempt: u32,
    /// Why.
    pub why: WhyFailed,
    /// The same for a person. Never holds content of the conversation.
    pub detail: Box<str>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What hooks did at its end, in order.
    pub hooks: Vec<HookCall>,
    /// So that a retry of whoever ends it is recognised.
    pub request: Option<RequestStamp>,
    /// The delegation that it answers.
    pub commit: Option<RequestStamp>,
}

/// Record that the input of a summary is made shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortenCompaction {
    /// Which compaction.
    pub key: CompactionKey,
    /// How often that had been done before.
    pub attempt: u32,
    /// What the input does not have any more, in all.
    pub dropped: Dropped,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
    /// The delegation that it answers.
    pub commit: Option<RequestStamp>,
}

impl FinishCompaction {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        let stamps = [&self.request, &self.commit];
        let running = match under_way(session, context, (self.key, self.attempt), stamps)? {
            Ok(running) => running,
            Err(decided) => return Ok(decided),
        };
        let fail = |why, detail: &str| {
            // What a hook would have added is in no view.
            let without = |call: &HookCall| HookCall {
                messages: Vec::new(),
                ..call.clone()
            };
            let hooks: Vec<HookCall> = self.hooks.iter().map(without).collect();
            let mut events: Vec<Event> = called(running.key, &hooks).collect();
            events.push(Event::CompactionFailed(CompactionFailed {
                key: running.key,
                asked: running.asked,
                why,
                detail: detail.into(),
                took_ms: self.took_ms,
                hooks: [&running.hooks.calls[..], &hooks].concat(),
                request: self.request.clone(),
                commit: self.commit.clone(),
            }));
            Ok(Decision::Events(events))
        };
        if running.touched {
            return fail(
                WhyFailed::RangeChanged,
                "the view was changed meanwhile, and the summary may tell of what has left it",
            );
        }
        if running.ahead {
            return Ok(Decision::Events(vec![Event::SummaryPrepared(
                SummaryPrepared {
                    key: running.key,
                    text: self.summary,
                    strategy: self.strategy,
                    model: self.model,
                    usage: self.usage,
                    dropped: self.dropped,
                    took_ms: self.took_ms,
                },
            )]));
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
                must_keep: &running.hooks.must_keep,
                kept,
                adopted: None,
                before: None,
                dropped: self.dropped,
            },
        )?;
        match compacted {
            // Whoever was asked for the summary may bring a shorter one.
            Err(_) if running.strategy == Strategy::Delegated => {
                Ok(Decision::Skipped(Skip::TooLittleGain))
            }
            Err(why) => fail(why, "the view would not have become smaller"),
            Ok(mut compacted) => {
                compacted.model = self.model;
                compacted.usage = self.usage;
                compacted.took_ms = self.took_ms;
                compacted.hooks = [&running.hooks.calls[..], &self.hooks].concat();
                compacted.request = self.request;
                compacted.commit = self.commit;
                let mut events: Vec<Event> = called(running.key, &self.hooks).collect();
                events.push(Event::Compacted(compacted));
                Ok(Decision::Events(events))
            }
        }
    }
}

impl FailCompaction {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        for stamp in [&self.request, &self.commit].into_iter().flatten() {
            if let Some(revision) = answered(session, Some(stamp), context)? {
                return Ok(Decision::Answered(revision));
            }
        }
        let running = session.compactions().running.as_ref();
        let running =
            running.filter(|running| running.key == self.key && running.attempt == self.attempt);
        let Some(running) = running else {
            return Ok(Decision::Events(Vec::new()));
        };
        let mut events: Vec<Event> = called(running.key, &self.hooks).collect();
        events.push(Event::CompactionFailed(CompactionFailed {
            key: running.key,
            asked: running.asked,
            why: self.why,
            detail: self.detail,
            took_ms: self.took_ms,
            hooks: [&running.hooks.calls[..], &self.hooks].concat(),
            request: self.request,
            commit: self.commit,
        }));
        Ok(Decision::Events(events))
    }
}

impl ShortenCompaction {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        let stamps = [&self.request, &self.commit];
        let running = match under_way(session, context, (self.key, self.attempt), stamps)? {
            Ok(running) => running,
            Err(decided) => return Ok(decided),
        };
        Ok(Decision::Events(vec![Event::CompactionShortened(
            CompactionShortened {
                key: running.key,
                attempt: running.attempt + 1,
                dropped: self.dropped,
                request: self.request,
                commit: self.commit,
            },
        )]))
    }
}

/// The compaction that is meant, when it is under way; else what that decides.
pub(super) fn under_way<'s>(
    session: &'s Session,
    context: Context<'_>,
    (key, attempt): (CompactionKey, u32),
    stamps: [&Option<RequestStamp>; 2],
) -> Result<Result<&'s Running, Decision>, Rejection> {
    for stamp in stamps.into_iter().flatten() {
        if let Some(revision) = answered(session, Some(stamp), context)? {
            return Ok(Err(Decision::Answered(revision)));
        }
    }
    let running = session.compactions().running.as_ref();
    let Some(running) = running.filter(|running| running.key == key && running.attempt == attempt)
    else {
        return Err(Rejection::NoSuchCompaction { key });
    };
    // A model of the service that is late is still welcome; a caller was told until when.
    if running.strategy == Strategy::Delegated {
        let over = expired(session, context.now);
        return Ok(over.map_or(Ok(running), |over| Err(Decision::Events(vec![over]))));
    }
    Ok(Ok(running))
}
