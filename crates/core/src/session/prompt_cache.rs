//! What a provider's prompt cache holds of a session, and what has become of that since.
//!
//! A cache holds what was sent, and what was answered was sent: so a response that comes while the
//! view could be sent marks all that is sealed as held, for the target that was served last. Other
//! targets have caches of their own, of which nothing is kept. From then on each view-changing event
//! moves the view away from what is held, or back to it. Only the difference is written down.
//! Not here: what tokens cost (`policy`).

use super::Session;
use crate::event::{ChangeKind, Event};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::view::{Form, LayoutChange, Piece, Target, count, shown_tokens};

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
    pub held: Held,
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
pub struct Held {
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

/// What a change of the view finds.
pub(super) struct Before {
    /// The pieces that the cache holds.
    held: Vec<Piece>,
    /// The estimated tokens of everything visible.
    tokens: u64,
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
    fn pieces(&self, sealed: &[Piece]) -> Vec<Piece> {
        let first = |pieces: u32| &sealed[..sealed.len().min(pieces as usize)];
        match &self.drift {
            None => first(self.held.pieces).to_vec(),
            Some(drift) => drift.back.apply(first(drift.pieces)),
        }
    }
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
        cache.held = Held {
            target: self.last_served.target.clone(),
            pieces: count(self.sealed.pieces().len()),
            tokens: self.ledger.all.total(),
            saving: cache.saving,
        };
    }

    /// What a view-changing event finds; it is to be asked before the event is applied.
    pub(super) fn before_change(&self) -> Before {
        Before {
            held: self.prompt_cache.pieces(self.sealed.pieces()),
            tokens: self.ledger.all.total(),
        }
    }

    /// A view-changing event was applied.
    pub(super) fn after_change(&mut self, event: &Event, kind: ChangeKind, before: &Before) {
        let cache = &mut self.prompt_cache;
        cache.saving = match event {
            Event::PolicyChanged(_) | Event::Rewound(_) => cache.saving,
            Event::Restored(event) => {
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
        let mut shares: Vec<(Ordinal, Share)> = Vec::new();
        for (index, piece) in self.sealed.pieces().iter().enumerate() {
            // A placeholder has what its messages have left.
            let folds = matches!(piece.form, Form::Placeholder(_));
            if (piece.form.is_of_a_block() || folds) && piece.form.is_shown() {
                shares.push((
                    piece.message,
                    Share {
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
struct Share {
    /// The part that it counts for.
    part: Option<usize>,
    /// Its tokens, when it stands for a result.
    result: Option<u64>,
}

/// Shares the tokens of a message out among the parts that its pieces count for.
fn share_out<const N: usize>(
    pieces: &[(Ordinal, Share)],
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
