//! Compares the view with the caller's array.

use crate::event::Strategy;
use crate::session::Session;
use crate::view::{DropReason, MarkerReason, Piece, PieceForm};

/// Returns true if no level has changed the caller's array: the view shows each of its messages, and no other one.
///
/// A repair is no change. The caller's own bytes then are what its provider would get without the service.
pub fn is_unchanged(session: &Session) -> bool {
    let mut is_shown = vec![false; session.transcript().len()];
    let mut is_linked = is_shown.clone();
    for link in &session.array().links {
        if let Some(linked) = is_linked.get_mut(link.message.index()) {
            *linked = true;
        }
    }
    for piece in session.sealed().pieces() {
        let at = piece.message.index();
        let is_own = is_linked.get(at).copied().unwrap_or(false);
        if !is_unchanged_form(piece, is_own) || is_own_summary(session, piece) {
            return false;
        }
        if let Some(shown) = is_shown.get_mut(at) {
            *shown = true;
        }
    }
    // A pending message has no piece yet.
    for pending in session.pending() {
        if let Some(shown) = is_shown.get_mut(pending.message.index()) {
            *shown = true;
        }
    }
    // A message without a piece was removed by a level. A message without blocks has no piece and stays in the view.
    let mut links = session.array().links.iter();
    links.all(|link| {
        let is_shown = is_shown.get(link.message.index()) == Some(&true);
        is_shown || session.transcript().is_in_view(link.message)
    })
}

/// Returns true for a summary that a level wrote. Its text can refer to the tools that only a changed view offers, so the
/// view is changed even if the caller has taken over the summary.
fn is_own_summary(session: &Session, piece: &Piece) -> bool {
    let mut boundaries = session.compactions().boundaries.iter();
    piece.form == PieceForm::Summary
        && boundaries.any(|boundary| {
            boundary.summary == Some(piece.message) && boundary.strategy != Strategy::Delegated
        })
}

/// Returns true if the form of a piece is the caller's block or a repair of it. `is_own` is true for a message of the
/// caller's array.
fn is_unchanged_form(piece: &Piece, is_own: bool) -> bool {
    match piece.form {
        PieceForm::Block
        | PieceForm::Call(_)
        | PieceForm::Result(_)
        | PieceForm::ResultWithoutMedia(_)
        | PieceForm::Text(_)
        | PieceForm::Operator
        | PieceForm::Marker(MarkerReason::Media(_))
        // The caller's own summary.
        | PieceForm::Summary => is_own,
        PieceForm::Input { turn, interjected } => is_own && turn.is_none() && !interjected,
        PieceForm::Interrupted(_) | PieceForm::Opening | PieceForm::Gap => true,
        // All other reasons are repairs.
        PieceForm::Dropped(reason) => reason != DropReason::Snipped,
        PieceForm::SnippedCall(_)
        | PieceForm::Stored(_)
        | PieceForm::Cleared(_)
        | PieceForm::SnippedResult(_)
        | PieceForm::Marker(MarkerReason::Snipped)
        | PieceForm::Tag(_)
        | PieceForm::Nudge
        | PieceForm::Placeholder(_) => false,
    }
}
