//! Events of levels 1 to 4, and of the changes that undo them.

use super::parts::{
    CallState, PendingMessage, PersistDecision, PinPlace, Placeholder, RequestStamp, Span,
    StoredResult, Visibility,
};
use crate::ids::{CallKey, Ordinal, PersistDecisionKey, Revision, TurnNumber};
use crate::tokens::{Size, TokenLedger};
use crate::view::LayoutChange;

/// Level 1 stored results.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultsPersisted {
    /// Which, and what stands in their place.
    pub results: Vec<StoredResult>,
    /// The sizes that their messages have with it.
    pub sizes: Vec<(Ordinal, Size)>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
}

/// Level 1 decided about a result whose message has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistDecided {
    /// The result, and what was decided.
    pub offer: PersistDecision,
    /// An earlier offer that made room for it.
    pub forgotten: Option<PersistDecisionKey>,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// The results of offers came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersistDecisionsConsumed {
    /// Which offers.
    pub offers: Vec<PersistDecisionKey>,
}

/// Who asked a level to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// Nobody: its condition was met.
    Auto,
    /// A caller, by hand.
    Manual,
    /// The model, through its tool.
    Model,
    /// The provider: it refused the prompt as too long.
    PromptTooLong,
}

/// Level 2 removed turns, messages or blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentSnipped {
    /// Who asked for it.
    pub trigger: Trigger,
    /// The user turns that were removed whole.
    pub turns: Vec<TurnNumber>,
    /// Every message that left the view, in order.
    pub messages: Vec<Ordinal>,
    /// Blocks that a marker stands for, or that left with what they belonged to.
    pub blocks: Vec<(Ordinal, u16)>,
    /// Why.
    pub reason: Box<str>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// How many of them it freed.
    pub freed_tokens: u64,
    /// The sizes of messages that stay and lost something.
    pub sizes: Vec<(Ordinal, Size)>,
    /// Calls that are not in the view any more.
    pub gone: Vec<CallKey>,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// A way in which level 3 works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClearMode {
    /// The prompt cache was cold.
    Time,
    /// The view was large, or somebody asked.
    Size,
    /// Backwards from the end.
    Prune,
}

/// Level 3 cleared old results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultsCleared {
    /// The way in which it did.
    pub mode: ClearMode,
    /// Who asked for it.
    pub trigger: Trigger,
    /// The calls whose results were cleared.
    pub calls: Vec<CallKey>,
    /// Those of them that were stored first.
    pub saved: Vec<StoredResult>,
    /// Paths that the model read and does not see any more.
    pub hidden_paths: Vec<Box<str>>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// How many of them it freed.
    pub freed_tokens: u64,
    /// The sizes that their messages have without them.
    pub sizes: Vec<(Ordinal, Size)>,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Level 3 had old results removed from the provider's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEditsIssued {
    /// The calls whose results it leaves out from now on.
    pub calls: Vec<CallKey>,
    /// The user message that carries the edit.
    pub message: Ordinal,
    /// Where it stands, when that was known.
    pub place: Option<PinPlace>,
    /// What the view had then, in tokens.
    pub before_tokens: u64,
    /// How many of them the provider leaves out.
    pub freed_tokens: u64,
}

/// Level 4 chose spans that summaries may stand for. Takes the place of what was chosen before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpansStaged {
    /// The spans, in the order of the transcript.
    pub spans: Vec<Span>,
    /// Whether they take effect when the view has grown large enough.
    pub armed: bool,
    /// What the view had then, in tokens.
    pub pass_tokens: u64,
}

/// Level 4 put summaries in the places of spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpansCollapsed {
    /// Who asked for it.
    pub trigger: Trigger,
    /// What stands in their places, in the order of the transcript.
    pub placeholders: Vec<Placeholder>,
    /// Every message that is not shown any more, in order.
    pub messages: Vec<Ordinal>,
    /// Calls that are not in the view any more.
    pub gone: Vec<CallKey>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// How many of them it freed.
    pub freed_tokens: u64,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// The kinds of view-changing events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Level 2 acted.
    ContentSnipped,
    /// Level 3 acted.
    ResultsCleared,
    /// Level 4 acted.
    SpansCollapsed,
    /// Level 5 acted.
    Compacted,
    /// Others were taken back.
    Restored,
    /// Later messages left.
    Rewound,
    /// The settings changed.
    PolicyChanged,
}

/// View-changing events were taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextRestored {
    /// The revision whose view came back.
    pub to: Revision,
    /// The events that were taken back.
    pub undone: Vec<Revision>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// What it has after.
    pub after_tokens: u64,
    /// Where messages stand now that stood elsewhere.
    pub standings: Vec<(Ordinal, Visibility)>,
    /// The sizes of messages that changed.
    pub sizes: Vec<(Ordinal, Size)>,
    /// What became of calls of which something else had become.
    pub calls: Vec<(CallKey, CallState)>,
    /// What waits to be served.
    pub pending: Vec<PendingMessage>,
    /// The running count of tokens.
    pub ledger: TokenLedger,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Later messages left the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRewound {
    /// The last message that stays; none stays when there is none.
    pub to: Option<Ordinal>,
    /// The messages that leave the view with it; those that an earlier rewind took are not among them.
    pub left: Vec<Ordinal>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// How many of them left.
    pub freed_tokens: u64,
    /// The running count of tokens.
    pub ledger: TokenLedger,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}
