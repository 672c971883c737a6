//! What the user's own hooks did about a compaction, and what they want of it.

use crate::ids::MessageId;

/// When a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Before anything is summarised.
    PreCompact,
    /// When a compaction has been computed and has not taken effect.
    PostCompact,
    /// When a view begins anew.
    SessionStart,
}

/// What a hook's call led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookResult {
    /// It answered, and the compaction went on.
    Continued,
    /// It does not want the compaction.
    Vetoed,
    /// It failed, and the compaction went on.
    FailedContinued,
    /// It failed, and its rule says to stop.
    FailedStopped,
}

impl HookResult {
    /// Whether the compaction ended with it.
    pub const fn stops(self) -> bool {
        matches!(self, Self::Vetoed | Self::FailedStopped)
    }
}

/// One call of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    /// Which hook.
    pub hook: Hook,
    /// What came of it.
    pub result: HookResult,
    /// The reason that it gave, or why it failed.
    pub detail: Box<str>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The messages that it added.
    pub messages: Vec<MessageId>,
}

impl HookCall {
    /// Whether the hook vetoed the compaction before it began, which is no failure of anybody.
    pub fn is_veto(&self) -> bool {
        self.hook == Hook::PreCompact && self.result == HookResult::Vetoed
    }
}

/// What hooks did about a compaction that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactionHooks {
    /// Their calls, in order.
    pub calls: Vec<HookCall>,
    /// What is added to the instructions of the summary.
    pub instructions: Option<Box<str>>,
    /// Texts that stand word for word beside the summary.
    pub must_keep: Vec<Box<str>>,
}

impl CompactionHooks {
    /// Whether they were asked before anything is summarised.
    pub fn is_asked(&self) -> bool {
        self.calls.iter().any(|call| call.hook == Hook::PreCompact)
    }
}
