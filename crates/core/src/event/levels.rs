//! Events of levels 1 to 4, of undo and of rewind.

use super::parts::{
    ArrayPosition, CallState, PendingMessage, PersistDecision, Placeholder, RequestStamp, Span,
    StoredResult, Visibility,
};
use crate::ids::{CallKey, Ordinal, PersistDecisionKey, Revision, TurnNumber};
use crate::tokens::{TokenLedger, TokenSize};
use crate::view::LayoutChange;

/// Level 1 stored results and replaced them in the view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultsPersisted {
    /// The stored results and their replacement texts.
    pub results: Vec<StoredResult>,
    /// The new sizes of the messages that contain these results.
    pub sizes: Vec<(Ordinal, TokenSize)>,
    /// Tokens of the view before.
    pub before_tokens: u64,
}

/// Level 1 decided about a result whose message was not appended yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistDecided {
    /// The decision and its result.
    pub decision: PersistDecision,
    /// An earlier decision that was removed to make space for this one.
    pub evicted: Option<PersistDecisionKey>,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// Results of pending persist decisions were appended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersistDecisionsConsumed {
    /// The decisions that are no longer pending.
    pub decisions: Vec<PersistDecisionKey>,
}

/// The cause of a level's action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The level's threshold was reached.
    Auto,
    /// A caller requested the action.
    Manual,
    /// The model requested the action with a tool.
    Model,
    /// The provider rejected the prompt as too long.
    PromptTooLong,
}

impl Trigger {
    /// Returns true if a caller or the model requested the action. The thresholds of the policy are ignored then.
    pub const fn is_by_hand(self) -> bool {
        matches!(self, Self::Manual | Self::Model)
    }
}

/// Level 2 removed turns, messages or blocks from the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentSnipped {
    /// The cause of the action.
    pub trigger: Trigger,
    /// The user turns that were removed completely.
    pub turns: Vec<TurnNumber>,
    /// All messages that left the view, in order.
    pub messages: Vec<Ordinal>,
    /// Blocks that were replaced by a marker, or that left together with the other half of their tool call.
    pub blocks: Vec<(Ordinal, u16)>,
    /// The reason that the caller gave.
    pub reason: Box<str>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens that were freed.
    pub freed_tokens: u64,
    /// The new sizes of messages that stay and lost blocks.
    pub sizes: Vec<(Ordinal, TokenSize)>,
    /// Calls that left the view.
    pub removed_calls: Vec<CallKey>,
    /// Paths of files that the model had read and can no longer see.
    pub hidden_paths: Vec<Box<str>>,
    /// The change of the sealed layout.
    pub change: LayoutChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// The mode in which level 3 cleared results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClearMode {
    /// By time: the prompt cache was cold.
    Time,
    /// By size: the view was above the warning threshold, or a caller requested it.
    Size,
    /// By pruning: backwards from the end of the view.
    Prune,
}

/// Level 3 replaced old results by markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultsCleared {
    /// The mode of clearing.
    pub mode: ClearMode,
    /// The cause of the action.
    pub trigger: Trigger,
    /// The calls whose results were cleared.
    pub calls: Vec<CallKey>,
    /// The results that were stored before they were cleared.
    pub stored: Vec<StoredResult>,
    /// Paths of files that the model had read and can no longer see.
    pub hidden_paths: Vec<Box<str>>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens that were freed.
    pub freed_tokens: u64,
    /// The new sizes of the messages that contain these results.
    pub sizes: Vec<(Ordinal, TokenSize)>,
    /// The change of the sealed layout.
    pub change: LayoutChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// Level 3 issued a cache edit: the provider removes old results from its cached prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEditsIssued {
    /// The calls whose results are removed.
    pub calls: Vec<CallKey>,
    /// The user message that carries the edit.
    pub message: Ordinal,
    /// The position of this message in the array, if known.
    pub position: Option<ArrayPosition>,
    /// Tokens of the view at that time.
    pub before_tokens: u64,
    /// Tokens that the provider removes.
    pub freed_tokens: u64,
}

/// Level 4 staged spans for a later collapse. Replaces all spans that were staged before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpansStaged {
    /// The spans, in the order of the transcript.
    pub spans: Vec<Span>,
    /// True if the spans are collapsed automatically when the view reaches its threshold.
    pub armed: bool,
    /// Tokens of the view at that time.
    pub pass_tokens: u64,
}

/// Level 4 replaced spans by placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpansCollapsed {
    /// The cause of the action.
    pub trigger: Trigger,
    /// The placeholders, in the order of the view.
    pub placeholders: Vec<Placeholder>,
    /// All messages that left the view, in order.
    pub messages: Vec<Ordinal>,
    /// Calls that left the view.
    pub removed_calls: Vec<CallKey>,
    /// Paths of files that the model had read and can no longer see.
    pub hidden_paths: Vec<Box<str>>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens that were freed.
    pub freed_tokens: u64,
    /// The change of the sealed layout.
    pub change: LayoutChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// The kinds of view-changing events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Level 2 removed content.
    ContentSnipped,
    /// Level 3 cleared results.
    ResultsCleared,
    /// Level 4 collapsed spans.
    SpansCollapsed,
    /// Level 5 replaced messages by a summary.
    Compacted,
    /// An undo restored an earlier view.
    Restored,
    /// A rewind removed later messages.
    Rewound,
    /// The policy changed.
    PolicyChanged,
}

/// An undo restored the view of an earlier revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextRestored {
    /// The revision whose view was restored.
    pub to: Revision,
    /// The view-changing events that were undone.
    pub undone: Vec<Revision>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens of the view after.
    pub after_tokens: u64,
    /// The messages whose visibility changed.
    pub visibilities: Vec<(Ordinal, Visibility)>,
    /// The messages whose size changed.
    pub sizes: Vec<(Ordinal, TokenSize)>,
    /// The calls whose state changed.
    pub calls: Vec<(CallKey, CallState)>,
    /// The calls whose id on the wire changes between the caller's and the service's. A later call gets an id of the
    /// service if the restored view has a call with its id. The restored calls have the ids of that view again.
    pub remapped: Vec<CallKey>,
    /// All pending messages after the undo.
    pub pending: Vec<PendingMessage>,
    /// The token ledger after the undo.
    pub ledger: TokenLedger,
    /// The change of the sealed layout.
    pub change: LayoutChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// A rewind removed the messages after a given one from the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRewound {
    /// The last message that stays. `None` if all messages left.
    pub to: Option<Ordinal>,
    /// The messages that left the view. Messages that an earlier rewind removed are not included.
    pub removed: Vec<Ordinal>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens that were freed.
    pub freed_tokens: u64,
    /// The token ledger after the rewind.
    pub ledger: TokenLedger,
    /// The change of the sealed layout.
    pub change: LayoutChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}
