//! A session: the fold of its log.
//!
//! [`Session::apply`] is the only way in which its state changes, and it cannot fail on an event
//! that was decided upon it. Not here: which events happen (`command`).

mod apply;
mod cache_change;
mod cache_edits;
mod calls;
mod compaction;
mod coverage;
mod later;
mod notes;
mod offers;
mod prompt_cache;
mod requests;
mod snapshot;
mod spans;
mod state;
mod stored;
mod transcript;
mod turns;
mod working;

pub use crate::event::{
    Author, CallState, Dropped, Hook, HookCall, HookResult, Hooks, Method, Offer, Pairing, Pending,
    PinPlace, Placeholder, RequestStamp, Span, Standing, Strategy, TextDigest,
};
pub use crate::view::{Unsendable, View};
pub use apply::ReplayError;
pub use cache_edits::{CacheEdits, CachePin};
pub use calls::{Call, Calls};
pub use compaction::{Boundary, Compactions, Prepared, Running};
pub use coverage::Behind;
pub use notes::{Failure, Notes, Version, text_digest};
pub use offers::{Full, MAX_OFFERS, Match, Offers};
pub use prompt_cache::{CacheReport, Drift, Held, PromptCache, ViewChange};
pub use requests::{Answered, Requests};
pub use snapshot::{Needed, Snapshot, SnapshotEntry};
pub use spans::Spans;
pub use state::{About, Growth, LastServed, Session, WaitsFor};
pub use stored::{Placed, StoredResults};
pub(crate) use transcript::emission;
pub use transcript::{Entry, NotHeld, Transcript};
pub use turns::Turns;
pub use working::{Delisted, Working};
