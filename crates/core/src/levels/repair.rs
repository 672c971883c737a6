//! Removes and changes pieces of a view so that the rest stays valid for its provider. The first
//! message is the user's, calls keep their results, no message ends with thinking, and two responses are not merged.

use crate::message::Block;
use crate::session::{ContentNotLoaded, Session};
use crate::view::{DropReason, LayoutChange, Piece, PieceForm, Rewriter, Speaker, side};

/// The change of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceAction {
    /// The piece stays unchanged.
    Stay,
    /// The piece is removed.
    Leave,
    /// The piece is replaced by another piece.
    Yield(Piece),
    /// The piece changes its form.
    Become(PieceForm),
}

/// Returns the change that applies an action to each piece of a session's view.
///
/// # Errors
///
/// Fails if the content of any message is not loaded.
pub fn repair_layout(
    session: &Session,
    fate: impl Fn(usize, &Piece) -> PieceAction,
) -> Result<LayoutChange, ContentNotLoaded> {
    mend_with(session, None, fate)
}

/// Like `repair_layout`, and inserts the piece `new` before the given index.
pub fn mend_with(
    session: &Session,
    new: Option<(usize, Piece)>,
    fate: impl Fn(usize, &Piece) -> PieceAction,
) -> Result<LayoutChange, ContentNotLoaded> {
    let change = mend_pieces(session, session.sealed().pieces(), new, fate)?;
    Ok(measured(change, session))
}

/// Like `mend_with`, for pieces that are not the session's view. `kept_tokens` of the change stays 0.
pub fn mend_pieces(
    session: &Session,
    before: &[Piece],
    new: Option<(usize, Piece)>,
    fate: impl Fn(usize, &Piece) -> PieceAction,
) -> Result<LayoutChange, ContentNotLoaded> {
    // System text, thinking and gaps depend on the content of neighbours, so all content must be loaded.
    if !session.transcript().is_whole() {
        return Err(ContentNotLoaded);
    }
    let mut after: Vec<Option<Piece>> = before
        .iter()
        .enumerate()
        .map(|(index, piece)| match fate(index, piece) {
            PieceAction::Stay => Some(*piece),
            PieceAction::Leave => None,
            PieceAction::Yield(other) => Some(other),
            PieceAction::Become(form) => Some(Piece { form, ..*piece }),
        })
        .collect();
    drop_trailing_thinking(before, &mut after, session);
    let mut rewriter = Rewriter::default();
    // `last` is the last shown speaker, and `user_left` is true if user content after it was removed. Two responses
    // need a gap only in that case: without a removal they were already adjacent and belong together.
    let mut last = None;
    let mut user_left = false;
    for (index, (old, kept)) in before.iter().zip(after).enumerate() {
        if let Some((_, new)) = new.filter(|(at, _)| *at == index) {
            rewriter.insert(new);
            (last, user_left) = (Some(of(session, &new)), false);
        }
        let new = kept;
        let stays = new.is_some_and(|new| new.form.is_shown());
        user_left |= !stays && old.form.is_shown() && of(session, old) == Speaker::User;
        let Some(mut new) = new else {
            rewriter.remove();
            continue;
        };
        new.form = placed(session, &new, last.is_none());
        if new.form.is_shown() {
            let side = of(session, &new);
            let synthetic = |form| Piece {
                message: new.message,
                block: 0,
                form,
            };
            match (last, side) {
                (None, Speaker::Assistant) => rewriter.insert(synthetic(PieceForm::Opening)),
                (Some(Speaker::Assistant), Speaker::Assistant) if user_left => {
                    rewriter.insert(synthetic(PieceForm::Gap));
                }
                _ => {}
            }
            // System pieces lead the view and do not count as speakers.
            if side != Speaker::System {
                last = Some(side);
            }
            user_left = false;
        }
        if new == *old {
            rewriter.keep();
        } else {
            rewriter.replace(new);
        }
    }
    if let Some((_, new)) = new.filter(|(at, _)| *at == before.len()) {
        rewriter.insert(new);
    }
    Ok(rewriter.finish())
}

/// Sets `kept_tokens` of a change: the tokens before the first change, which a prompt cache can still use.
pub fn measured(mut change: LayoutChange, session: &Session) -> LayoutChange {
    // Without a change the whole view can still be used.
    let first = change.first().unwrap_or(usize::MAX);
    change.kept_tokens = session.tokens_of(|index, _| index < first);
    change
}

fn of(session: &Session, piece: &Piece) -> Speaker {
    side(piece, session.transcript())
}

/// Returns the form of a piece at its new position. System text leads the view until someone else speaks.
fn placed(session: &Session, piece: &Piece, leads: bool) -> PieceForm {
    match piece.form {
        PieceForm::Operator if leads => PieceForm::Block,
        PieceForm::Block if !leads && of(session, piece) == Speaker::System => {
            let words = session.transcript().block(piece.message, piece.block);
            match words {
                Some(Block::Text { .. }) => PieceForm::Operator,
                _ => PieceForm::Dropped(DropReason::WrongRole),
            }
        }
        form => form,
    }
}

/// Drops thinking that now ends its message because later blocks were removed. Providers reject such a message.
fn drop_trailing_thinking(before: &[Piece], after: &mut [Option<Piece>], session: &Session) {
    let transcript = session.transcript();
    // The list is visited backwards, because a dropped piece may make the piece before it the last of its message.
    let mut ends = true;
    for (old, new) in before.iter().zip(after).rev() {
        let Some(piece) = new.as_mut().filter(|piece| piece.form.is_shown()) else {
            // Removed user content still ends the message before it: `mend_pieces` inserts a gap if one is needed.
            ends |= old.form.is_shown() && of(session, old) == Speaker::User;
            continue;
        };
        let thinks = piece.form == PieceForm::Block
            && transcript
                .block(piece.message, piece.block)
                .is_some_and(Block::is_thinking);
        if thinks && ends {
            piece.form = PieceForm::Dropped(DropReason::TrailingThinking);
        } else {
            ends = side(piece, transcript) != Speaker::Assistant;
        }
    }
}
