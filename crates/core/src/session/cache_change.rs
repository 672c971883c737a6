//! The effect of responses and of view-changing events on the prompt cache.

use super::Session;
use super::prompt_cache::{CacheReport, CachedRequest, Drift, PromptCache, ViewChange};
use crate::event::{ChangeKind, Event};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::view::{LayoutChange, Piece, PieceForm, Target, count, shown_tokens};

/// What a change of the view finds.
pub(super) struct CacheBaseline {
    /// The pieces that the cache holds.
    held: Vec<Piece>,
    /// The estimated tokens of everything visible.
    tokens: u64,
}

impl Session {
    /// What the prompt cache holds, and what has become of it.
    pub fn prompt_cache(&self) -> &PromptCache {
        &self.prompt_cache
    }

    /// What became of the prompt cache for a target.
    ///
    /// A cold cache holds nothing, so nothing can be read from it and nothing in it is lost: a change
    /// then costs nothing and saves all the same. It counts as cold when the last response is as old
    /// as `microcompact.time.idle`: where clearing by time acts because the cache is cold, the ledger
    /// says so too.
    pub fn cache_report(&self, target: &Target, now: Timestamp) -> CacheReport {
        let cache = &self.prompt_cache;
        let cold = self.is_cold(now);
        let known = cache.held.target == *target && cache.held.pieces > 0;
        let calibrated = |tokens| self.ledger.calibration.apply(tokens);
        let (reused_pieces, kept, rewritten) = match &cache.drift {
            _ if !known => (0, 0, 0),
            None => (cache.held.pieces as usize, cache.held.tokens, 0),
            Some(drift) => {
                let at = drift.back.first().unwrap_or(drift.pieces as usize);
                (at, drift.back.kept_tokens, drift.rewritten)
            }
        };
        let warm = known && !cold;
        let cause = cache.drift.as_ref().filter(|_| known);
        CacheReport {
            reused_pieces,
            reused: if warm {
                calibrated(kept).saturating_add(self.last_served.overhead_tokens)
            } else {
                0
            },
            invalidated: if warm { calibrated(rewritten) } else { 0 },
            saved: calibrated(cache.saving.saturating_sub(cache.held.saving)),
            cause: cause.and_then(|drift| self.view_change(drift.cause)),
            idle_ms: self.last_response.map(|last| now.millis_since(last)),
            cold,
            total_invalidated: cache.total_invalidated,
            total_saved: cache.total_saved,
            since: cache.since,
        }
    }

    /// How many pieces the last request that was answered had, when the view still begins with them.
    pub(crate) fn sent_pieces(&self, target: &Target) -> Option<usize> {
        let PromptCache { held, drift, .. } = &self.prompt_cache;
        let known = held.target == *target && held.pieces > 0 && drift.is_none();
        known.then_some(held.pieces as usize)
    }

    /// The view-changing event with a revision.
    pub fn view_change(&self, revision: Revision) -> Option<ViewChange> {
        let changes = &self.view_changes;
        let found = changes.binary_search_by_key(&revision, |change| change.revision);
        found.ok().map(|at| changes[at])
    }

    fn is_cold(&self, now: Timestamp) -> bool {
        let idle = self.policy.microcompact.time.idle.get();
        self.last_response
            .is_some_and(|last| now.millis_since(last) >= idle)
    }

    /// The model has answered at this time: what is sealed was sent, if it could be.
    pub(super) fn answered_at(&mut self, at: Timestamp) {
        // Who answers something else was not sent this view. The first question is the cheaper one.
        if !self.pending.is_empty() || self.unsendable().is_some() {
            return;
        }
        let report = self.cache_report(&self.last_served.target, at);
        let calibration = self.ledger.calibration;
        let cache = &mut self.prompt_cache;
        cache.total_invalidated += report.invalidated;
        cache.total_saved += calibration.apply(cache.saving);
        cache.drift = None;
        cache.held = CachedRequest {
            target: self.last_served.target.clone(),
            pieces: count(self.sealed.pieces().len()),
            tokens: self.ledger.all.total(),
            saving: cache.saving,
        };
    }

    /// What a view-changing event finds; it is to be asked before the event is applied.
    pub(super) fn before_change(&self) -> CacheBaseline {
        CacheBaseline {
            held: self.prompt_cache.pieces(self.sealed.pieces()),
            tokens: self.ledger.all.total(),
        }
    }

    /// A view-changing event was applied.
    pub(super) fn after_change(&mut self, event: &Event, kind: ChangeKind, before: &CacheBaseline) {
        let cache = &mut self.prompt_cache;
        cache.saving = match event {
            Event::PolicyChanged(_) | Event::SessionRewound(_) => cache.saving,
            Event::ContextRestored(event) => {
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
        self.drift_from(&before.held);
    }

    /// Notes how the view differs now from what is held.
    fn drift_from(&mut self, held: &[Piece]) {
        let pieces = self.sealed.pieces();
        if pieces.starts_with(held) {
            self.prompt_cache.drift = None;
            return;
        }
        let mut sent: Vec<Ordinal> = held.iter().map(|piece| piece.message).collect();
        // Nearly all of them are in order.
        sent.sort();
        sent.dedup();
        let was_sent = |piece: &Piece| sent.binary_search(&piece.message).is_ok();
        // What came since follows; it is no part of the difference.
        let end = pieces.iter().rposition(was_sent).map_or(0, |last| last + 1);
        let mut back = LayoutChange::between(&pieces[..end], held);
        let first = back.first().unwrap_or(end);
        let [kept, rewritten] = self.tokens_in(|index, piece| {
            if index < first {
                Some(0)
            } else {
                was_sent(piece).then_some(1)
            }
        });
        back.kept_tokens = kept;
        let earlier = self.prompt_cache.drift.as_ref();
        let same = earlier.filter(|drift| drift.back.first() == Some(first));
        self.prompt_cache.drift = Some(Drift {
            cause: same.map_or(self.revision, |drift| drift.cause),
            pieces: count(end),
            back,
            rewritten,
        });
    }

    /// The estimated tokens of some sealed pieces.
    pub(crate) fn tokens_of(&self, is_asked: impl Fn(usize, &Piece) -> bool) -> u64 {
        let [tokens] = self.tokens_in(|index, piece| is_asked(index, piece).then_some(0));
        tokens
    }

    /// The estimated tokens of sealed pieces, in parts. Contents are not needed: a result's size is known by itself,
    /// and what else a message has is shared out among its other pieces.
    fn tokens_in<const N: usize>(
        &self,
        part_of: impl Fn(usize, &Piece) -> Option<usize>,
    ) -> [u64; N] {
        let mut shares: Vec<(Ordinal, PieceShare)> = Vec::new();
        for (index, piece) in self.sealed.pieces().iter().enumerate() {
            // A placeholder has what its messages have left.
            let folds = matches!(piece.form, PieceForm::Placeholder(_));
            if (piece.form.is_of_a_block() || folds) && piece.form.is_shown() {
                shares.push((
                    piece.message,
                    PieceShare {
                        part: part_of(index, piece),
                        result: self.result_tokens_of(piece),
                    },
                ));
            }
        }
        // The pieces of a message need not stand together, but nearly all do.
        shares.sort_by_key(|(message, _)| *message);
        let mut tokens = [0; N];
        for pieces in shares.chunk_by(|(one, _), (next, _)| one == next) {
            let message = pieces.first().map(|(message, _)| *message);
            let entry = message.and_then(|message| self.transcript.get(message));
            let all = entry.map_or(0, |entry| entry.size.tokens.into());
            share_out(pieces, all, &mut tokens);
        }
        tokens
    }

    /// The estimated tokens of a piece that stands for a result.
    fn result_tokens_of(&self, piece: &Piece) -> Option<u64> {
        let call = piece.form.answers()?;
        let tokens = shown_tokens(&self.calls, piece.form, call);
        Some(tokens.into())
    }
}

/// A piece's share of its message.
#[derive(Clone, Copy)]
struct PieceShare {
    /// The part that it counts for.
    part: Option<usize>,
    /// Its tokens, when it stands for a result.
    result: Option<u64>,
}

/// Shares the tokens of a message out among the parts that its pieces count for.
fn share_out<const N: usize>(
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
