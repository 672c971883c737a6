//! The end of a compaction: the hooks that see its result, and the commit.

use super::request::CompactionRequest;
use super::step::{
    CompactionContext, CompactionOutcome, HookAnswer, HookRequest, Preview, StartedCompaction,
    Step, StepResult, SummaryFailure,
};
use crate::command::{AdvanceCompaction, CompactionInput, CompactionMessages, WrittenSummary};
use crate::event::{CompactionFailureReason, HookCall, HookResult, RequestStamp};
use crate::ids::Timestamp;

/// A compaction with its summary, or with the reason why there is none.
#[derive(Debug, Clone)]
pub(super) struct Finishing {
    started: StartedCompaction,
    summary: Result<WrittenSummary, SummaryFailure>,
    messages: Option<CompactionMessages>,
    began: Timestamp,
    /// Duration without the hooks at the end, in milliseconds. Known after the first step.
    duration_ms: Option<u64>,
    hooks: Vec<HookCall>,
    stamps: Stamps,
    stage: Stage,
}

/// The stamps that identify a repeat of a caller's answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Stamps {
    pub(super) request: Option<RequestStamp>,
    pub(super) commit: Option<RequestStamp>,
}

#[derive(Debug, Clone)]
enum Stage {
    Preview,
    PostCompact(Preview),
    SessionStart,
    Commit,
}

impl Finishing {
    pub(super) fn new(
        started: StartedCompaction,
        summary: Result<WrittenSummary, SummaryFailure>,
        began: Timestamp,
        stamps: Stamps,
    ) -> Self {
        Self {
            started,
            summary,
            messages: None,
            began,
            duration_ms: None,
            hooks: Vec::new(),
            stamps,
            stage: Stage::Preview,
        }
    }

    pub(super) fn next(
        &mut self,
        request: &CompactionRequest,
        context: &CompactionContext,
    ) -> Step {
        let duration_ms = context.now.millis_since(self.began);
        // `next` runs again after each hook. The first value stays, and `answered` adds the duration of each hook.
        self.duration_ms.get_or_insert(duration_ms);
        let input = match (&self.summary, &self.messages) {
            (Ok(_), None) => return Step::Load,
            (Ok(summary), Some(made)) => CompactionInput::Summary {
                summary: summary.clone(),
                made: made.clone(),
            },
            (Err(failure), _) => failure.clone().into(),
        };
        let (session, running) = (&self.started.session, &self.started.running);
        let rules = &session.policy().hooks;
        // A prepared summary changes no view, so these hooks are called when it is used.
        let is_shown = context.calls_hooks
            && !request.is_dry_run
            && !running.ahead
            && self.summary.is_ok()
            && (rules.post_compact.enabled || rules.session_start.enabled);
        match &self.stage {
            Stage::Preview if is_shown => Step::Preview(self.end(input)),
            Stage::PostCompact(preview) => {
                let started = self.started.clone();
                Step::CallHook(HookRequest::PostCompact(started, preview.clone()))
            }
            Stage::SessionStart => Step::CallHook(HookRequest::SessionStart(self.started.clone())),
            Stage::Preview | Stage::Commit => Step::Advance(self.end(input)),
        }
    }

    /// Returns the command that ends the compaction.
    fn end(&self, input: CompactionInput) -> AdvanceCompaction {
        AdvanceCompaction {
            attempt: self.started.running.attempt,
            hooks: self.hooks.clone(),
            duration_ms: self.duration_ms.unwrap_or_default(),
            request: self.stamps.request.clone(),
            commit: self.stamps.commit.clone(),
            ..AdvanceCompaction::new(self.started.running.key, input)
        }
    }

    /// Records a result. Returns the outcome if the compaction has ended.
    pub(super) fn happened(&mut self, result: StepResult) -> Option<CompactionOutcome> {
        match result {
            StepResult::Loaded(messages) => self.messages = Some(messages),
            // Hooks are not called with a result that would not take effect.
            StepResult::Previewed(preview) => {
                self.stage = preview.map_or(Stage::Commit, Stage::PostCompact);
            }
            StepResult::HookAnswered(answer) => {
                self.stage = match self.stage {
                    Stage::PostCompact(_) => Stage::SessionStart,
                    _ => Stage::Commit,
                };
                if let Some(answer) = answer {
                    self.answered(answer);
                }
            }
            StepResult::Committed { outcome, .. } => return Some(outcome),
            _ => {}
        }
        None
    }

    fn answered(&mut self, answer: HookAnswer) {
        let mut call = answer.call;
        call.messages = answer.messages.iter().map(|message| message.id).collect();
        self.duration_ms = self
            .duration_ms
            .map(|took| took.saturating_add(call.duration_ms));
        // The failure replaces the summary, so no further hook is called.
        if call.result.stops() {
            self.summary = Err(stopped(&call));
            self.stage = Stage::Commit;
        } else if let Some(messages) = &mut self.messages {
            messages.hook_messages.extend(answer.messages);
        }
        self.hooks.push(call);
    }
}

/// Returns the failure of a compaction that a hook stopped.
pub(super) fn stopped(call: &HookCall) -> SummaryFailure {
    let (hook, detail) = (call.hook.name(), &call.detail);
    let (why, detail) = match call.result {
        HookResult::Vetoed => (
            CompactionFailureReason::HookVetoed,
            format!("the hook {hook} rejected the compaction: {detail}"),
        ),
        _ => (
            CompactionFailureReason::HookFailed,
            format!(
                "the hook {hook} failed, and the policy stops the compaction in this case: {detail}"
            ),
        ),
    };
    SummaryFailure {
        why,
        detail: detail.into(),
    }
}

impl From<SummaryFailure> for CompactionInput {
    fn from(failure: SummaryFailure) -> Self {
        Self::Failed {
            why: failure.why,
            detail: failure.detail,
        }
    }
}
