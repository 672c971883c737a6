//! Pending items whose ids an earlier item of the view has. The provider of the Responses API rejects them.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use super::PieceForm;
use super::item_id::item_id;
use crate::event::PendingMessage;
use crate::ids::Ordinal;
use crate::message::Digest;
use crate::session::{ContentNotLoaded, Session};

/// The pending blocks of a session without the items whose ids an earlier item has.
pub(super) struct FreshBlocks<'a> {
    /// The messages that still have blocks.
    pub(super) pending: Cow<'a, [PendingMessage]>,
    /// The blocks that were removed.
    pub(super) repeated: BTreeSet<(Ordinal, u16)>,
}

impl<'a> FreshBlocks<'a> {
    pub(super) fn of(session: &'a Session) -> Result<Self, ContentNotLoaded> {
        let mut seen = HashSet::new();
        let mut repeated = BTreeSet::new();
        for item in session.pending() {
            let message = session.transcript().require_content(item.message)?;
            for (block, _) in &item.blocks {
                let id = item_id(message, &message.blocks[usize::from(*block)]);
                if id.is_some_and(|id| !seen.insert(id) || is_shown(session, id)) {
                    repeated.insert((item.message, *block));
                }
            }
        }
        // Almost no item is repeated, so the pending messages are copied only if one is.
        let mut pending = Cow::Borrowed(session.pending());
        if !repeated.is_empty() {
            let all = pending.to_mut();
            for item in all.iter_mut() {
                let at = item.message;
                (item.blocks).retain(|(block, _)| !repeated.contains(&(at, *block)));
            }
            all.retain(|item| !item.blocks.is_empty());
        }
        Ok(Self { pending, repeated })
    }
}

/// Returns true if the sealed view shows an item with this id. A marker in place of an item has no id.
fn is_shown(session: &Session, id: Digest) -> bool {
    let with_id = session.transcript().item_ids();
    let places = with_id.filter(|(.., other)| *other == id);
    let places: HashSet<_> = places.map(|(at, block, _)| (at, block)).collect();
    let mut sealed = session.sealed().pieces().iter();
    // Almost every id is new, and then the view is not searched.
    !places.is_empty()
        && sealed.any(|piece| {
            piece.form == PieceForm::Block && places.contains(&(piece.message, piece.block))
        })
}
