//! Removes and changes pieces of a view so that the rest stays valid for its provider. The first
//! message is the user's, calls keep their results, no message ends with thinking, and two responses are not merged.

use std::collections::HashSet;

use crate::message::Block;
use crate::session::{ContentNotLoaded, Session};
use crate::view::{
    DropReason, LaterBlocks, LayoutChange, LayoutChangeBuilder, Piece, PieceForm, Speaker, item_id,
    speaker,
};

/// The change of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceAction {
    /// The piece stays unchanged.
    Keep,
    /// The piece is removed.
    Remove,
    /// The piece is replaced by another piece.
    Replace(Piece),
    /// The piece changes its form.
    ChangeForm(PieceForm),
}

/// Returns the change that applies an action to each piece of a session's view.
///
/// # Errors
///
/// Fails if the content of any message is not loaded.
pub fn repair_layout(
    session: &Session,
    action: impl Fn(usize, &Piece) -> PieceAction,
) -> Result<LayoutChange, ContentNotLoaded> {
    repair_layout_with(session, None, action)
}

/// Like `repair_layout`, and inserts the piece `new` before the given index.
pub fn repair_layout_with(
    session: &Session,
    new: Option<(usize, Piece)>,
    action: impl Fn(usize, &Piece) -> PieceAction,
) -> Result<LayoutChange, ContentNotLoaded> {
    let change = repair_pieces(session, session.sealed().pieces(), new, action)?;
    Ok(with_kept_tokens(change, session))
}

/// Like `repair_layout_with`, for pieces that are not the session's view. `kept_tokens` of the change stays 0.
pub fn repair_pieces(
    session: &Session,
    before: &[Piece],
    new: Option<(usize, Piece)>,
    action: impl Fn(usize, &Piece) -> PieceAction,
) -> Result<LayoutChange, ContentNotLoaded> {
    // System text, thinking and gaps depend on the content of neighbours, so all content must be loaded.
    if !session.transcript().is_fully_loaded() {
        return Err(ContentNotLoaded);
    }
    let mut after: Vec<Option<Piece>> = before
        .iter()
        .enumerate()
        .map(|(index, piece)| match action(index, piece) {
            PieceAction::Keep => Some(*piece),
            PieceAction::Remove => None,
            PieceAction::Replace(other) => Some(other),
            PieceAction::ChangeForm(form) => Some(Piece { form, ..*piece }),
        })
        .collect();
    drop_repeated_items(&mut after, session);
    let inserted = new.map(|(at, _)| at);
    drop_trailing_thinking(before, &mut after, inserted, session);
    let mut builder = LayoutChangeBuilder::default();
    // `last` is the last shown speaker, and `user_left` is true if user content after it was removed. Two responses
    // need a gap only in that case: without a removal they were already adjacent and belong together.
    let mut last = None;
    let mut user_left = false;
    for (index, (old, kept)) in before.iter().zip(after).enumerate() {
        if let Some((_, new)) = new.filter(|(at, _)| *at == index) {
            builder.insert(new);
            (last, user_left) = (Some(of(session, &new)), false);
        }
        let new = kept;
        let stays = new.is_some_and(|new| new.form.is_shown());
        user_left |= !stays && old.form.is_shown() && of(session, old) == Speaker::User;
        let Some(mut new) = new else {
            builder.remove();
            continue;
        };
        new.form = form_at_position(session, &new, last.is_none());
        if new.form.is_shown() {
            let speaker = of(session, &new);
            let synthetic = |form| Piece {
                message: new.message,
                block: 0,
                form,
            };
            match (last, speaker) {
                // Nothing of the user is left before this response, and providers require that the user begins.
                (None, Speaker::Assistant) => builder.insert(synthetic(PieceForm::Opening)),
                (Some(Speaker::Assistant), Speaker::Assistant) if user_left => {
                    builder.insert(synthetic(PieceForm::Gap));
                }
                _ => {}
            }
            // System pieces lead the view and do not count as speakers.
            if speaker != Speaker::System {
                last = Some(speaker);
            }
            user_left = false;
        }
        if new == *old {
            builder.keep();
        } else {
            builder.replace(new);
        }
    }
    // The loop inserts only before an existing piece, so an insertion at the end follows here.
    if let Some((_, new)) = new.filter(|(at, _)| *at == before.len()) {
        builder.insert(new);
    }
    Ok(builder.finish())
}

/// Sets `kept_tokens` of a change: the tokens before the first change, which a prompt cache can still use.
pub fn with_kept_tokens(mut change: LayoutChange, session: &Session) -> LayoutChange {
    // Without a change the whole view can still be used.
    let first = change.first().unwrap_or(usize::MAX);
    change.kept_tokens = session.tokens_of(|index, _| index < first);
    change
}

fn of(session: &Session, piece: &Piece) -> Speaker {
    speaker(piece, session.transcript())
}

/// Returns the form of a piece at its new position. System text leads the view until someone else speaks.
fn form_at_position(session: &Session, piece: &Piece, leads: bool) -> PieceForm {
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

/// Drops items whose ids an earlier item has. An undo can show an item again that was repeated after it had left.
fn drop_repeated_items(after: &mut [Option<Piece>], session: &Session) {
    let mut seen = HashSet::new();
    for piece in after.iter_mut().flatten() {
        let message = session.transcript().content(piece.message);
        let block = message.and_then(|message| message.blocks.get(usize::from(piece.block)));
        let id = message
            .zip(block)
            .filter(|_| piece.form == PieceForm::Block);
        let id = id.and_then(|(message, block)| item_id(message, block));
        if id.is_some_and(|id| !seen.insert(id)) {
            piece.form = PieceForm::Dropped(DropReason::RepeatedItem);
        }
    }
}

/// Drops thinking that lost the block after it because later blocks were removed. Providers reject such thinking.
///
/// The piece that is inserted before the index `inserted` is the user's.
fn drop_trailing_thinking(
    before: &[Piece],
    after: &mut [Option<Piece>],
    inserted: Option<usize>,
    session: &Session,
) {
    let transcript = session.transcript();
    // The list is visited backwards, because a dropped piece may make the piece before it the last of its message.
    let mut later = LaterBlocks::default();
    for (index, (old, new)) in before.iter().zip(after).enumerate().rev() {
        if inserted == Some(index + 1) {
            later = LaterBlocks::default();
        }
        let Some(piece) = new.as_mut().filter(|piece| piece.form.is_shown()) else {
            // Removed user content still ends the message before it: `repair_pieces` inserts a gap if one is needed.
            if old.form.is_shown() && of(session, old) == Speaker::User {
                later = LaterBlocks::default();
            }
            continue;
        };
        let thinks = piece.form == PieceForm::Block
            && transcript
                .block(piece.message, piece.block)
                .is_some_and(Block::is_thinking);
        if speaker(piece, transcript) != Speaker::Assistant {
            later = LaterBlocks::default();
        } else if !thinks {
            later.add(piece, transcript);
        } else if !later.follow(piece, transcript) {
            piece.form = PieceForm::Dropped(DropReason::TrailingThinking);
        }
    }
}
