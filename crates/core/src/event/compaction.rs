//! Events of level 5.

use super::append::AppendedMessage;
use super::levels::Trigger;
use super::parts::{AttachmentRecord, DroppedContent, HookCall, RequestStamp, Strategy};
use crate::ids::{CallKey, CompactionKey, Ordinal, Timestamp};
use crate::message::Usage;
use crate::tokens::TokenLedger;
use crate::view::LayoutChange;

/// Level 5 began to summarise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionStarted {
    /// Which compaction.
    pub key: CompactionKey,
    /// Who asked for it.
    pub trigger: Trigger,
    /// How the summary is to be made.
    pub strategy: Strategy,
    /// When it counts as failed.
    pub expires: Timestamp,
    /// The messages that it summarises, in order.
    pub leaving: Vec<Ordinal>,
    /// What the view had, in tokens.
    pub before_tokens: u64,
    /// Whether the summary is written ahead of its time, to be put in its place later.
    pub ahead: bool,
    /// What whoever asked wants of this summary.
    pub instructions: Option<Box<str>>,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Why a compaction came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompactionFailureReason {
    /// The model could not be reached or answered with an error.
    ModelUnavailable,
    /// The model found the input too long, even after retries.
    PromptTooLong,
    /// The summary was empty.
    Empty,
    /// The model refused to write one.
    Refused,
    /// The summary was cut off.
    Truncated,
    /// Required sections were missing.
    Incomplete,
    /// The view would not have become smaller.
    NotSmaller,
    /// A hook vetoed it.
    HookVetoed,
    /// A hook failed, and its rule says to stop.
    HookFailed,
    /// What it summarised was changed meanwhile.
    RangeChanged,
    /// It took too long, or the server that ran it ended.
    Expired,
    /// The caller's own model failed.
    DelegateFailed,
}

/// Level 5 came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionFailed {
    /// Which compaction.
    pub key: CompactionKey,
    /// Who had asked for it.
    pub trigger: Trigger,
    /// Why.
    pub why: CompactionFailureReason,
    /// The same for a person. Never holds content of the conversation.
    pub detail: Box<str>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What hooks did about it, in order.
    pub hooks: Vec<HookCall>,
    /// The request that ended it, when it was ended from outside.
    pub request: Option<RequestStamp>,
    /// The delegation that it ended, so that the same answer to it is recognised.
    pub commit: Option<RequestStamp>,
}

/// The input of a summary was made shorter, because it was too long for its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionShortened {
    /// Which compaction.
    pub key: CompactionKey,
    /// How often that was done.
    pub attempt: u32,
    /// What the input does not have any more, in all.
    pub dropped: DroppedContent,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
    /// The delegation that it answers.
    pub commit: Option<RequestStamp>,
}

/// A hook was called about a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCalled {
    /// Which compaction.
    pub key: CompactionKey,
    /// The call.
    pub call: HookCall,
    /// What the hook adds to the instructions of the summary.
    pub instructions: Option<Box<str>>,
    /// What it wants to stand word for word beside the summary.
    pub must_keep: Vec<Box<str>>,
}

/// A summary was written ahead of its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryPrepared {
    /// Which compaction.
    pub key: CompactionKey,
    /// The summary.
    pub text: Box<str>,
    /// How it was made.
    pub strategy: Strategy,
    /// The model that wrote it.
    pub model: Box<str>,
    /// What that model reported.
    pub usage: Usage,
    /// What was not in its input.
    pub dropped: Option<DroppedContent>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Level 5 put a summary in the place of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionFinished {
    /// Which compaction.
    pub key: CompactionKey,
    /// Who asked for it.
    pub trigger: Trigger,
    /// How the summary was made.
    pub strategy: Strategy,
    /// The messages that it adds: the mark, the summary, what is attached, what hooks say.
    pub messages: Vec<AppendedMessage>,
    /// The messages that leave, in order.
    pub leaving: Vec<Ordinal>,
    /// The messages that stay word for word, in the order of the view.
    pub kept: Vec<Ordinal>,
    /// Calls that are not in the view any more.
    pub gone: Vec<CallKey>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// What it has then.
    pub after_tokens: u64,
    /// The running count.
    pub ledger: TokenLedger,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The model that wrote the summary; empty when none did.
    pub model: Box<str>,
    /// What that model reported.
    pub usage: Usage,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What left without being in the summary's input, because that was too long.
    pub dropped: Option<DroppedContent>,
    /// What hooks did about it, in order.
    pub hooks: Vec<HookCall>,
    /// The request that asked for it, or that brought the summary.
    pub request: Option<RequestStamp>,
    /// What was attached, or found no room.
    pub attached: Vec<AttachmentRecord>,
    /// The delegation that it answers.
    pub commit: Option<RequestStamp>,
}
