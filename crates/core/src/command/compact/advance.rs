//! The steps of a started compaction up to its end.

use super::made::{CompactionMessages, CompactionSpec};
use super::range::{expired, staying};
use crate::command::decision::{Decision, DecisionContext, SkipReason, answered};
use crate::command::reject::Rejection;
use crate::event::{
    CompactionFailed, CompactionFailureReason, CompactionShortened, DroppedContent, Event,
    HookCall, HookCalled, RequestStamp, Strategy, SummaryPrepared,
};
use crate::ids::CompactionKey;
use crate::levels::compaction::{MessagePartition, spared};
use crate::message::Usage;
use crate::session::{RunningCompaction, Session};

/// Advance or end a started compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvanceCompaction {
    /// The compaction.
    pub key: CompactionKey,
    /// The number of times that its input had been shortened. An input for another attempt is rejected.
    pub attempt: u32,
    /// The step.
    pub input: CompactionInput,
    /// Calls of hooks at the end, in order. Messages that they added are among the messages of the summary.
    pub hooks: Vec<HookCall>,
    /// The time that the step took, in milliseconds.
    pub took_ms: u64,
    /// Identifies a retry of the caller that brings the summary.
    pub request: Option<RequestStamp>,
    /// The delegation that the caller answers.
    pub commit: Option<RequestStamp>,
}

/// A step of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionInput {
    /// The `PreCompact` hook answered. The first answer holds, whatever the attempt.
    HookAnswered {
        /// The call.
        call: HookCall,
        /// Added to the instructions of the summary.
        instructions: Option<Box<str>>,
        /// Texts that stand word for word beside the summary.
        must_keep: Vec<Box<str>>,
    },
    /// The input of the summary is shortened, because the model rejected it as too long.
    Shortened(DroppedContent),
    /// The summary is written.
    Summary {
        /// The summary.
        summary: WrittenSummary,
        /// The messages of the compaction.
        made: CompactionMessages,
    },
    /// There is no summary.
    Failed {
        /// The reason.
        why: CompactionFailureReason,
        /// The reason for a person. Never holds content of the conversation.
        detail: Box<str>,
    },
}

/// A summary without its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenSummary {
    /// The text.
    pub text: Box<str>,
    /// The way in which it was written in the end.
    pub strategy: Strategy,
    /// The model that wrote it. Empty: no model.
    pub model: Box<str>,
    /// The usage that the model reported.
    pub usage: Usage,
    /// Messages that were not in the input, because it was too long.
    pub dropped: Option<DroppedContent>,
}

impl AdvanceCompaction {
    /// A step of the first attempt, without hooks and stamps.
    pub fn new(key: CompactionKey, input: CompactionInput) -> Self {
        Self {
            key,
            attempt: 0,
            input,
            hooks: Vec::new(),
            took_ms: 0,
            request: None,
            commit: None,
        }
    }

    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decision, Rejection> {
        for stamp in [&self.request, &self.commit].into_iter().flatten() {
            if let Some(revision) = answered(session, Some(stamp), context)? {
                return Ok(Decision::Answered(revision));
            }
        }
        let is_answer = matches!(self.input, CompactionInput::HookAnswered { .. });
        let running = session.compactions().running.as_ref().filter(|running| {
            running.key == self.key && (is_answer || running.attempt == self.attempt)
        });
        let Some(running) = running else {
            // A failure changes nothing about a compaction that has ended.
            return match self.input {
                CompactionInput::Failed { .. } => Ok(Decision::Events(Vec::new())),
                _ => Err(Rejection::CompactionNotFound { key: self.key }),
            };
        };
        let failed = matches!(self.input, CompactionInput::Failed { .. });
        // A summary by the service's own model is used even if it is late. A caller learned the deadline.
        if running.strategy == Strategy::Delegated
            && !failed
            && let Some(over) = expired(session, context.now)
        {
            return Ok(Decision::Events(vec![over]));
        }
        let Self {
            key,
            input,
            hooks,
            took_ms,
            request,
            commit,
            ..
        } = self;
        let end = End {
            running,
            hooks,
            took_ms,
            request,
            commit,
        };
        match input {
            CompactionInput::HookAnswered {
                call,
                instructions,
                must_keep,
            } => {
                // Two callers may have asked the hook at the same time: the first answer holds for both.
                let first = (!running.hooks.is_asked()).then_some(Event::HookCalled(HookCalled {
                    key,
                    call,
                    instructions,
                    must_keep,
                }));
                Ok(Decision::Events(first.into_iter().collect()))
            }
            CompactionInput::Shortened(dropped) => {
                let event = CompactionShortened {
                    key,
                    attempt: running.attempt + 1,
                    dropped,
                    request: end.request,
                    commit: end.commit,
                };
                Ok(Decision::Events(vec![Event::CompactionShortened(event)]))
            }
            CompactionInput::Summary { summary, made } => end.summarised(session, summary, &made),
            CompactionInput::Failed { why, detail } => Ok(end.failed(why, detail)),
        }
    }
}

/// The end of a running compaction.
struct End<'s> {
    running: &'s RunningCompaction,
    hooks: Vec<HookCall>,
    took_ms: u64,
    request: Option<RequestStamp>,
    commit: Option<RequestStamp>,
}

impl End<'_> {
    fn summarised(
        self,
        session: &Session,
        summary: WrittenSummary,
        made: &CompactionMessages,
    ) -> Result<Decision, Rejection> {
        let running = self.running;
        if running.touched {
            let detail =
                "the view was changed meanwhile, and the summary may tell of what has left it";
            return Ok(self
                .without_messages()
                .failed(CompactionFailureReason::RangeChanged, detail.into()));
        }
        if running.ahead {
            let event = SummaryPrepared {
                key: running.key,
                text: summary.text,
                strategy: summary.strategy,
                model: summary.model,
                usage: summary.usage,
                dropped: summary.dropped,
                took_ms: self.took_ms,
            };
            return Ok(Decision::Events(vec![Event::SummaryPrepared(event)]));
        }
        let leaving = spared(session, &running.leaving)?;
        let kept = MessagePartition {
            kept: staying(session, &leaving),
            leaving,
        };
        let what = CompactionSpec {
            key: running.key,
            trigger: running.trigger,
            strategy: summary.strategy,
            summary: &summary.text,
            must_keep: &running.hooks.must_keep,
            kept,
            adopted: None,
            before: None,
            dropped: summary.dropped,
        };
        match made.compacted(session, what)? {
            // The caller may bring a shorter summary.
            Err(_) if running.strategy == Strategy::Delegated => {
                Ok(Decision::Skipped(SkipReason::TooLittleGain))
            }
            Err(why) => {
                let detail = "the view would not have become smaller";
                Ok(self.without_messages().failed(why, detail.into()))
            }
            Ok(mut compacted) => {
                compacted.model = summary.model;
                compacted.usage = summary.usage;
                compacted.took_ms = self.took_ms;
                compacted.hooks = self.all_hooks();
                compacted.request = self.request;
                compacted.commit = self.commit;
                let mut events: Vec<Event> = called(running.key, &self.hooks).collect();
                events.push(Event::Compacted(compacted));
                Ok(Decision::Events(events))
            }
        }
    }

    fn failed(self, why: CompactionFailureReason, detail: Box<str>) -> Decision {
        let running = self.running;
        let mut events: Vec<Event> = called(running.key, &self.hooks).collect();
        events.push(Event::CompactionFailed(CompactionFailed {
            key: running.key,
            trigger: running.trigger,
            why,
            detail,
            took_ms: self.took_ms,
            hooks: self.all_hooks(),
            request: self.request,
            commit: self.commit,
        }));
        Decision::Events(events)
    }

    /// The end of a compaction that hooks expected to succeed: the messages that they added are in no view.
    fn without_messages(mut self) -> Self {
        for call in &mut self.hooks {
            call.messages.clear();
        }
        self
    }

    fn all_hooks(&self) -> Vec<HookCall> {
        [&self.running.hooks.calls[..], &self.hooks].concat()
    }
}

/// The calls with which a compaction ends, as events of their own.
fn called(key: CompactionKey, calls: &[HookCall]) -> impl Iterator<Item = Event> {
    calls.iter().map(move |call| {
        Event::HookCalled(HookCalled {
            key,
            call: call.clone(),
            instructions: None,
            must_keep: Vec::new(),
        })
    })
}
