//! The provider's prompt cache as far as the session can derive it.
//!
//! An answered request was sent, and the provider caches requests that were sent. A response to a sendable view
//! therefore marks all sealed pieces as cached, for the target of the last serving. The caches of other targets are
//! not tracked. Each later view-changing event moves the view away from the cached pieces or back to them. Only the
//! difference is stored. Prices of tokens are in `policy`.

use super::{CostBalance, Session};
use crate::event::{ChangeKind, Event};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::view::{LayoutChange, Piece, PieceForm, Target, count, shown_tokens};

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
    /// Time of the last serving.
    pub served_at: Option<Timestamp>,
    /// Tokens of the last served view, until its first response.
    pub open_request_tokens: Option<u64>,
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
    /// The cost of the answered requests.
    pub costs: CostBalance,
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
    /// The time at which the view of the request was served.
    pub served_at: Option<Timestamp>,
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
    fn cached_pieces(&self, sealed: &[Piece]) -> Vec<Piece> {
        // The divergence contains the reverse change, so the cached pieces need not be stored.
        let first = |pieces: u32| &sealed[..sealed.len().min(pieces as usize)];
        match &self.divergence {
            None => first(self.last_request.pieces).to_vec(),
            Some(drift) => drift.restore_change.apply(first(drift.pieces)),
        }
    }

    /// Returns true if the last answered request had this target.
    pub(super) fn is_of(&self, target: &Target) -> bool {
        self.last_request.target == *target && self.last_request.pieces > 0
    }

    /// Returns the estimated tokens at the start of the view that the last answered request for this target contained.
    pub(super) fn kept_tokens(&self, target: &Target) -> u64 {
        match &self.divergence {
            _ if !self.is_of(target) => 0,
            None => self.last_request.tokens,
            Some(divergence) => divergence.restore_change.kept_tokens,
        }
    }
}

/// The state before a view-changing event.
pub(super) struct CacheBaseline {
    /// The pieces that the provider's cache holds.
    cached_pieces: Vec<Piece>,
    /// Estimated tokens of all visible messages.
    tokens: u64,
}

impl Session {
    /// Returns the state of the provider's prompt cache and its statistics.
    pub fn prompt_cache(&self) -> &PromptCache {
        &self.prompt_cache
    }

    /// Reports how much of the view a provider can read from its prompt cache, for one target.
    ///
    /// The cache counts as cold once the last response is at least `microcompact.time.idle` old. A cold cache holds
    /// nothing, so a change of the view invalidates nothing and still saves tokens. The same setting controls
    /// time-based clearing, so the cache is reported as cold whenever that clearing acts.
    pub fn cache_report(&self, target: &Target, now: Timestamp) -> CacheReport {
        let cache = &self.prompt_cache;
        // Providers keep one cache per target. Only the cache of the last served target is tracked.
        let cold = self.is_cache_cold(now);
        let known = cache.is_of(target);
        let calibrated = |tokens| self.ledger.calibration.apply(tokens);
        let kept = cache.kept_tokens(target);
        let (reused_pieces, rewritten) = match &cache.divergence {
            _ if !known => (0, 0),
            None => (cache.last_request.pieces as usize, 0),
            Some(divergence) => {
                let first = divergence.restore_change.first();
                let at = first.unwrap_or(divergence.pieces as usize);
                (at, divergence.rewritten)
            }
        };
        // The prompt prefix precedes all messages, so it is reused whenever the cache is warm.
        let warm = known && !cold;
        let cause = cache.divergence.as_ref().filter(|_| known);
        CacheReport {
            reused_pieces,
            reused: if warm {
                calibrated(kept).saturating_add(self.last_served.overhead_tokens)
            } else {
                0
            },
            invalidated: if warm { calibrated(rewritten) } else { 0 },
            saved: calibrated(cache.saving.saturating_sub(cache.last_request.saving)),
            cause: cause.and_then(|divergence| self.view_change(divergence.cause)),
            idle_ms: self.last_response.map(|last| now.millis_since(last)),
            cold,
            total_invalidated: cache.total_invalidated,
            total_saved: cache.total_saved,
            since: cache.since,
        }
    }

    /// Returns the tokens of the next request that the provider must write to its cache because the view changed: those
    /// that it had cached, and those that replace others, such as a summary. New messages of the conversation do not
    /// count. 0 if nothing is cached.
    pub(crate) fn rewritten_tokens(&self, target: &Target, now: Timestamp) -> u64 {
        let cache = &self.prompt_cache;
        if cache.divergence.is_none() || !cache.is_of(target) || self.is_cache_cold(now) {
            return 0;
        }
        let pending = self.pending.iter();
        let new = pending.filter_map(|item| self.transcript.get(item.message));
        let new = new.filter(|entry| !entry.kind.is_framing());
        let new: u64 = new.map(|entry| u64::from(entry.size.tokens)).sum();
        let unchanged = cache.kept_tokens(target).saturating_add(new);
        let rewritten = self.ledger.all.total().saturating_sub(unchanged);
        self.ledger.calibration.apply(rewritten)
    }

    /// Returns the number of pieces in the last answered request, if the view still begins with all of them.
    pub(crate) fn sent_piece_count(&self, target: &Target) -> Option<usize> {
        let PromptCache {
            last_request,
            divergence,
            ..
        } = &self.prompt_cache;
        let known =
            last_request.target == *target && last_request.pieces > 0 && divergence.is_none();
        known.then_some(last_request.pieces as usize)
    }

    /// Returns the view-changing event at a revision.
    pub fn view_change(&self, revision: Revision) -> Option<ViewChange> {
        let changes = &self.view_changes;
        let found = changes.binary_search_by_key(&revision, |change| change.revision);
        found.ok().map(|at| changes[at])
    }

    fn is_cache_cold(&self, now: Timestamp) -> bool {
        let idle = self.policy.microcompact.time.idle.get();
        self.last_response
            .is_some_and(|last| now.millis_since(last) >= idle)
    }

    /// Records that the model answered: everything sealed was sent to the provider, if the view was sendable.
    pub(super) fn record_response(&mut self, at: Timestamp) {
        // With pending messages or an unsendable view, the response answers a different array. `pending` is checked
        // first because that check is cheaper.
        if !self.pending.is_empty() || self.not_sendable_reason().is_some() {
            return;
        }
        self.record_cost();
        let report = self.cache_report(&self.last_served.target, at);
        let calibration = self.ledger.calibration;
        let cache = &mut self.prompt_cache;
        // Totals are added here and not at each change, because only a request that was sent costs or saves tokens.
        cache.total_invalidated += report.invalidated;
        // Every later request is smaller by the whole saving, so it counts again with each response.
        cache.total_saved += calibration.apply(cache.saving);
        cache.divergence = None;
        cache.last_request = CachedRequest {
            target: self.last_served.target.clone(),
            pieces: count(self.sealed.pieces().len()),
            tokens: self.ledger.all.total(),
            saving: cache.saving,
            served_at: cache.served_at,
        };
    }

    /// Captures the state before a view-changing event. Must be called before the event is applied.
    pub(super) fn cache_baseline(&self) -> CacheBaseline {
        CacheBaseline {
            cached_pieces: self.prompt_cache.cached_pieces(self.sealed.pieces()),
            tokens: self.ledger.all.total(),
        }
    }

    /// Updates the savings and the divergence after a view-changing event was applied.
    pub(super) fn record_cache_change(
        &mut self,
        event: &Event,
        kind: ChangeKind,
        before: &CacheBaseline,
    ) {
        let cache = &mut self.prompt_cache;
        cache.saving = match event {
            // Rewound messages are usually replaced by others, so a rewind counts as no saving.
            Event::PolicyChanged(_) | Event::SessionRewound(_) => cache.saving,
            Event::ContextRestored(event) => {
                // An undo returns to the savings of the restored revision.
                let earlier = |change: &&ViewChange| change.revision <= event.to;
                let last = self.view_changes.iter().rfind(earlier);
                last.map_or(0, |change| change.saving)
            }
            _ => {
                let freed = before.tokens.saturating_sub(self.ledger.all.total());
                cache.saving.saturating_add(freed)
            }
        };
        self.view_changes.push(ViewChange {
            revision: self.revision,
            kind,
            saving: cache.saving,
        });
        let tokens = self.ledger.all.total();
        let freed = before.tokens.saturating_sub(tokens);
        self.prompt_cache.costs.changed(event, freed, tokens);
        self.record_divergence(&before.cached_pieces);
    }

    /// Records how the view differs from the pieces that the cache holds.
    fn record_divergence(&mut self, held: &[Piece]) {
        let pieces = self.sealed.pieces();
        if pieces.starts_with(held) {
            self.prompt_cache.divergence = None;
            return;
        }
        let mut sent: Vec<Ordinal> = held.iter().map(|piece| piece.message).collect();
        // The pieces are almost sorted already, so the stable sort is close to linear.
        sent.sort();
        sent.dedup();
        let was_sent = |piece: &Piece| sent.binary_search(&piece.message).is_ok();
        // Pieces after the last sent message are new to the provider. They are not part of the difference.
        let end = pieces.iter().rposition(was_sent).map_or(0, |last| last + 1);
        let mut restore_change = LayoutChange::between(&pieces[..end], held);
        let first = restore_change.first().unwrap_or(end);
        // A placeholder replaces the text of messages that were sent. Its own text was sent only if the cache holds
        // the same placeholder.
        let is_placeholder = |piece: &&Piece| matches!(piece.form, PieceForm::Placeholder(_));
        let placeholders: Vec<&Piece> = held.iter().filter(is_placeholder).collect();
        let is_sent_again = |piece: &Piece| {
            was_sent(piece) && (!is_placeholder(&piece) || placeholders.contains(&piece))
        };
        let [kept, rewritten] = self.tokens_by_part(|index, piece| {
            if index < first {
                Some(0)
            } else {
                is_sent_again(piece).then_some(1)
            }
        });
        restore_change.kept_tokens = kept;
        // The cause stays with the earliest event as long as the first difference stays at the same position.
        let earlier = self.prompt_cache.divergence.as_ref();
        let same = earlier.filter(|divergence| divergence.restore_change.first() == Some(first));
        self.prompt_cache.divergence = Some(CacheDivergence {
            cause: same.map_or(self.revision, |divergence| divergence.cause),
            pieces: count(end),
            restore_change,
            rewritten,
        });
    }

    /// Returns the estimated tokens of the sealed pieces that satisfy `is_asked`.
    pub(crate) fn tokens_of(&self, is_asked: impl Fn(usize, &Piece) -> bool) -> u64 {
        let [tokens] = self.tokens_by_part(|index, piece| is_asked(index, piece).then_some(0));
        tokens
    }

    /// Returns the estimated tokens of sealed pieces, split into `N` parts. Message contents are not required: a
    /// result's size is recorded, and the rest of a message is divided evenly among its other pieces.
    fn tokens_by_part<const N: usize>(
        &self,
        part_of: impl Fn(usize, &Piece) -> Option<usize>,
    ) -> [u64; N] {
        let mut shares: Vec<(Ordinal, PieceShare)> = Vec::new();
        for (index, piece) in self.sealed.pieces().iter().enumerate() {
            // The first message of a collapsed span carries the size of the placeholder.
            let is_placeholder = matches!(piece.form, PieceForm::Placeholder(_));
            if (piece.form.represents_block() || is_placeholder) && piece.form.is_shown() {
                shares.push((
                    piece.message,
                    PieceShare {
                        part: part_of(index, piece),
                        result: self.result_tokens_of(piece),
                    },
                ));
            }
        }
        // The pieces of a message are usually adjacent, but not always, so they are sorted before grouping.
        shares.sort_by_key(|(message, _)| *message);
        let mut tokens = [0; N];
        for pieces in shares.chunk_by(|(one, _), (next, _)| one == next) {
            let message = pieces.first().map(|(message, _)| *message);
            let entry = message.and_then(|message| self.transcript.get(message));
            let all = entry.map_or(0, |entry| entry.size.tokens.into());
            distribute_tokens(pieces, all, &mut tokens);
        }
        tokens
    }

    /// Returns the estimated tokens of a piece that represents a tool result.
    fn result_tokens_of(&self, piece: &Piece) -> Option<u64> {
        let call = piece.form.answered_call_key()?;
        let tokens = shown_tokens(&self.calls, piece.form, call);
        Some(tokens.into())
    }
}

/// The part that a piece belongs to, and its own size if it is a result.
#[derive(Clone, Copy)]
struct PieceShare {
    /// Index of the part. `None` for pieces that count for no part.
    part: Option<usize>,
    /// Estimated tokens of the result. `None` if the piece is no result.
    result: Option<u64>,
}

/// Distributes the tokens of one message over the parts of its pieces.
fn distribute_tokens<const N: usize>(
    pieces: &[(Ordinal, PieceShare)],
    message_tokens: u64,
    tokens: &mut [u64; N],
) {
    let shares = || pieces.iter().map(|(_, share)| share);
    let all_results: u64 = shares().filter_map(|share| share.result).sum();
    let all_others = shares().filter(|share| share.result.is_none()).count() as u64;
    let results = shares().filter(|share| share.result.is_some()).count() as u64;
    // Example: of 100 tokens with a result of 60 and two texts, each text has a share of 20.
    let others = message_tokens.saturating_sub(all_results);
    for (part, tokens) in tokens.iter_mut().enumerate() {
        let asked = || shares().filter(|share| share.part == Some(part));
        let asked_results: u64 = asked().filter_map(|share| share.result).sum();
        let asked_others = asked().filter(|share| share.result.is_none()).count() as u64;
        // Without other pieces, the rest belongs to the results alone.
        let share = match (all_others, results) {
            (0, 0) => 0,
            (0, all) => others * asked().count() as u64 / all,
            (all, _) => others * asked_others / all,
        };
        *tokens += asked_results.min(message_tokens) + share;
    }
}
