//! The steps of a compaction and their results.

use std::sync::Arc;

use crate::command::{
    AdvanceCompaction, CompactionMessages, SkipReason, StartCompaction, WrittenSummary,
};
use crate::event::{CompactionFailureReason, Event, Hook, HookCall, Strategy};
use crate::ids::{CompactionKey, Revision, Timestamp};
use crate::message::Message;
use crate::session::{RunningCompaction, Session};
use crate::working::FileState;

/// Facts from outside the session.
#[derive(Debug, Clone, Copy)]
pub struct CompactionContext {
    /// The current time.
    pub now: Timestamp,
    /// True if the server has a model for summaries.
    pub has_model: bool,
    /// True if the session has enabled hooks with an endpoint.
    pub calls_hooks: bool,
    /// Compactions that started before this time belong to a stopped process. `None` if other processes share the log.
    pub orphaned_before: Option<Timestamp>,
}

impl CompactionContext {
    /// Returns the default strategy: a model if the server has one, otherwise extractive.
    pub(super) const fn usual(&self) -> Strategy {
        if self.has_model {
            Strategy::Model
        } else {
            Strategy::Extractive
        }
    }
}

/// The next step of a compaction. Each variant names its result.
#[derive(Debug, Clone)]
pub enum Step {
    /// Wait for other work. Result: [`StepResult::Waited`].
    Wait(Wait),
    /// Run the dry run of this strategy and report its size. Result: [`StepResult::Estimated`].
    Estimate(Strategy),
    /// Create the ids of the compaction's messages, and read the latest request. Result: [`StepResult::Loaded`].
    Load,
    /// Commit the start of the compaction, after serving the view if the caller requires it. Result:
    /// [`StepResult::Committed`].
    Start(StartCompaction),
    /// Write the summary. Result: [`StepResult::Summarized`].
    Summarize(SummaryTask),
    /// Decide this command on a copy. Result: [`StepResult::Previewed`].
    Preview(AdvanceCompaction),
    /// Call a hook. Result: [`StepResult::HookAnswered`].
    CallHook(HookRequest),
    /// Commit a later step, or the end, of the compaction. Result: [`StepResult::Committed`].
    Advance(AdvanceCompaction),
    /// The compaction has this outcome. No step follows.
    End(CompactionOutcome),
}

/// Work that a compaction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The end of the running update of session memory.
    ForMemory {
        /// The longest wait, in milliseconds: the policy's `session_memory.wait`.
        at_most_ms: u64,
    },
    /// The end of a compaction, at most until its deadline. A compaction after its deadline is ended.
    ForEnd(CompactionKey),
}

/// A compaction after its start.
#[derive(Debug, Clone)]
pub struct StartedCompaction {
    /// The session at the start, with all contents.
    pub session: Arc<Session>,
    /// The compaction: the messages that leave, its deadline, and the instructions of the caller and the hook.
    pub running: RunningCompaction,
}

impl StartedCompaction {
    /// Returns the running compaction, or `None` if none is running.
    pub fn of(session: Arc<Session>) -> Option<Self> {
        let running = session.compactions().running.clone()?;
        Some(Self { session, running })
    }
}

/// The summary to write.
#[derive(Debug, Clone)]
pub struct SummaryTask {
    /// The compaction.
    pub started: StartedCompaction,
    /// The writer: a model, or the structure of the messages.
    pub strategy: Strategy,
    /// The model. `None` selects the policy's model.
    pub model: Option<Box<str>>,
    /// True if an extractive summary replaces a model that failed.
    pub falls_back: bool,
    /// True if the size of the summary is sufficient. No model is called then.
    pub is_estimate: bool,
}

/// The reason for a missing summary, and its detail for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryFailure {
    /// The reason.
    pub why: CompactionFailureReason,
    /// The reason as text. Never contains content of the conversation.
    pub detail: Box<str>,
}

/// A call of a hook.
#[derive(Debug, Clone)]
pub enum HookRequest {
    /// Before the summary is written. The hook may veto, or add instructions.
    PreCompact(StartedCompaction),
    /// Before the result takes effect. The hook may veto.
    PostCompact(StartedCompaction, Preview),
    /// After `PostCompact`. The hook may add messages.
    SessionStart(StartedCompaction),
}

impl HookRequest {
    /// Returns the kind of the hook.
    pub const fn hook(&self) -> Hook {
        match self {
            Self::PreCompact(_) => Hook::PreCompact,
            Self::PostCompact(..) => Hook::PostCompact,
            Self::SessionStart(_) => Hook::SessionStart,
        }
    }

    /// Returns the compaction that calls the hook.
    pub const fn started(&self) -> &StartedCompaction {
        match self {
            Self::PreCompact(started)
            | Self::PostCompact(started, _)
            | Self::SessionStart(started) => started,
        }
    }
}

/// The answer of a hook.
#[derive(Debug, Clone)]
pub struct HookAnswer {
    /// The call and its result.
    pub call: HookCall,
    /// `PreCompact`: additional instructions for the summary.
    pub instructions: Option<Box<str>>,
    /// `PreCompact`: texts that stay verbatim next to the summary.
    pub must_keep: Vec<Box<str>>,
    /// `PreCompact`: files with their current content.
    pub files: Vec<FileState>,
    /// `SessionStart`: messages that follow the attachments.
    pub messages: Vec<Arc<Message>>,
}

impl HookAnswer {
    /// Creates an answer that adds nothing to the compaction.
    pub fn of(call: HookCall) -> Self {
        Self {
            call,
            instructions: None,
            must_keep: Vec::new(),
            files: Vec::new(),
            messages: Vec::new(),
        }
    }
}

/// The result that a compaction would have now.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The session after the compaction.
    pub session: Arc<Session>,
    /// The event that the compaction would append.
    pub event: Box<Event>,
}

/// The result of a step.
#[derive(Debug, Clone)]
pub enum StepResult {
    /// The work ended, or the wait was given up.
    Waited,
    /// Tokens that the dry run would leave. `None` if it would have no effect.
    Estimated(Option<u64>),
    /// The ids and the latest request.
    Loaded(CompactionMessages),
    /// The outcome of the command.
    Committed {
        /// The last event, or the reason why there is none.
        outcome: CompactionOutcome,
        /// The session after the command, with all contents. Required if the last event is `CompactionStarted`.
        session: Option<Arc<Session>>,
    },
    /// The summary, or the reason why there is none.
    Summarized(Result<WrittenSummary, SummaryFailure>),
    /// The result of the command. `None` if it would not compact the view.
    Previewed(Option<Preview>),
    /// The answer of the hook. `None` if the hook is disabled.
    HookAnswered(Option<HookAnswer>),
}

/// The outcome of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// The last event of the compaction, and its revision.
    Event(Box<Event>, Revision),
    /// Nothing was eligible, or the compaction was not allowed to start.
    Skipped(SkipReason),
    /// An idempotent repeat. The event with this revision answered the original request.
    Answered(Revision),
    /// The compaction is still running.
    Running(CompactionKey),
}

impl CompactionOutcome {
    /// Returns the event and its revision, if the compaction has ended with one.
    pub fn event(&self) -> Option<(Revision, &Event)> {
        match self {
            Self::Event(event, revision) => Some((*revision, &**event)),
            Self::Skipped(_) | Self::Answered(_) | Self::Running(_) => None,
        }
    }
}
