//! Everything that can happen to a session. The log is a list of these; all else is a function of it.
//!
//! An event holds what was decided, not what led to it, so that it means the same for ever: which
//! form a block takes in the view is written down, and is not worked out again on replay. How events
//! are stored is the store's business. Not here: code that applies events (`session`).

mod append;
mod compaction;
mod levels;
mod memory;
mod parts;
mod policy;
mod working;

pub use self::append::{
    AppendedMessage, MessagesAppended, ResultSize, SessionCreated, SessionUpdated, ViewServed,
};
pub use self::compaction::{
    CompactionFailed, CompactionFailureReason, CompactionFinished, CompactionShortened,
    CompactionStarted, HookCalled, SummaryPrepared,
};
pub use self::levels::{
    CacheEditsIssued, ChangeKind, ClearMode, ContentSnipped, ContextRestored, PersistDecided,
    PersistDecisionsConsumed, ResultsCleared, ResultsPersisted, SessionRewound, SpansCollapsed,
    SpansStaged, Trigger,
};
pub use self::memory::{MemoryFiled, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated};
pub(crate) use self::parts::settle;
pub use self::parts::{
    AttachmentKind, AttachmentRecord, Author, CallState, CompactionHooks, DroppedContent, Hook,
    HookCall, HookResult, Pairing, PendingMessage, PersistDecision, PinPlace, Placeholder,
    RequestMethod, RequestStamp, Span, StoredResult, Strategy, TextDigest, UnboundResult, Verdict,
    Visibility, only_text,
};
pub use self::policy::PolicyChanged;
pub use self::working::WorkingStateUpdated;
pub use crate::ids::Attributes;

use crate::ids::Timestamp;
use crate::view::LayoutChange;

/// The version of the rules by which new decisions are taken. A session keeps the rules it has until
/// a view-changing event moves it to newer ones.
pub const RULES_VERSION: u32 = 1;

/// An event, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The server's clock.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The session began. Always the first event, and only that.
    SessionCreated(SessionCreated),
    /// Its title or its attributes changed.
    SessionUpdated(SessionUpdated),
    /// Messages came in.
    MessagesAppended(MessagesAppended),
    /// What had not been served yet was served, and is sealed.
    ViewServed(ViewServed),
    /// Level 1 stored results; what stands in their place is served from then on.
    ResultsPersisted(ResultsPersisted),
    /// Level 2 removed turns, messages or blocks. View-changing.
    ContentSnipped(ContentSnipped),
    /// Level 3 cleared old results. View-changing.
    ResultsCleared(ResultsCleared),
    /// Level 3 had old results removed from the provider's cache; the view is as it was.
    CacheEditsIssued(CacheEditsIssued),
    /// View-changing events were taken back. View-changing.
    ContextRestored(ContextRestored),
    /// Level 4 chose spans that summaries may stand for.
    SpansStaged(SpansStaged),
    /// Level 4 put summaries in the places of spans. View-changing.
    SpansCollapsed(SpansCollapsed),
    /// Later messages left the view. View-changing.
    SessionRewound(SessionRewound),
    /// Level 5 began to summarise. What it will replace is as it was until it has finished.
    CompactionStarted(CompactionStarted),
    /// Level 5 came to nothing; the view is as it was.
    CompactionFailed(CompactionFailed),
    /// The input of a summary was made shorter, because it was too long for its model.
    CompactionShortened(CompactionShortened),
    /// A hook was called about a compaction.
    HookCalled(HookCalled),
    /// A summary was written ahead of its time; the view is as it was.
    SummaryPrepared(SummaryPrepared),
    /// Level 5 put a summary in the place of messages. View-changing.
    Compacted(CompactionFinished),
    /// An update of the running summary began.
    MemoryUpdateStarted(MemoryUpdateStarted),
    /// The running summary has a new version.
    MemoryUpdated(MemoryUpdated),
    /// An update of the running summary came to nothing, or its file could not be written.
    MemoryUpdateFailed(MemoryUpdateFailed),
    /// The file of the running summary holds its text, after it could not be written for a while.
    MemoryFiled(MemoryFiled),
    /// The working state changed.
    WorkingStateUpdated(WorkingStateUpdated),
    /// The settings changed. View-changing, so that what is decided by them from here on belongs to
    /// an epoch of its own; pieces that were served stay as they are.
    PolicyChanged(PolicyChanged),
    /// Level 1 decided about a result whose message has not come yet.
    PersistDecided(PersistDecided),
    /// The results of offers came: what was decided about them has been carried out.
    PersistDecisionsConsumed(PersistDecisionsConsumed),
}

impl Event {
    /// Whether sealed bytes of the view may change.
    pub fn changes_view(&self) -> bool {
        self.change_kind().is_some()
    }

    /// What kind of view-changing event it is; none when it is not one.
    pub const fn change_kind(&self) -> Option<ChangeKind> {
        match self {
            Self::ContentSnipped(_) => Some(ChangeKind::ContentSnipped),
            Self::ResultsCleared(_) => Some(ChangeKind::ResultsCleared),
            Self::ContextRestored(_) => Some(ChangeKind::Restored),
            Self::SessionRewound(_) => Some(ChangeKind::Rewound),
            Self::SpansCollapsed(_) => Some(ChangeKind::SpansCollapsed),
            Self::Compacted(_) => Some(ChangeKind::Compacted),
            Self::PolicyChanged(_) => Some(ChangeKind::PolicyChanged),
            Self::SessionCreated(_)
            | Self::SessionUpdated(_)
            | Self::MessagesAppended(_)
            | Self::ViewServed(_)
            | Self::ResultsPersisted(_)
            | Self::SpansStaged(_)
            | Self::CompactionStarted(_)
            | Self::CompactionFailed(_)
            | Self::CompactionShortened(_)
            | Self::HookCalled(_)
            | Self::SummaryPrepared(_)
            | Self::MemoryUpdateStarted(_)
            | Self::MemoryUpdated(_)
            | Self::MemoryUpdateFailed(_)
            | Self::MemoryFiled(_)
            | Self::WorkingStateUpdated(_)
            | Self::PersistDecided(_)
            | Self::PersistDecisionsConsumed(_)
            | Self::CacheEditsIssued(_) => None,
        }
    }

    /// The messages that it brings.
    pub fn messages(&self) -> &[AppendedMessage] {
        match self {
            Self::MessagesAppended(event) => &event.messages,
            Self::Compacted(event) => &event.messages,
            _ => &[],
        }
    }

    /// What it makes of the sealed pieces.
    pub fn layout_change(&self) -> Option<&LayoutChange> {
        match self {
            Self::SessionRewound(event) => Some(&event.change),
            Self::ContentSnipped(event) => Some(&event.change),
            Self::ResultsCleared(event) => Some(&event.change),
            Self::ContextRestored(event) => Some(&event.change),
            Self::SpansCollapsed(event) => Some(&event.change),
            Self::Compacted(event) => Some(&event.change),
            _ => None,
        }
    }

    /// The request that it answers.
    pub fn request(&self) -> Option<&RequestStamp> {
        match self {
            Self::SessionCreated(event) => event.request.as_ref(),
            Self::SessionUpdated(event) => event.request.as_ref(),
            Self::MessagesAppended(event) => event.request.as_ref(),
            Self::SessionRewound(event) => event.request.as_ref(),
            Self::ContentSnipped(event) => event.request.as_ref(),
            Self::ResultsCleared(event) => event.request.as_ref(),
            Self::ContextRestored(event) => event.request.as_ref(),
            Self::SpansCollapsed(event) => event.request.as_ref(),
            Self::CompactionStarted(event) => event.request.as_ref(),
            Self::CompactionFailed(event) => event.request.as_ref(),
            Self::CompactionShortened(event) => event.request.as_ref(),
            Self::Compacted(event) => event.request.as_ref(),
            Self::PersistDecided(event) => event.request.as_ref(),
            Self::WorkingStateUpdated(event) => event.request.as_ref(),
            Self::ViewServed(_)
            | Self::PersistDecisionsConsumed(_)
            | Self::PolicyChanged(_)
            | Self::HookCalled(_)
            | Self::ResultsPersisted(_)
            | Self::SpansStaged(_)
            | Self::SummaryPrepared(_)
            | Self::MemoryUpdateStarted(_)
            | Self::MemoryUpdated(_)
            | Self::MemoryUpdateFailed(_)
            | Self::MemoryFiled(_)
            | Self::CacheEditsIssued(_) => None,
        }
    }

    /// The delegation that it answers.
    pub(crate) fn commit(&self) -> Option<&RequestStamp> {
        match self {
            Self::CompactionFailed(event) => event.commit.as_ref(),
            Self::CompactionShortened(event) => event.commit.as_ref(),
            Self::Compacted(event) => event.commit.as_ref(),
            _ => None,
        }
    }
}
