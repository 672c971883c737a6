//! The effect of responses and of view-changing events on the session's record of the prompt cache.

use super::Session;
use super::prompt_cache::{CacheDivergence, CacheReport, CachedRequest, PromptCache, ViewChange};
use crate::event::{ChangeKind, Event};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::view::{LayoutChange, Piece, PieceForm, Target, count, shown_tokens};

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
        let known = cache.last_request.target == *target && cache.last_request.pieces > 0;
        let calibrated = |tokens| self.ledger.calibration.apply(tokens);
        let (reused_pieces, kept, rewritten) = match &cache.divergence {
            _ if !known => (0, 0, 0),
            None => (
                cache.last_request.pieces as usize,
                cache.last_request.tokens,
                0,
            ),
            Some(divergence) => {
                let at = divergence
                    .restore_change
                    .first()
                    .unwrap_or(divergence.pieces as usize);
                (
                    at,
                    divergence.restore_change.kept_tokens,
                    divergence.rewritten,
                )
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
    let others = message_tokens.saturating_sub(all_results);
    for (part, tokens) in tokens.iter_mut().enumerate() {
        let asked = || shares().filter(|share| share.part == Some(part));
        let asked_results: u64 = asked().filter_map(|share| share.result).sum();
        let asked_others = asked().filter(|share| share.result.is_none()).count() as u64;
        let share = match all_others {
            0 if asked_results > 0 => others,
            0 => 0,
            all => others * asked_others / all,
        };
        *tokens += asked_results.min(message_tokens) + share;
    }
}
