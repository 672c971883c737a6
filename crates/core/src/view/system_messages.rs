//! Separates the messages of the operator from those of the user, for a target that takes both.
//!
//! Anthropic's Messages API accepts a message with the role `system` only after a message of the user, and only before one
//! of the model or at the end. The operator messages of a user turn therefore follow the rest of the turn. An operator
//! message with which a turn begins stays a text of the user, because a later message of the user must not change it.

use super::wire::{GroupKey, Renderer};
use super::{Piece, PieceForm, WireBlock, WireRole};
use crate::session::ContentNotLoaded;

/// A piece that a target sees.
pub(super) struct ShownPiece<'a> {
    /// The index of the piece.
    pub(super) index: usize,
    /// The key of its message.
    pub(super) key: GroupKey,
    /// The block in the form that the target sees.
    pub(super) block: WireBlock<'a>,
}

/// Renders pieces, of which each user turn is complete or ends with them. Returns them in the order of the array.
pub(super) fn with_system_messages<'a>(
    render: &Renderer<'a, '_>,
    pieces: &[Piece],
) -> Result<Vec<ShownPiece<'a>>, ContentNotLoaded> {
    let mut shown: Vec<ShownPiece<'a>> = Vec::with_capacity(pieces.len());
    let mut begin = 0;
    for (index, piece) in pieces.iter().enumerate() {
        let Some((key, block)) = render.piece(piece)? else {
            continue;
        };
        // Pieces of the operator have the key of the user until they are separated, so another key ends the turn.
        if shown.last().is_some_and(|last| last.key != key) {
            separate(render, pieces, &mut shown, begin)?;
            begin = shown.len();
        }
        shown.push(ShownPiece { index, key, block });
    }
    separate(render, pieces, &mut shown, begin)?;
    Ok(shown)
}

/// Moves the operator messages of the turn that begins at `begin` to its end, under keys of their own. Those before the
/// first message of the user stay.
pub(super) fn separate<'a>(
    render: &Renderer<'a, '_>,
    pieces: &[Piece],
    shown: &mut Vec<ShownPiece<'a>>,
    begin: usize,
) -> Result<(), ContentNotLoaded> {
    let is_operator = |one: &ShownPiece<'_>| {
        one.key.role == WireRole::User && pieces[one.index].form == PieceForm::Operator
    };
    // A `system` message must follow a `user` message. An operator's text at the start of a turn therefore stays a
    // text.
    let leading = shown[begin..]
        .iter()
        .take_while(|one| is_operator(one))
        .count();
    let begin = begin + leading;
    if !shown[begin..].iter().any(is_operator) {
        return Ok(());
    }
    // The pieces after the leading ones are divided in two. Both parts keep their own order.
    let turn = shown.split_off(begin);
    let (operators, others): (Vec<_>, Vec<_>) = turn.into_iter().partition(|one| is_operator(one));
    shown.extend(others);
    for operator in operators {
        let piece = &pieces[operator.index];
        shown.push(ShownPiece {
            index: operator.index,
            key: GroupKey {
                role: WireRole::Operator,
                // The blocks of one operator message share a key, and two operator messages stay separate.
                apart: Some((piece.message, 0)),
            },
            // Rendered as a text of the user, the block has a `<system-reminder>` tag. Under a role of its own it needs
            // none.
            block: render.operator_text(piece)?.unwrap_or(operator.block),
        });
    }
    Ok(())
}
