//! What a provider's prompt cache holds of a session, and what has become of that since.
//!
//! A cache holds what was sent, and what was answered was sent: so a response that comes while the
//! view could be sent marks all that is sealed as held, for the target that was served last. Other
//! targets have caches of their own, of which nothing is kept. From then on each view-changing event
//! moves the view away from what is held, or back to it. Only the difference is written down.
//! Not here: what tokens cost (`policy`).

use crate::event::ChangeKind;
use crate::ids::{Revision, Timestamp};
use crate::view::{LayoutChange, Piece, Target};

/// A view-changing event, as a session remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewChange {
    /// The event.
    pub revision: Revision,
    /// What it was.
    pub kind: ChangeKind,
    /// How many estimated tokens requests were smaller by from then on, because of all changes up to
    /// this one. What a rewind takes away is no saving: something else comes in its place.
    pub saving: u64,
}

/// What the cache holds, and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptCache {
    /// When the view was served first.
    pub since: Option<Timestamp>,
    /// What the last request that was answered had.
    pub held: CachedRequest,
    /// How the view differs from that; none when it still begins with all of it.
    pub drift: Option<Drift>,
    /// How many estimated tokens requests are smaller by now.
    pub saving: u64,
    /// All that had to be written again by the requests that were answered, in tokens.
    pub total_invalidated: u64,
    /// All that those requests were smaller by, in tokens.
    pub total_saved: u64,
}

/// What the last request that was answered had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachedRequest {
    /// For whom it was.
    pub target: Target,
    /// How many pieces it had.
    pub pieces: u32,
    /// Its estimated tokens.
    pub tokens: u64,
    /// How many of them earlier requests would have had beside these.
    pub saving: u64,
}

/// How the view differs from what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// How many pieces of the view stand for what is held.
    pub pieces: u32,
    /// What makes the held pieces of those, with the estimated tokens before the first difference.
    pub back: LayoutChange,
    /// The estimated tokens behind it that had been sent before.
    pub rewritten: u64,
    /// The event that put the first difference where it is.
    pub cause: Revision,
}

/// What became of the prompt cache, in tokens as providers count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheReport {
    /// How many pieces at the start of the view are as they were sent.
    pub reused_pieces: usize,
    /// What the provider can read from its cache.
    pub reused: u64,
    /// What it held and must be written again.
    pub invalidated: u64,
    /// What every request is smaller by, because of the changes since the last response.
    pub saved: u64,
    /// The event that changed the prefix.
    pub cause: Option<ViewChange>,
    /// Milliseconds since the last response.
    pub idle_ms: Option<u64>,
    /// Whether the provider has probably dropped the cache.
    pub cold: bool,
    /// All that had to be written again.
    pub total_invalidated: u64,
    /// All that requests were smaller by.
    pub total_saved: u64,
    /// When the view was served first.
    pub since: Option<Timestamp>,
}

impl PromptCache {
    /// The pieces that it holds, of a view that has `sealed`.
    pub(super) fn pieces(&self, sealed: &[Piece]) -> Vec<Piece> {
        let first = |pieces: u32| &sealed[..sealed.len().min(pieces as usize)];
        match &self.drift {
            None => first(self.held.pieces).to_vec(),
            Some(drift) => drift.back.apply(first(drift.pieces)),
        }
    }
}
