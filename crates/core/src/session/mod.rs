//! A session: the state that results from applying all events of its log.
//!
//! The state changes only through [`Session::apply`], which cannot fail on an event that was decided on this session.
//! The module `command` decides events.

mod apply;
mod cache_edits;
mod caller_array;
mod calls;
mod compaction;
mod cost;
mod coverage;
mod later_messages;
mod persist_decisions;
mod prompt_cache;
mod request_counts;
mod requests;
mod rewind_point;
mod session_memory;
mod snapshot;
mod spans;
mod state;
mod stored_results;
mod totals;
mod transcript;
mod turns;
mod working_state;

pub use crate::event::{
    ArrayPosition, Author, CallState, CompactionHooks, DroppedContent, Hook, HookCall, HookResult,
    Pairing, PendingMessage, PersistDecision, Placeholder, RequestMethod, RequestStamp, Span,
    Strategy, TextDigest, Visibility,
};
pub use crate::view::{NotSendableReason, View};
pub use apply::ReplayError;
pub use cache_edits::{CacheEditBatch, CacheEdits};
pub use calls::{Call, Calls};
pub use compaction::{CompactionBoundary, Compactions, PreparedSummary, RunningCompaction};
pub use cost::CostBalance;
pub use coverage::MemoryLag;
pub(crate) use later_messages::LaterMessages;
pub use persist_decisions::{MAX_PENDING_DECISIONS, PersistDecisions, ResultMatch, TooManyPending};
pub use prompt_cache::{CacheDivergence, CacheReport, CachedRequest, PromptCache, ViewChange};
pub use requests::{AnsweredRequest, Requests};
pub(crate) use rewind_point::RewindPoint;
pub use session_memory::{MemoryFailure, MemoryVersion, SessionMemory, text_digest};
pub use snapshot::{ContentRange, Snapshot, SnapshotEntry};
pub use spans::Spans;
pub use state::{AwaitedParty, LastServed, Session, SessionInfo, SnipGrowth};
pub use stored_results::{PositionedResult, StoredResults};
pub use totals::SessionTotals;
pub(crate) use transcript::reemission_key;
pub use transcript::{ContentNotLoaded, Transcript, TranscriptEntry};
pub use turns::Turns;
pub use working_state::{DelistedName, SessionWorkingState};
