//! Undo: restores the view of an earlier revision and appends the messages that arrived later.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::decision::{Decided, SkipReason};
use super::reject::Rejection;
use crate::event::{CallState, ContextRestored, Event, RequestStamp, Span, remove_sealed};
use crate::ids::{CallKey, Ordinal, Revision};
use crate::levels::repair::{PieceAction, repair_pieces, with_kept_tokens};
use crate::message::Message;
use crate::session::{ContentNotLoaded, LaterMessages, Session};
use crate::tokens::TokenLedger;
use crate::view::{
    DropReason, LayoutChange, MarkerReason, Piece, PieceForm, ViewTail, extend_layout,
    last_input_has_id,
};

/// Undoes view-changing events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreContext {
    /// The session at the revision whose view is to be restored.
    pub past: Box<Session>,
    /// Later messages whose content is not in memory. An undone compaction makes such messages visible again.
    pub later: Vec<Arc<Message>>,
    /// True to restore even if the view then exceeds the block threshold.
    pub force: bool,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

impl RestoreContext {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        // The decision compares the layouts of both states, so it needs all visible contents.
        if !session.transcript().is_fully_loaded() || !self.past.transcript().is_fully_loaded() {
            return Err(Rejection::ContentNotLoaded);
        }
        let to = self.past.revision();
        if to > session.revision() {
            return Err(Rejection::RevisionNotFound {
                revision: to,
                current: session.revision(),
            });
        }
        let changes = session.view_changes();
        let later = &changes[changes.partition_point(|change| change.revision <= to)..];
        let undone: Vec<Revision> = later.iter().map(|change| change.revision).collect();
        // Without a view-changing event since that revision, the current view already begins with the earlier one.
        if undone.is_empty() {
            return Ok(Decided::Skipped(SkipReason::NothingEligible));
        }
        let wanted = RestoredState::build(*self.past, session, &self.later)?;
        let count = wanted.ledger.count(session.last_served().overhead_tokens);
        let block = session.thresholds().block;
        // Requests above the block threshold are blocked, so such a view is restored only on explicit request.
        if count.tokens >= block && !self.force {
            return Err(Rejection::RestoreOverBlock {
                tokens: count.tokens,
                block,
            });
        }
        let event = wanted.event(session, to, undone, self.request);
        Ok(Decided::events(vec![Event::ContextRestored(event)]))
    }
}

/// The computed state after the undo.
struct RestoredState {
    state: Session,
    pieces: Vec<Piece>,
    ledger: TokenLedger,
}

impl RestoredState {
    fn build(
        past: Session,
        now: &Session,
        later: &[Arc<Message>],
    ) -> Result<Self, ContentNotLoaded> {
        let added = LaterMessages::between(&past, now);
        let mut ledger = past.ledger().clone();
        // If both views are without user input, later input may have had ids, which must not be lost.
        let has_ids = last_input_has_id(now).or_else(|| last_input_has_id(&past));
        let offers_snip = Some(has_ids.unwrap_or(true));
        let state = past.with_later_messages(now, later);
        if !state.transcript().is_fully_loaded() {
            return Err(ContentNotLoaded);
        }
        let mut layout = extend_layout(&state, false, offers_snip)?;
        // A placeholder must not separate a call from its result. If that cannot be avoided, the open calls are
        // reported as interrupted.
        let open = ViewTail::of(state.sealed().pieces(), state.transcript()).open_calls;
        let has_place = |span: &Span| placeholder_position(span, &layout.pieces, &open).is_some();
        if !spans_to_keep(now, &added).all(|(_, span)| has_place(span)) {
            layout = extend_layout(&state, true, offers_snip)?;
        }
        // Later spans stay collapsed, so their placeholders are inserted into the new layout.
        for (message, span) in spans_to_keep(now, &added) {
            let at =
                placeholder_position(span, &layout.pieces, &open).unwrap_or(layout.pieces.len());
            let form = PieceForm::Placeholder(span.key);
            let piece = Piece {
                message,
                block: 0,
                form,
            };
            layout.pieces.insert(at, piece);
        }
        // The restored ledger knows the earlier view. The later messages are added as estimates.
        for (ordinal, entry) in state.transcript().entries() {
            if added.contains(ordinal) && entry.visibility.is_in_view() {
                ledger.add_estimated(entry.counts_as(), entry.size);
            }
        }
        // An undo withdraws changes of the view. What reported usage taught about token counts stays valid.
        ledger.calibration = now.ledger().calibration;
        let pieces = [state.sealed().pieces(), &layout.pieces].concat();
        let pieces = reapply_forms(pieces, &state, now, &added)?;
        Ok(Self {
            state,
            pieces,
            ledger,
        })
    }

    fn event(
        self,
        now: &Session,
        to: Revision,
        undone: Vec<Revision>,
        request: Option<RequestStamp>,
    ) -> ContextRestored {
        let mut pending = self.state.pending().to_vec();
        remove_sealed(&mut pending, &self.pieces);
        // The event records only differences to the current state.
        let change = LayoutChange::between(now.sealed().pieces(), &self.pieces);
        let interrupted: BTreeSet<_> = self.pieces.iter().filter_map(interrupted_call).collect();
        let entries = now
            .transcript()
            .entries()
            .zip(self.state.transcript().entries());
        let (mut visibilities, mut sizes) = (Vec::new(), Vec::new());
        for ((ordinal, is), (_, wanted)) in entries {
            if is.visibility != wanted.visibility {
                visibilities.push((ordinal, wanted.visibility));
            }
            if is.size != wanted.size {
                sizes.push((ordinal, wanted.size));
            }
        }
        let calls = now.calls().iter().zip(self.state.calls().iter());
        // The new layout can report an open call as interrupted, which its state must reflect.
        let calls = calls.filter_map(|((key, is), (_, wanted))| {
            let state = match wanted.state {
                CallState::Open if interrupted.contains(&key) => CallState::Interrupted,
                state => state,
            };
            (is.state != state).then_some((key, state))
        });
        // The state has the ids of the earlier view. Later calls must not use one of them.
        let conflicting = self.state.calls().conflicting();
        let both = now.calls().iter().zip(self.state.calls().iter());
        let remapped = both.filter(|((key, is), (_, wanted))| {
            is.uses_service_id != (wanted.uses_service_id || conflicting.contains(key))
        });
        let remapped = remapped.map(|((key, _), _)| key).collect();
        let overhead = now.last_served().overhead_tokens;
        ContextRestored {
            to,
            undone,
            before_tokens: now.tokens().tokens,
            after_tokens: self.ledger.count(overhead).tokens,
            calls: calls.collect(),
            remapped,
            visibilities,
            sizes,
            pending,
            ledger: self.ledger,
            change: with_kept_tokens(change, now),
            request,
        }
    }
}

fn interrupted_call(piece: &Piece) -> Option<CallKey> {
    match piece.form {
        PieceForm::Interrupted(call) => Some(call),
        _ => None,
    }
}

/// Iterates over the spans of later messages that stay collapsed, each with its first remaining message.
fn spans_to_keep<'a>(
    now: &'a Session,
    added: &LaterMessages,
) -> impl Iterator<Item = (Ordinal, &'a Span)> {
    now.placeholders().filter_map(move |one| {
        let span = &one.span;
        let left = span
            .messages
            .iter()
            .find(|message| added.contains(**message))?;
        Some((*left, span))
    })
}

/// Returns the index among new pieces at which a placeholder is inserted: before later messages, and where no call is
/// open. `open` are the calls that are open before the first new piece.
fn placeholder_position(span: &Span, pieces: &[Piece], open: &[CallKey]) -> Option<usize> {
    let later = |piece: &Piece| piece.message > span.last() && piece.form.is_shown();
    let from = pieces.iter().position(later).unwrap_or(pieces.len());
    let mut open: BTreeSet<CallKey> = open.iter().copied().collect();
    for (at, piece) in pieces.iter().enumerate() {
        if at >= from && open.is_empty() && piece.form.answered_call_key().is_none() {
            return Some(at);
        }
        open.extend(piece.form.call_key());
        if let Some(call) = piece.form.answered_call_key() {
            open.remove(&call);
        }
    }
    open.is_empty().then_some(pieces.len())
}

/// Preserves cleared and snipped forms of later messages, and repairs the remaining pieces. A placeholder that stays
/// can change the neighbors of a piece, so the forms are checked again.
fn reapply_forms(
    pieces: Vec<Piece>,
    state: &Session,
    now: &Session,
    added: &LaterMessages,
) -> Result<Vec<Piece>, ContentNotLoaded> {
    let lasting = |piece: &&Piece| {
        added.contains(piece.message)
            && matches!(
                piece.form,
                PieceForm::Cleared(_)
                    | PieceForm::SnippedResult(_)
                    | PieceForm::SnippedCall(_)
                    | PieceForm::Marker(MarkerReason::Snipped)
                    | PieceForm::Dropped(DropReason::Snipped)
            )
    };
    let shown = now.sealed().pieces().iter().filter(lasting);
    let forms: HashMap<(Ordinal, u16), PieceForm> = shown
        .map(|piece| ((piece.message, piece.block), piece.form))
        .collect();
    if forms.is_empty() && spans_to_keep(now, added).next().is_none() {
        return Ok(pieces);
    }
    let change = repair_pieces(state, &pieces, None, |_, piece| {
        // A marker in place of a hidden piece could make the view invalid.
        if !piece.form.represents_block() || !piece.form.is_shown() {
            return PieceAction::Keep;
        }
        let form = forms.get(&(piece.message, piece.block));
        match form.and_then(|form| merge_form(piece.form, *form)) {
            Some(form) => PieceAction::ChangeForm(form),
            None => PieceAction::Keep,
        }
    })?;
    Ok(change.apply(&pieces))
}

/// Returns the form that preserves a lasting form. `None` if the piece cannot keep it.
fn merge_form(form: PieceForm, lasting: PieceForm) -> Option<PieceForm> {
    match (form.answered_call_key(), lasting) {
        (Some(call), PieceForm::Cleared(_)) => Some(PieceForm::Cleared(call)),
        // The call may be visible again, and a call needs a result.
        (Some(call), _) => Some(PieceForm::SnippedResult(call)),
        (None, PieceForm::Cleared(_) | PieceForm::SnippedResult(_)) => None,
        // A result that is visible again needs its call.
        (None, lasting) if form.call_key().is_some() => match lasting {
            PieceForm::SnippedCall(call) => Some(PieceForm::SnippedCall(call)),
            _ => None,
        },
        // The operator message preceded the conversation before and no longer does. Such a message has no marker.
        (None, PieceForm::Marker(_)) if form == PieceForm::Operator => {
            Some(PieceForm::Dropped(DropReason::Snipped))
        }
        (None, lasting) => Some(lasting),
    }
}
