//! Events of level 5: compactions and their steps.

use super::append::AppendedMessage;
use super::levels::Trigger;
use super::parts::{AttachmentRecord, DroppedContent, HookCall, RequestStamp, Strategy};
use crate::ids::{CallKey, CompactionKey, Ordinal, Timestamp};
use crate::message::Usage;
use crate::summary::SummaryPart;
use crate::tokens::TokenLedger;
use crate::view::LayoutChange;

/// A compaction started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionStarted {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The planned source of the summary.
    pub strategy: Strategy,
    /// The deadline. After it the compaction counts as failed.
    pub deadline: Timestamp,
    /// The part of the conversation that the summary replaces.
    pub part: SummaryPart,
    /// The messages that the summary replaces, in order.
    pub leaving: Vec<Ordinal>,
    /// Tokens of the view at the start.
    pub before_tokens: u64,
    /// True if the summary is prepared before the threshold is reached and used later.
    pub ahead: bool,
    /// The caller's additional instructions for the summary.
    pub instructions: Option<Box<str>>,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// Reasons why a compaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompactionFailureReason {
    /// The model was unreachable or returned an error.
    ModelUnavailable,
    /// The model rejected the input as too long, even after it was shortened.
    PromptTooLong,
    /// The summary was empty.
    Empty,
    /// The model refused to write a summary.
    Refused,
    /// The summary was cut off.
    Truncated,
    /// Required sections were missing from the summary.
    Incomplete,
    /// The view would not have become smaller.
    NotSmaller,
    /// A hook vetoed the compaction.
    HookVetoed,
    /// A hook failed and is configured to stop the compaction.
    HookFailed,
    /// The messages of the compaction changed while it ran.
    RangeChanged,
    /// The deadline passed, or the server that ran the compaction stopped.
    Expired,
    /// The caller's model failed.
    DelegateFailed,
    /// The messages for the summary could not be read from the store.
    InputUnreadable,
}

/// A compaction failed. The view did not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionFailed {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The source of the summary at the start. `None` in logs that do not record it.
    pub strategy: Option<Strategy>,
    /// Start time. `None` in logs that do not record it.
    pub started: Option<Timestamp>,
    /// The reason of the failure.
    pub reason: CompactionFailureReason,
    /// The reason as text. Never contains content of the conversation.
    pub detail: Box<str>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// The hook calls of the compaction, in order.
    pub hooks: Vec<HookCall>,
    /// The stamp of the request that ended the compaction, if a caller ended it.
    pub request: Option<RequestStamp>,
    /// The stamp of the delegation that this event answers. It identifies a retry of the same commit.
    pub commit: Option<RequestStamp>,
}

/// The input of a summary was shortened, because it was too long for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionShortened {
    /// The compaction's key.
    pub key: CompactionKey,
    /// Number of times that the input was shortened, including this one.
    pub attempt: u32,
    /// All content that was removed from the input so far.
    pub dropped: DroppedContent,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
    /// The stamp of the delegation that this event answers.
    pub commit: Option<RequestStamp>,
}

/// A hook was called for a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCalled {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The call and its result.
    pub call: HookCall,
    /// Instructions that the hook adds for the summary.
    pub instructions: Option<Box<str>>,
    /// Texts that the hook requires verbatim next to the summary.
    pub must_keep: Vec<Box<str>>,
}

/// A summary was prepared before the compaction threshold was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryPrepared {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The text of the summary.
    pub text: Box<str>,
    /// The source of the summary.
    pub strategy: Strategy,
    /// The model that wrote the summary.
    pub model: Box<str>,
    /// The usage that the model reported.
    pub usage: Usage,
    /// The content that was removed from the input.
    pub dropped: Option<DroppedContent>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
}

/// A compaction replaced messages by a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionFinished {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The source of the summary.
    pub strategy: Strategy,
    /// The messages that the compaction appends: boundary, summary, attachments, messages of hooks.
    pub messages: Vec<AppendedMessage>,
    /// The messages that left the view, in order.
    pub leaving: Vec<Ordinal>,
    /// The messages that stay verbatim, in the order of the view.
    pub kept: Vec<Ordinal>,
    /// Calls that left the view.
    pub removed_calls: Vec<CallKey>,
    /// Paths of files that the model had read and can no longer see.
    pub hidden_paths: Vec<Box<str>>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens of the view after.
    pub after_tokens: u64,
    /// The token ledger after the compaction.
    pub ledger: TokenLedger,
    /// The change of the sealed layout.
    pub change: LayoutChange,
    /// The model that wrote the summary. Empty if no model did.
    pub model: Box<str>,
    /// The usage that the model reported.
    pub usage: Usage,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// Messages that left the view without being in the summary's input, because the input was too long.
    pub dropped: Option<DroppedContent>,
    /// The hook calls of the compaction, in order.
    pub hooks: Vec<HookCall>,
    /// The stamp of the request that started the compaction or delivered the summary.
    pub request: Option<RequestStamp>,
    /// The attachments, including those that exceeded the budget.
    pub attachments: Vec<AttachmentRecord>,
    /// The stamp of the delegation that this event answers.
    pub commit: Option<RequestStamp>,
}
