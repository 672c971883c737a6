//! The provider's prompt cache as far as the session can derive it.
//!
//! An answered request was sent, and the provider caches requests that were sent. A response to a sendable view
//! therefore marks all sealed pieces as cached, for the target of the last serving. The caches of other targets are
//! not tracked. Each later view-changing event moves the view away from the cached pieces or back to them. Only the
//! difference is stored. Prices of tokens are in `policy`.

use crate::event::ChangeKind;
use crate::ids::{Revision, Timestamp};
use crate::view::{LayoutChange, Piece, Target};

/// A view-changing event in the history of the prompt cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewChange {
    /// The revision of the event.
    pub revision: Revision,
    /// The kind of the event.
    pub kind: ChangeKind,
    /// Estimated tokens by which each later request is smaller, because of all changes up to this one. A rewind saves
    /// nothing, because other messages usually replace the removed ones.
    pub saving: u64,
}

/// The cached request, the difference of the current view, and the totals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptCache {
    /// Time of the first serving.
    pub since: Option<Timestamp>,
    /// The last answered request.
    pub last_request: CachedRequest,
    /// The difference between the view and that request. `None` if the view still begins with the whole request.
    pub divergence: Option<CacheDivergence>,
    /// Estimated tokens by which a request is smaller now.
    pub saving: u64,
    /// Total tokens that answered requests had to write to the cache again.
    pub total_invalidated: u64,
    /// Total tokens that answered requests saved.
    pub total_saved: u64,
}

/// The last request that a provider answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachedRequest {
    /// The target of the request.
    pub target: Target,
    /// Number of pieces.
    pub pieces: u32,
    /// Estimated tokens.
    pub tokens: u64,
    /// The value of [`PromptCache::saving`] at the time of the request, in estimated tokens.
    pub saving: u64,
}

/// The difference between the view and the cached request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDivergence {
    /// Number of pieces at the start of the view that correspond to the cached request.
    pub pieces: u32,
    /// The change that turns these pieces back into the cached ones. Contains the tokens before the first difference.
    pub restore_change: LayoutChange,
    /// Estimated tokens after the first difference that had been sent before.
    pub rewritten: u64,
    /// The event that caused the first difference.
    pub cause: Revision,
}

/// A report on the prompt cache. Token counts are calibrated to the provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheReport {
    /// Number of pieces at the start of the view that are unchanged since the last request.
    pub reused_pieces: usize,
    /// Tokens that the provider can read from its cache.
    pub reused: u64,
    /// Tokens that were cached and must be written again.
    pub invalidated: u64,
    /// Tokens by which each request is smaller, because of changes since the last response.
    pub saved: u64,
    /// The event that changed the cached prefix.
    pub cause: Option<ViewChange>,
    /// Milliseconds since the last response.
    pub idle_ms: Option<u64>,
    /// True if the provider has probably evicted the cache.
    pub cold: bool,
    /// Total tokens that had to be written again.
    pub total_invalidated: u64,
    /// Total tokens that requests saved.
    pub total_saved: u64,
    /// Time of the first serving.
    pub since: Option<Timestamp>,
}

impl PromptCache {
    /// Returns the cached pieces, reconstructed from the sealed pieces of the current view.
    pub(super) fn cached_pieces(&self, sealed: &[Piece]) -> Vec<Piece> {
        // The divergence contains the reverse change, so the cached pieces need not be stored.
        let first = |pieces: u32| &sealed[..sealed.len().min(pieces as usize)];
        match &self.divergence {
            None => first(self.last_request.pieces).to_vec(),
            Some(drift) => drift.restore_change.apply(first(drift.pieces)),
        }
    }
}
