//! Everything that can happen to a session. The log is a list of these; all else is a function of it.
//!
//! An event holds what was decided, not what led to it, so that it means the same for ever: which
//! form a block takes in the view is written down, and is not worked out again on replay. Events of
//! later levels join here; how events are stored is the store's business.

mod parts;

use std::sync::Arc;

pub(crate) use self::parts::settle;
pub use self::parts::{
    Attached, AttachmentKind, Author, CallState, Dropped, Hook, HookCall, HookResult, Hooks, Kept,
    Method, Offer, Pairing, Pending, PinPlace, Placeholder, RequestStamp, Span, Standing, Stored,
    Strategy, TextDigest, Verdict, only_text,
};
pub use crate::ids::Attributes;
use crate::ids::{
    CallKey, CompactionKey, MessageId, OfferKey, Ordinal, Revision, SessionKey, Timestamp, Turn,
};
use crate::memory::SectionKind;
use crate::message::{Message, Usage};
use crate::policy::{Policy, WindowHint};
use crate::tokens::{Ledger, Size};
use crate::view::{LayoutChange, Piece, Target};
use crate::working::StateChange;

/// The version of the rules by which new decisions are taken. A session keeps the rules it has until
/// a view-changing event moves it to newer ones.
pub const RULES_VERSION: u32 = 1;

/// An event, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
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
    Restored(Restored),
    /// Level 4 chose spans that summaries may stand for.
    SpansStaged(SpansStaged),
    /// Level 4 put summaries in the places of spans. View-changing.
    SpansCollapsed(SpansCollapsed),
    /// Later messages left the view. View-changing.
    Rewound(Rewound),
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
    Compacted(Compacted),
    /// An update of the running summary began.
    MemoryStarted(MemoryStarted),
    /// The running summary has a new version.
    MemoryUpdated(MemoryUpdated),
    /// An update of the running summary came to nothing, or its file could not be written.
    MemoryFailed(MemoryFailed),
    /// The file of the running summary holds its text, after it could not be written for a while.
    MemoryFiled(MemoryFiled),
    /// The working state changed.
    WorkingStateUpdated(WorkingStateUpdated),
    /// The settings changed. View-changing, so that what is decided by them from here on belongs to
    /// an epoch of its own; pieces that were served stay as they are.
    PolicyChanged(PolicyChanged),
    /// Level 1 decided about a result whose message has not come yet.
    ResultOffered(ResultOffered),
    /// The results of offers came: what was decided about them has been carried out.
    OffersSettled(OffersSettled),
}

/// The session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCreated {
    /// The rules by which its decisions are taken.
    pub rules: u32,
    /// The resolved policy.
    pub policy: Arc<Policy>,
    /// Whether a first write made it, and nobody asked for it by itself.
    pub implicit: bool,
    /// A name for people.
    pub title: Box<str>,
    /// The folder that the work is in.
    pub project_path: Box<str>,
    /// The branch that the work is on.
    pub branch: Box<str>,
    /// Why it must be kept; empty when it may go.
    pub hold: Box<str>,
    /// The session that this one is a subagent of.
    pub parent: Option<SessionKey>,
    /// The caller's own notes.
    pub attributes: Attributes,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// The title or the attributes changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionUpdated {
    /// The new title.
    pub title: Option<Box<str>>,
    /// The new folder.
    pub project_path: Option<Box<str>>,
    /// The new branch.
    pub branch: Option<Box<str>>,
    /// The new reason to keep it.
    pub hold: Option<Box<str>>,
    /// The new attributes, all of them.
    pub attributes: Option<Attributes>,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Messages came in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessagesAppended {
    /// Those that are new, in order.
    pub messages: Vec<Appended>,
    /// Those that were there already: their index in the call, and their id.
    pub known: Vec<(u32, MessageId)>,
    /// The request that brought them.
    pub request: Option<RequestStamp>,
}

/// A message that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The message.
    pub message: Arc<Message>,
    /// Where it stands with regard to the view.
    pub standing: Standing,
    /// Its estimated size, before calibration.
    pub size: Size,
    /// The sizes of the results in it.
    pub results: Vec<ResultSize>,
}

/// How large a tool's result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultSize {
    /// The block that holds it.
    pub block: u16,
    /// Its characters; those of its JSON when it is made of blocks.
    pub chars: u64,
    /// Its estimated tokens.
    pub tokens: u32,
}

/// What had not been served yet was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewServed {
    /// The pieces that are new in the view.
    pub pieces: Vec<Piece>,
    /// For whom it was served.
    pub target: Target,
    /// What the caller said about its model.
    pub window: WindowHint,
    /// What the caller said its system prompt and its tools have.
    pub overhead_tokens: u64,
    /// What the view had then, as far as it was known.
    pub tokens: u64,
}

/// Level 1 stored results.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultsPersisted {
    /// Which, and what stands in their place.
    pub results: Vec<Stored>,
    /// The sizes that their messages have with it.
    pub sizes: Vec<(Ordinal, Size)>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
}

/// Level 1 decided about a result whose message has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultOffered {
    /// The result, and what was decided.
    pub offer: Offer,
    /// An earlier offer that made room for it.
    pub forgotten: Option<OfferKey>,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// The results of offers came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OffersSettled {
    /// Which offers.
    pub offers: Vec<OfferKey>,
}

/// Who asked a level to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Nobody: its condition was met.
    Auto,
    /// A caller, by hand.
    Manual,
    /// The model, through its tool.
    Model,
    /// The provider: it refused the prompt as too long.
    Provider,
}

/// Level 2 removed turns, messages or blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentSnipped {
    /// Who asked for it.
    pub asked: Asked,
    /// The user turns that were removed whole.
    pub turns: Vec<Turn>,
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
    pub asked: Asked,
    /// The calls whose results were cleared.
    pub calls: Vec<CallKey>,
    /// Those of them that were stored first.
    pub saved: Vec<Stored>,
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
    pub asked: Asked,
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
pub struct Restored {
    /// The revision whose view came back.
    pub to: Revision,
    /// The events that were taken back.
    pub undone: Vec<Revision>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// What it has after.
    pub after_tokens: u64,
    /// Where messages stand now that stood elsewhere.
    pub standings: Vec<(Ordinal, Standing)>,
    /// The sizes of messages that changed.
    pub sizes: Vec<(Ordinal, Size)>,
    /// What became of calls of which something else had become.
    pub calls: Vec<(CallKey, CallState)>,
    /// What waits to be served.
    pub pending: Vec<Pending>,
    /// The running count of tokens.
    pub ledger: Ledger,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Level 5 began to summarise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionStarted {
    /// Which compaction.
    pub key: CompactionKey,
    /// Who asked for it.
    pub asked: Asked,
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
pub enum WhyFailed {
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
    pub asked: Asked,
    /// Why.
    pub why: WhyFailed,
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
    pub dropped: Dropped,
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
    pub dropped: Option<Dropped>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Level 5 put a summary in the place of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Which compaction.
    pub key: CompactionKey,
    /// Who asked for it.
    pub asked: Asked,
    /// How the summary was made.
    pub strategy: Strategy,
    /// The messages that it adds: the mark, the summary, what is attached, what hooks say.
    pub messages: Vec<Appended>,
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
    pub ledger: Ledger,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The model that wrote the summary; empty when none did.
    pub model: Box<str>,
    /// What that model reported.
    pub usage: Usage,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What left without being in the summary's input, because that was too long.
    pub dropped: Option<Dropped>,
    /// What hooks did about it, in order.
    pub hooks: Vec<HookCall>,
    /// The request that asked for it, or that brought the summary.
    pub request: Option<RequestStamp>,
    /// What was attached, or found no room.
    pub attached: Vec<Attached>,
    /// The delegation that it answers.
    pub commit: Option<RequestStamp>,
}

/// An update of the running summary began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStarted {
    /// The number of the version that it will make.
    pub number: u64,
}

/// The running summary has a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUpdated {
    /// Its number.
    pub number: u64,
    /// The whole file.
    pub text: Box<str>,
    /// Who wrote it.
    pub author: Author,
    /// The revision that it was written from.
    pub source: Revision,
    /// The last message that it covers.
    pub covers: Option<Ordinal>,
    /// The last message that was read for it.
    pub read: Option<Ordinal>,
    /// The sections that are not as in the version before it.
    pub changed: Vec<SectionKind>,
    /// The file as a person left it, when this is what they wrote.
    pub file: Option<TextDigest>,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

/// An update of the running summary came to nothing, or its file could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFailed {
    /// Whether it is the file that failed: the text is there then, and only its copy is not.
    pub of_file: bool,
    /// Why. Never holds content of the conversation.
    pub detail: Box<str>,
    /// How many attempts in a row.
    pub attempts: u32,
    /// When the next one is due.
    pub next: Timestamp,
}

/// The file of the running summary holds its text again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFiled {
    /// The number of the version.
    pub number: u64,
}

/// The working state changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingStateUpdated {
    /// What is not as it was.
    pub change: StateChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// The settings changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanged {
    /// All of them.
    pub policy: Arc<Policy>,
}

/// Later messages left the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewound {
    /// The last message that stays; none stays when there is none.
    pub to: Option<Ordinal>,
    /// The messages that leave the view with it; those that an earlier rewind took are not among them.
    pub left: Vec<Ordinal>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// How many of them left.
    pub freed_tokens: u64,
    /// The running count of tokens.
    pub ledger: Ledger,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
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
            Self::Restored(_) => Some(ChangeKind::Restored),
            Self::Rewound(_) => Some(ChangeKind::Rewound),
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
            | Self::MemoryStarted(_)
            | Self::MemoryUpdated(_)
            | Self::MemoryFailed(_)
            | Self::MemoryFiled(_)
            | Self::WorkingStateUpdated(_)
            | Self::ResultOffered(_)
            | Self::OffersSettled(_)
            | Self::CacheEditsIssued(_) => None,
        }
    }

    /// The messages that it brings.
    pub fn messages(&self) -> &[Appended] {
        match self {
            Self::MessagesAppended(event) => &event.messages,
            Self::Compacted(event) => &event.messages,
            _ => &[],
        }
    }

    /// What it makes of the sealed pieces.
    pub fn layout_change(&self) -> Option<&LayoutChange> {
        match self {
            Self::Rewound(event) => Some(&event.change),
            Self::ContentSnipped(event) => Some(&event.change),
            Self::ResultsCleared(event) => Some(&event.change),
            Self::Restored(event) => Some(&event.change),
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
            Self::Rewound(event) => event.request.as_ref(),
            Self::ContentSnipped(event) => event.request.as_ref(),
            Self::ResultsCleared(event) => event.request.as_ref(),
            Self::Restored(event) => event.request.as_ref(),
            Self::SpansCollapsed(event) => event.request.as_ref(),
            Self::CompactionStarted(event) => event.request.as_ref(),
            Self::CompactionFailed(event) => event.request.as_ref(),
            Self::CompactionShortened(event) => event.request.as_ref(),
            Self::Compacted(event) => event.request.as_ref(),
            Self::ResultOffered(event) => event.request.as_ref(),
            Self::WorkingStateUpdated(event) => event.request.as_ref(),
            Self::ViewServed(_)
            | Self::OffersSettled(_)
            | Self::PolicyChanged(_)
            | Self::HookCalled(_)
            | Self::ResultsPersisted(_)
            | Self::SpansStaged(_)
            | Self::SummaryPrepared(_)
            | Self::MemoryStarted(_)
            | Self::MemoryUpdated(_)
            | Self::MemoryFailed(_)
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
