//! Advances a started compaction up to its end.

use super::finished_event::{CompactionMessages, CompactionSpec};
use super::range::{expiry_event, remaining_messages};
use crate::command::decision::{Decided, DecisionContext, SkipReason, answered};
use crate::command::reject::Rejection;
use crate::command::working_state::UpdateWorkingState;
use crate::event::{
    CompactionFailed, CompactionFailureReason, CompactionShortened, DroppedContent, Event,
    HookCall, HookCalled, RequestStamp, Strategy, SummaryPrepared,
};
use crate::ids::CompactionKey;
use crate::levels::compaction::{MessagePartition, without_pinned};
use crate::message::Usage;
use crate::session::{RunningCompaction, Session};
use crate::working::FileState;

/// Advances or ends a started compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvanceCompaction {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The number of shortenings that the caller knows. A step of another attempt is rejected.
    pub attempt: u32,
    /// The step.
    pub input: CompactionInput,
    /// The hook calls at the end of the compaction, in order. Their messages are part of the summary step.
    pub hooks: Vec<HookCall>,
    /// Duration of the step, in milliseconds.
    pub duration_ms: u64,
    /// The stamp of the caller's request that delivers the summary.
    pub request: Option<RequestStamp>,
    /// The stamp of the delegation that the caller answers.
    pub commit: Option<RequestStamp>,
}

/// A step of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionInput {
    /// The `PreCompact` hook answered. Only the first answer is used, regardless of the attempt.
    HookAnswered {
        /// The call and its result.
        call: HookCall,
        /// Additional instructions for the summary.
        instructions: Option<Box<str>>,
        /// Texts that stay verbatim next to the summary.
        must_keep: Vec<Box<str>>,
        /// Files with their current content, for the working state.
        files: Vec<FileState>,
    },
    /// The input of the summary was shortened, because the model rejected it as too long.
    Shortened(DroppedContent),
    /// The summary was written.
    Summary {
        /// The summary.
        summary: WrittenSummary,
        /// The ids and messages of the compaction.
        made: CompactionMessages,
    },
    /// No summary was written.
    Failed {
        /// The reason.
        why: CompactionFailureReason,
        /// The reason as text. Never contains content of the conversation.
        detail: Box<str>,
    },
}

/// A summary as written, without the frame that is shown around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenSummary {
    /// The text.
    pub text: Box<str>,
    /// The source of the summary. It can differ from the planned one.
    pub strategy: Strategy,
    /// The model that wrote the summary. Empty if no model did.
    pub model: Box<str>,
    /// The usage that the model reported.
    pub usage: Usage,
    /// Messages that the input did not contain, because it was too long.
    pub dropped: Option<DroppedContent>,
}

impl AdvanceCompaction {
    /// Creates a step of the first attempt, without hook calls and stamps.
    pub fn new(key: CompactionKey, input: CompactionInput) -> Self {
        Self {
            key,
            attempt: 0,
            input,
            hooks: Vec::new(),
            duration_ms: 0,
            request: None,
            commit: None,
        }
    }

    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        // A retry is recognized by its request id or by its delegation, even after the compaction has ended.
        for stamp in [&self.request, &self.commit].into_iter().flatten() {
            if let Some(revision) = answered(session, Some(stamp), context)? {
                return Ok(Decided::Answered(revision));
            }
        }
        // The answer of a hook applies to the whole compaction and not to one attempt.
        let is_answer = matches!(self.input, CompactionInput::HookAnswered { .. });
        // The attempt counts how often the input was shortened. A summary of an earlier attempt has another input.
        let running = session.compactions().running.as_ref().filter(|running| {
            running.key == self.key && (is_answer || running.attempt == self.attempt)
        });
        let Some(running) = running else {
            // The failure of a compaction that has ended changes nothing. Other steps are rejected.
            return match self.input {
                CompactionInput::Failed { .. } => Ok(Decided::events(Vec::new())),
                _ => Err(Rejection::CompactionNotFound { key: self.key }),
            };
        };
        let failed = matches!(self.input, CompactionInput::Failed { .. });
        // A late summary of the service's own model is still used. A delegated one is rejected, because its caller
        // received the deadline.
        if running.strategy == Strategy::Delegated
            && !failed
            && let Some(over) = expiry_event(session, context.now)
        {
            return Ok(Decided::events(vec![over]));
        }
        let Self {
            key,
            input,
            hooks,
            duration_ms,
            request,
            commit,
            ..
        } = self;
        let end = End {
            running,
            hooks,
            duration_ms,
            request,
            commit,
        };
        match input {
            // The hook may have been called twice at the same time. The first answer is used for both calls.
            CompactionInput::HookAnswered { .. } if running.hooks.has_pre_compact_call() => {
                Ok(Decided::events(Vec::new()))
            }
            CompactionInput::HookAnswered {
                mut call,
                instructions,
                must_keep,
                files,
            } => {
                let mut events = match files_event(session, files) {
                    Ok(updated) => updated,
                    Err(rejection) => {
                        // The rest of the answer is valid, and the compaction must not depend on the files.
                        call.detail = format!("the files were not stored: {rejection}").into();
                        Vec::new()
                    }
                };
                events.push(Event::HookCalled(HookCalled {
                    key,
                    call,
                    instructions,
                    must_keep,
                }));
                Ok(Decided::events(events))
            }
            CompactionInput::Shortened(dropped) => {
                let event = CompactionShortened {
                    key,
                    attempt: running.attempt + 1,
                    dropped,
                    request: end.request,
                    commit: end.commit,
                };
                Ok(Decided::events(vec![Event::CompactionShortened(event)]))
            }
            CompactionInput::Summary { summary, made } => end.summarised(session, summary, &made),
            CompactionInput::Failed { why, detail } => Ok(end.failed(why, detail)),
        }
    }
}

/// Builds the event that adds files to the working state.
fn files_event(session: &Session, files: Vec<FileState>) -> Result<Vec<Event>, Rejection> {
    let mut update = UpdateWorkingState::default();
    update.change.set.files = files;
    match update.decide(session)? {
        Decided::Now(decision) => Ok(decision.events),
        Decided::Answered(_) | Decided::Skipped(_) => Ok(Vec::new()),
    }
}

/// The outcome of a running compaction, with the stamps that it answers.
struct End<'s> {
    running: &'s RunningCompaction,
    hooks: Vec<HookCall>,
    duration_ms: u64,
    request: Option<RequestStamp>,
    commit: Option<RequestStamp>,
}

impl End<'_> {
    fn summarised(
        self,
        session: &Session,
        summary: WrittenSummary,
        made: &CompactionMessages,
    ) -> Result<Decided, Rejection> {
        let running = self.running;
        if running.range_changed {
            let detail = "the view changed during the compaction, and the summary may contain removed content";
            return Ok(self
                .without_messages()
                .failed(CompactionFailureReason::RangeChanged, detail.into()));
        }
        // A prepared summary waits for its threshold and changes no view now.
        if running.ahead {
            let event = SummaryPrepared {
                key: running.key,
                text: summary.text,
                strategy: summary.strategy,
                model: summary.model,
                usage: summary.usage,
                dropped: summary.dropped,
                duration_ms: self.duration_ms,
            };
            return Ok(Decided::events(vec![Event::SummaryPrepared(event)]));
        }
        // Content may have been pinned since the start. Pinned messages do not leave.
        let leaving = without_pinned(session, &running.leaving)?;
        let partition = MessagePartition {
            kept: remaining_messages(session, &leaving),
            leaving,
        };
        let what = CompactionSpec {
            key: running.key,
            trigger: running.trigger,
            strategy: summary.strategy,
            summary: &summary.text,
            part: running.part,
            must_keep: &running.hooks.must_keep,
            partition,
            adopted: None,
            before_tokens: None,
            dropped: summary.dropped,
        };
        match made.build_event(session, what)? {
            // The caller may deliver a shorter summary, so the compaction continues.
            Err(_) if running.strategy == Strategy::Delegated => {
                Ok(Decided::Skipped(SkipReason::TooLittleGain))
            }
            Err(why) => {
                let detail = "the view would not have become smaller";
                Ok(self.without_messages().failed(why, detail.into()))
            }
            Ok(mut compacted) => {
                compacted.model = summary.model;
                compacted.usage = summary.usage;
                compacted.duration_ms = self.duration_ms;
                compacted.hooks = self.all_hooks();
                compacted.request = self.request;
                compacted.commit = self.commit;
                let mut events: Vec<Event> = called(running.key, &self.hooks).collect();
                events.push(Event::CompactionFinished(compacted));
                Ok(Decided::events(events))
            }
        }
    }

    fn failed(self, reason: CompactionFailureReason, detail: Box<str>) -> Decided {
        let running = self.running;
        let mut events: Vec<Event> = called(running.key, &self.hooks).collect();
        events.push(Event::CompactionFailed(CompactionFailed {
            key: running.key,
            trigger: running.trigger,
            strategy: Some(running.strategy),
            started: Some(running.started_at),
            reason,
            detail,
            duration_ms: self.duration_ms,
            hooks: self.all_hooks(),
            request: self.request,
            commit: self.commit,
        }));
        Decided::events(events)
    }

    /// Removes the messages that hooks added from their records, because these messages enter no view.
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

/// Builds an event for each hook call at the end of a compaction.
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
