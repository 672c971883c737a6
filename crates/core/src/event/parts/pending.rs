//! What was appended and not yet served: it may still be merged, reordered and repaired.

use std::collections::HashSet;

use super::calls::Pairing;
use crate::ids::Ordinal;
use crate::view::Piece;

/// A message that is not wholly sealed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMessage {
    /// The message.
    pub message: Ordinal,
    /// Its blocks that are not sealed yet, in order, and what each result belongs to.
    pub blocks: Vec<(u16, Option<Pairing>)>,
}

/// Takes out what `pieces` seal.
pub(crate) fn settle(pending: &mut Vec<PendingMessage>, pieces: &[Piece]) {
    let sealed: HashSet<(Ordinal, u16)> = pieces
        .iter()
        .filter(|piece| piece.form.is_of_a_block())
        .map(|piece| (piece.message, piece.block))
        .collect();
    for item in pending.iter_mut() {
        item.blocks
            .retain(|(block, _)| !sealed.contains(&(item.message, *block)));
    }
    pending.retain(|item| !item.blocks.is_empty());
}
