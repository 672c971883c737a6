//! Messages that were appended and not served yet. They can still be merged, reordered and repaired.

use std::collections::HashSet;

use super::calls::Pairing;
use crate::ids::Ordinal;
use crate::view::Piece;

/// A message with blocks that are not sealed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMessage {
    /// The message.
    pub message: Ordinal,
    /// The blocks that are not sealed, in order, and the pairing of each tool result.
    pub blocks: Vec<(u16, Option<Pairing>)>,
}

/// Removes the blocks that `pieces` seal.
pub(crate) fn remove_sealed(pending: &mut Vec<PendingMessage>, pieces: &[Piece]) {
    let sealed: HashSet<(Ordinal, u16)> = pieces
        .iter()
        // A synthetic piece seals no block, although it names one.
        .filter(|piece| piece.form.represents_block())
        .map(|piece| (piece.message, piece.block))
        .collect();
    for item in pending.iter_mut() {
        item.blocks
            .retain(|(block, _)| !sealed.contains(&(item.message, *block)));
    }
    pending.retain(|item| !item.blocks.is_empty());
}
