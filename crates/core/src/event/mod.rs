//! The events of a session. The log is a list of events, and all other state is derived from it.
//!
//! An event records a decision, not the reasons for it, so its meaning never changes. For example, the form of a block
//! in the view is recorded and not computed again on replay. The store defines the encoding of events. The module
//! `session` applies them.

mod append;
mod array;
mod compaction;
mod levels;
mod memory;
mod parts;
mod policy;
mod working;

pub use self::append::{
    AppendedMessage, ForkPoint, MessagesAppended, ResultSize, SessionCreated, SessionUpdated,
    ViewServed,
};
pub use self::array::ArraySynced;
pub use self::compaction::{
    CompactionFailed, CompactionFailureReason, CompactionFinished, CompactionShortened,
    CompactionStarted, HookCalled, SummaryPrepared,
};
pub use self::levels::{
    CacheEditsIssued, ChangeKind, ClearMode, ContentSnipped, ContextRestored, PersistDecided,
    PersistDecisionsConsumed, ResultsCleared, ResultsPersisted, SessionRewound, SpansCollapsed,
    SpansStaged, Trigger,
};
pub use self::memory::{MemoryFileWritten, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated};
pub(crate) use self::parts::remove_sealed;
pub use self::parts::{
    ArrayPosition, AttachmentKind, AttachmentRecord, Author, CallState, CompactionHooks,
    DroppedContent, Hook, HookCall, HookResult, Pairing, PendingMessage, PersistDecision,
    Placeholder, RequestMethod, RequestStamp, Span, StoredResult, Strategy, TextDigest,
    UnboundResult, Verdict, Visibility, only_text,
};
pub use self::policy::PolicyChanged;
pub use self::working::WorkingStateUpdated;
pub use crate::ids::Attributes;

use crate::ids::Timestamp;
use crate::view::LayoutChange;

/// The version of the rules that decide commands on new sessions. A session keeps its version until a view-changing
/// event moves it to a newer one.
pub const RULES_VERSION: u32 = 1;

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The server's time when the event was decided.
    pub at: Timestamp,
    /// The credential of the call that caused the event: the id of a key, or the subject of a token. `None` if calls need
    /// no credential, or the service acted on its own.
    pub by: Option<Box<str>>,
    /// The event.
    pub event: Event,
}

/// A recorded change of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The session was created. Always the first event of a log, and never a later one.
    SessionCreated(SessionCreated),
    /// The title, project path, branch, hold or attributes changed.
    SessionUpdated(SessionUpdated),
    /// Messages were appended.
    MessagesAppended(MessagesAppended),
    /// The array that the caller has changed.
    ArraySynced(ArraySynced),
    /// The view was served. Its new pieces are sealed.
    ViewServed(ViewServed),
    /// Level 1 stored results. Their replacement texts are served from then on.
    ResultsPersisted(ResultsPersisted),
    /// Level 2 removed turns, messages or blocks. View-changing.
    ContentSnipped(ContentSnipped),
    /// Level 3 cleared old results. View-changing.
    ResultsCleared(ResultsCleared),
    /// Level 3 issued cache edits. The provider removes old results, and the view does not change.
    CacheEditsIssued(CacheEditsIssued),
    /// An undo restored the view of an earlier revision. View-changing.
    ContextRestored(ContextRestored),
    /// Level 4 staged spans for a later collapse.
    SpansStaged(SpansStaged),
    /// Level 4 replaced spans by placeholders. View-changing.
    SpansCollapsed(SpansCollapsed),
    /// The messages after a given one were removed from the view. View-changing.
    SessionRewound(SessionRewound),
    /// Level 5 started a compaction. The view does not change until the compaction finishes.
    CompactionStarted(CompactionStarted),
    /// A compaction failed. The view did not change.
    CompactionFailed(CompactionFailed),
    /// The input of a summary was shortened, because it was too long for the model.
    CompactionShortened(CompactionShortened),
    /// A hook was called for a compaction.
    HookCalled(HookCalled),
    /// A summary was prepared before its threshold. The view did not change.
    SummaryPrepared(SummaryPrepared),
    /// Level 5 replaced messages by a summary. View-changing.
    CompactionFinished(CompactionFinished),
    /// An update of session memory started.
    MemoryUpdateStarted(MemoryUpdateStarted),
    /// Session memory has a new version.
    MemoryUpdated(MemoryUpdated),
    /// An update of session memory failed, or its file could not be written.
    MemoryUpdateFailed(MemoryUpdateFailed),
    /// The file of session memory contains the latest text again, after a failed write.
    MemoryFileWritten(MemoryFileWritten),
    /// The working state changed.
    WorkingStateUpdated(WorkingStateUpdated),
    /// The policy changed. View-changing, so that later decisions belong to an epoch of their own. Sealed pieces stay
    /// as they are.
    PolicyChanged(PolicyChanged),
    /// Level 1 decided about a result whose message was not appended yet.
    PersistDecided(PersistDecided),
    /// The results of persist decisions were appended, so the decisions are no longer pending.
    PersistDecisionsConsumed(PersistDecisionsConsumed),
}

impl Event {
    /// Returns true if the event can change sealed bytes of the view.
    pub fn changes_view(&self) -> bool {
        self.change_kind().is_some()
    }

    /// Returns the kind of a view-changing event. `None` for all other events.
    pub const fn change_kind(&self) -> Option<ChangeKind> {
        match self {
            // No wildcard arm: a new kind of event must be classified here.
            Self::ContentSnipped(_) => Some(ChangeKind::ContentSnipped),
            Self::ResultsCleared(_) => Some(ChangeKind::ResultsCleared),
            Self::ContextRestored(_) => Some(ChangeKind::Restored),
            Self::SessionRewound(_) => Some(ChangeKind::Rewound),
            Self::SpansCollapsed(_) => Some(ChangeKind::SpansCollapsed),
            Self::CompactionFinished(_) => Some(ChangeKind::Compacted),
            Self::PolicyChanged(_) => Some(ChangeKind::PolicyChanged),
            Self::SessionCreated(_)
            | Self::SessionUpdated(_)
            | Self::MessagesAppended(_)
            | Self::ArraySynced(_)
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
            | Self::MemoryFileWritten(_)
            | Self::WorkingStateUpdated(_)
            | Self::PersistDecided(_)
            | Self::PersistDecisionsConsumed(_)
            | Self::CacheEditsIssued(_) => None,
        }
    }

    /// Returns the messages that the event appends.
    pub fn messages(&self) -> &[AppendedMessage] {
        match self {
            Self::MessagesAppended(event) => &event.messages,
            Self::CompactionFinished(event) => &event.messages,
            _ => &[],
        }
    }

    /// Iterates over the files that the event names, with the SHA-256 of their contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8; 32])> {
        let (stored, kept) = match self {
            Self::ResultsPersisted(event) => (event.results.as_slice(), None),
            Self::ResultsCleared(event) => (event.stored.as_slice(), None),
            Self::PersistDecided(event) => (&[][..], event.decision.stored.as_ref()),
            _ => (&[][..], None),
        };
        let stored = stored.iter().map(|stored| (&*stored.file, &stored.sha256));
        stored.chain(kept.map(|kept| (&*kept.file, &kept.sha256)))
    }

    /// Returns the change of the sealed layout.
    pub fn layout_change(&self) -> Option<&LayoutChange> {
        match self {
            Self::SessionRewound(event) => Some(&event.change),
            Self::ContentSnipped(event) => Some(&event.change),
            Self::ResultsCleared(event) => Some(&event.change),
            Self::ContextRestored(event) => Some(&event.change),
            Self::SpansCollapsed(event) => Some(&event.change),
            Self::CompactionFinished(event) => Some(&event.change),
            _ => None,
        }
    }

    /// Returns the stamp of the request that the event answers.
    pub fn request(&self) -> Option<&RequestStamp> {
        match self {
            // No wildcard arm: a new kind of event must be classified here.
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
            Self::CompactionFinished(event) => event.request.as_ref(),
            Self::PersistDecided(event) => event.request.as_ref(),
            Self::WorkingStateUpdated(event) => event.request.as_ref(),
            Self::MemoryUpdated(event) => event.request.as_ref(),
            Self::ViewServed(_)
            | Self::ArraySynced(_)
            | Self::PersistDecisionsConsumed(_)
            | Self::PolicyChanged(_)
            | Self::HookCalled(_)
            | Self::ResultsPersisted(_)
            | Self::SpansStaged(_)
            | Self::SummaryPrepared(_)
            | Self::MemoryUpdateStarted(_)
            | Self::MemoryUpdateFailed(_)
            | Self::MemoryFileWritten(_)
            | Self::CacheEditsIssued(_) => None,
        }
    }

    /// Removes the stamp of the request that the event answers.
    pub fn clear_request(&mut self) {
        match self {
            // No wildcard arm: a new kind of event must be classified here.
            Self::SessionCreated(event) => event.request = None,
            Self::SessionUpdated(event) => event.request = None,
            Self::MessagesAppended(event) => event.request = None,
            Self::SessionRewound(event) => event.request = None,
            Self::ContentSnipped(event) => event.request = None,
            Self::ResultsCleared(event) => event.request = None,
            Self::ContextRestored(event) => event.request = None,
            Self::SpansCollapsed(event) => event.request = None,
            Self::CompactionStarted(event) => event.request = None,
            Self::CompactionFailed(event) => event.request = None,
            Self::CompactionShortened(event) => event.request = None,
            Self::CompactionFinished(event) => event.request = None,
            Self::PersistDecided(event) => event.request = None,
            Self::WorkingStateUpdated(event) => event.request = None,
            Self::MemoryUpdated(event) => event.request = None,
            Self::ViewServed(_)
            | Self::ArraySynced(_)
            | Self::PersistDecisionsConsumed(_)
            | Self::PolicyChanged(_)
            | Self::HookCalled(_)
            | Self::ResultsPersisted(_)
            | Self::SpansStaged(_)
            | Self::SummaryPrepared(_)
            | Self::MemoryUpdateStarted(_)
            | Self::MemoryUpdateFailed(_)
            | Self::MemoryFileWritten(_)
            | Self::CacheEditsIssued(_) => {}
        }
    }

    /// Returns the stamp of the delegation that the event answers.
    pub(crate) fn commit(&self) -> Option<&RequestStamp> {
        match self {
            Self::CompactionFailed(event) => event.commit.as_ref(),
            Self::CompactionShortened(event) => event.commit.as_ref(),
            Self::CompactionFinished(event) => event.commit.as_ref(),
            _ => None,
        }
    }
}
