//! The order of the messages in the view of a session. An export that an agent resumes shows this order.

use std::collections::HashSet;

use palimpsest_core::ids::{Ordinal, SpanKey};
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::view::PieceForm;

/// One item of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ViewItem {
    /// A message.
    Message(Ordinal),
    /// The placeholder of a collapsed span.
    Placeholder(SpanKey),
}

/// Returns the items of the view, each at its first shown block. Messages that no view contains yet follow at the end.
pub(super) fn view_items(session: &Session) -> Vec<ViewItem> {
    let mut seen = HashSet::new();
    let of_pieces = session.sealed().pieces().iter();
    let of_pieces = of_pieces.filter_map(|piece| match piece.form {
        PieceForm::Placeholder(key) => Some(ViewItem::Placeholder(key)),
        form if form.represents_block() && form.is_shown() => {
            Some(ViewItem::Message(piece.message))
        }
        _ => None,
    });
    let is_visible = |at: &Ordinal| {
        let entry = session.transcript().get(*at);
        entry.is_some_and(|entry| entry.visibility == Visibility::Visible)
    };
    let pending = session.pending().iter().map(|pending| pending.message);
    // The agent has received these responses, and its next array contains them.
    let entries = session.transcript().entries();
    let unconfirmed = entries.filter(|(_, entry)| entry.visibility == Visibility::Unconfirmed);
    let unconfirmed = unconfirmed.map(|(at, _)| at);
    let later = pending.filter(is_visible).chain(unconfirmed);
    let all = of_pieces.chain(later.map(ViewItem::Message));
    all.filter(|item| seen.insert(*item)).collect()
}
