//! A session: the state that results from applying all events of its log.
//!
//! The state changes only through [`Session::apply`], which cannot fail on an event that was decided on this session.
//! The module `command` decides events.

mod apply;
mod cache_change;
mod cache_edits;
mod calls;
mod compaction;
mod coverage;
mod later;
mod persist_decisions;
mod prompt_cache;
mod requests;
mod session_memory;
mod snapshot;
mod spans;
mod state;
mod stored;
mod transcript;
mod turns;
mod working;

pub use crate::event::{
    Author, CallState, CompactionHooks, DroppedContent, Hook, HookCall, HookResult, Pairing,
    PendingMessage, PersistDecision, PinPlace, Placeholder, RequestMethod, RequestStamp, Span,
    Strategy, TextDigest, Visibility,
};
pub use crate::view::{NotSendableReason, View};
pub use apply::ReplayError;
pub use cache_edits::{CacheEdits, CachePin};
pub use calls::{Call, Calls};
pub use compaction::{Boundary, Compactions, PreparedSummary, RunningCompaction};
pub use coverage::MemoryLag;
pub use persist_decisions::{MAX_OFFERS, Match, PersistDecisions, TooManyPending};
pub use prompt_cache::{CacheReport, CachedRequest, Drift, PromptCache, ViewChange};
pub use requests::{AnsweredRequest, Requests};
pub use session_memory::{MemoryFailure, MemoryVersion, SessionMemory, text_digest};
pub use snapshot::{Needed, Snapshot, SnapshotEntry};
pub use spans::Spans;
pub use state::{About, LastServed, Session, SnipGrowth, WaitsFor};
pub use stored::{PositionedResult, StoredResults};
pub(crate) use transcript::emission;
pub use transcript::{ContentNotLoaded, Transcript, TranscriptEntry};
pub use turns::Turns;
pub use working::{DelistedName, SessionWorkingState};
