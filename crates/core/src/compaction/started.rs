//! A started compaction, up to its summary.

use super::finishing::{Finishing, Stamps, stopped};
use super::request::CompactionRequest;
use super::step::{
    CompactionContext, CompactionOutcome, HookAnswer, HookRequest, StartedCompaction, Step,
    StepResult, SummaryFailure, SummaryTask,
};
use crate::command::{
    AdvanceCompaction, CompactionInput, Rejection, WrittenSummary, render_session_memory,
};
use crate::event::Strategy;
use crate::ids::{CompactionKey, Timestamp};
use crate::message::Usage;
use crate::session::{RunningCompaction, Session};

/// A compaction after `CompactionStarted`.
#[derive(Debug, Clone)]
pub(super) struct Started {
    /// The session and the compaction as they started. The hooks of the compaction are added.
    compaction: StartedCompaction,
    /// The writer of the summary.
    strategy: Strategy,
    hook: PreCompact,
    /// The first time at which a step was taken.
    began: Option<Timestamp>,
    /// The summary. A summary that existed before the start is present from the beginning.
    summary: Option<Result<WrittenSummary, SummaryFailure>>,
}

/// The progress of the `PreCompact` hook.
#[derive(Debug, Clone)]
enum PreCompact {
    Open,
    Answered(HookAnswer),
    /// The answer is in the log.
    Recorded,
    Done,
}

/// The next step, or the end of the phase.
pub(super) enum NextOfStarted {
    Step(Box<Step>),
    Finish(Box<Finishing>),
    /// The caller's model writes the summary.
    Delegated(CompactionKey),
}

impl Started {
    pub(super) fn new(started: StartedCompaction, ready: Option<WrittenSummary>) -> Self {
        Self {
            strategy: started.running.strategy,
            compaction: started,
            hook: PreCompact::Open,
            began: None,
            summary: ready.map(Ok),
        }
    }

    /// Returns the key of the compaction, unless the caller's model writes its summary.
    pub(super) fn key_of_server(&self) -> Option<CompactionKey> {
        let running = &self.compaction.running;
        (!running.is_delegated()).then_some(running.key)
    }

    pub(super) fn next(
        &mut self,
        request: &CompactionRequest,
        session: &Session,
        context: &CompactionContext,
    ) -> Result<NextOfStarted, Rejection> {
        // `next` runs again after a hook, and the duration includes the hook.
        let began = *self.began.get_or_insert(context.now);
        match &self.hook {
            PreCompact::Open => {
                // The first answer is durable. A restart or another process must not call the hook again.
                let is_asked = self.compaction.running.hooks.has_pre_compact_call();
                if context.calls_hooks && !is_asked && !request.is_dry_run {
                    let call = HookRequest::PreCompact(self.compaction.clone());
                    return Ok(step(Step::CallHook(call)));
                }
            }
            PreCompact::Answered(answer) => return Ok(step(Step::Advance(self.record(answer)))),
            PreCompact::Recorded => self.take_hooks(session, context)?,
            PreCompact::Done => {}
        }
        let key = self.compaction.running.key;
        if self.strategy == Strategy::Delegated && !request.is_dry_run {
            return Ok(NextOfStarted::Delegated(key));
        }
        let Some(summary) = self.summary.take() else {
            return Ok(step(Step::Summarize(SummaryTask {
                started: self.compaction.clone(),
                strategy: self.strategy,
                model: request.model.clone(),
                // A caller that chose `MODEL` gets the model's error, not an extractive summary.
                falls_back: request.strategy != Some(Strategy::Model),
                is_estimate: request.is_dry_run,
            })));
        };
        let finishing = Finishing::new(self.compaction.clone(), summary, began, Stamps::default());
        Ok(NextOfStarted::Finish(Box::new(finishing)))
    }

    /// Returns the command that records the hook's answer, or that ends the compaction if the hook stopped it.
    fn record(&self, answer: &HookAnswer) -> AdvanceCompaction {
        let (key, call) = (self.compaction.running.key, answer.call.clone());
        if !call.result.stops() {
            let answered = CompactionInput::HookAnswered {
                call,
                instructions: answer.instructions.clone(),
                must_keep: answer.must_keep.clone(),
                files: answer.files.clone(),
            };
            return AdvanceCompaction::new(key, answered);
        }
        AdvanceCompaction {
            attempt: self.compaction.running.attempt,
            duration_ms: call.duration_ms,
            hooks: vec![call.clone()],
            ..AdvanceCompaction::new(key, stopped(&call).into())
        }
    }

    /// Reads the recorded answer. If two processes called the hook at the same time, the first answer applies to both.
    fn take_hooks(
        &mut self,
        session: &Session,
        context: &CompactionContext,
    ) -> Result<(), Rejection> {
        let key = self.compaction.running.key;
        let running = session.compactions().running.as_ref();
        let running = running.filter(|running| running.key == key);
        let hooks = &running.ok_or(Rejection::CompactionNotFound { key })?.hooks;
        self.compaction.running.hooks = hooks.clone();
        // A summary that exists was written without the hook's instructions, so a new one is written.
        if hooks.instructions.is_some() && self.summary.take().is_some() {
            self.strategy = context.usual();
        }
        self.hook = PreCompact::Done;
        Ok(())
    }

    /// Records a result. Returns the outcome if the compaction has ended.
    pub(super) fn happened(&mut self, result: StepResult) -> Option<CompactionOutcome> {
        match result {
            StepResult::HookAnswered(None) => self.hook = PreCompact::Done,
            StepResult::HookAnswered(Some(answer)) => self.hook = PreCompact::Answered(answer),
            StepResult::Committed { outcome, .. } => match &self.hook {
                PreCompact::Answered(answer) if answer.call.result.stops() => return Some(outcome),
                PreCompact::Answered(_) => self.hook = PreCompact::Recorded,
                _ => {}
            },
            StepResult::Summarized(summary) => self.summary = Some(summary),
            _ => {}
        }
        None
    }
}

fn step(step: Step) -> NextOfStarted {
    NextOfStarted::Step(Box::new(step))
}

/// Returns the summary that existed before the start: the prepared one, otherwise session memory.
pub(super) fn ready(session: &Session, running: &RunningCompaction) -> Option<WrittenSummary> {
    let prepared = session.compactions().prepared.as_ref();
    if let Some(prepared) = prepared.filter(|prepared| prepared.key == running.key) {
        return Some(WrittenSummary {
            text: prepared.text.clone(),
            strategy: prepared.strategy,
            model: prepared.model.clone(),
            usage: prepared.usage,
            dropped: prepared.dropped,
        });
    }
    Some(WrittenSummary {
        text: render_session_memory(session, &session.memory().latest_written()?.content).into(),
        strategy: Strategy::SessionMemory,
        model: "".into(),
        usage: Usage::default(),
        dropped: None,
    })
}
