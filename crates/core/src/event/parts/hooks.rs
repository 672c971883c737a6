//! Hook calls of a compaction, their results and their requests.

use crate::ids::MessageId;

/// The point in a compaction at which a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Before the summary is written.
    PreCompact,
    /// After the compaction was computed and before it takes effect.
    PostCompact,
    /// When a view begins anew.
    SessionStart,
}

impl Hook {
    /// Returns the name of the hook as users know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreCompact => "PreCompact",
            Self::PostCompact => "PostCompact",
            Self::SessionStart => "SessionStart",
        }
    }
}

/// The outcome of a hook call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookResult {
    /// The hook answered, and the compaction continued.
    Continued,
    /// The hook vetoed the compaction.
    Vetoed,
    /// The hook failed, and the compaction continued.
    FailedContinued,
    /// The hook failed and is configured to stop the compaction.
    FailedStopped,
}

impl HookResult {
    /// Returns true if this outcome ends the compaction.
    pub const fn stops(self) -> bool {
        matches!(self, Self::Vetoed | Self::FailedStopped)
    }
}

/// One call of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    /// The hook that was called.
    pub hook: Hook,
    /// The outcome.
    pub result: HookResult,
    /// The reason of the veto or the failure. May be empty.
    pub detail: Box<str>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// The messages that the hook added.
    pub messages: Vec<MessageId>,
}

impl HookCall {
    /// Returns true if a `PreCompact` hook vetoed the compaction. A veto does not count as a failure.
    pub fn is_veto(&self) -> bool {
        self.hook == Hook::PreCompact && self.result == HookResult::Vetoed
    }
}

/// The hook calls and requests for a compaction that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactionHooks {
    /// The hook calls, in order.
    pub calls: Vec<HookCall>,
    /// Instructions that a hook adds for the summary.
    pub instructions: Option<Box<str>>,
    /// Texts that stay verbatim next to the summary.
    pub must_keep: Vec<Box<str>>,
}

impl CompactionHooks {
    /// Returns true if a `PreCompact` hook was called already.
    pub fn has_pre_compact_call(&self) -> bool {
        self.calls.iter().any(|call| call.hook == Hook::PreCompact)
    }
}
