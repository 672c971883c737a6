//! Adds information to user input. The id of the user turn is appended, so that a model can snip the turn. Input that
//! arrived while the model was working is wrapped in a reminder.

use super::{Piece, PieceForm};
use crate::ids::{Ordinal, TurnNumber};
use crate::message::Block;
use crate::session::Session;

/// Updates the user input among the pieces from index `from`. `at_work` is true if the model was working before them, and
/// `offers_snip` if it has the tool to snip turns.
pub(super) fn annotate_user_input(
    pieces: &mut Vec<Piece>,
    from: usize,
    session: &Session,
    (at_work, offers_snip): (bool, Option<bool>),
) {
    let policy = &session.policy().snip;
    let interjected = at_work && policy.wrap_interjections;
    if !policy.tag_turns && !interjected {
        return;
    }
    let mut inputs: Vec<(Ordinal, TurnNumber)> = Vec::new();
    // A message may have several pieces, but its turn is tagged once.
    for piece in &pieces[from..] {
        let begins = session.turns().beginning_at(piece.message);
        if let Some(turn) = begins
            && inputs
                .last()
                .is_none_or(|(message, _)| *message != piece.message)
        {
            inputs.push((piece.message, turn));
        }
    }
    if inputs.is_empty() {
        return;
    }
    let tags_turns = shows_turn_ids(session, offers_snip);
    // The reminder is applied first, because the tag keeps the `interjected` flag of the text to which it is appended.
    for (message, turn) in inputs {
        let is_words = |piece: &Piece| {
            piece.message == message && piece.form == PieceForm::Block && is_text(session, piece)
        };
        if interjected {
            for piece in pieces[from..].iter_mut().filter(|piece| is_words(piece)) {
                piece.form = PieceForm::Input {
                    turn: None,
                    interjected,
                };
            }
        }
        if tags_turns && let Some(tag) = append_turn_tag(pieces, from, message, turn, session) {
            insert_after(pieces, from, tag);
        }
    }
}

/// Returns true if new user inputs get the ids of their turns: the model has the tool that needs them. If the call names
/// no tools, new inputs get ids if the last input has one.
pub(crate) fn shows_turn_ids(session: &Session, offers_snip: Option<bool>) -> bool {
    let shows = || offers_snip.or_else(|| last_input_has_id(session));
    session.policy().snip.tag_turns && shows().unwrap_or(false)
}

/// Returns true if the last user input in the view has the id of its turn. `None` if the view has no user input.
pub(crate) fn last_input_has_id(session: &Session) -> Option<bool> {
    // Only a text or a separate piece can have an id. A removed text says nothing.
    let pieces = session.sealed().pieces().iter().rev();
    let mut inputs = pieces.filter_map(|piece| {
        let has_id = match piece.form {
            PieceForm::Tag(_) => true,
            PieceForm::Input { turn, .. } => turn.is_some(),
            PieceForm::Block if is_text(session, piece) => false,
            _ => return None,
        };
        let begins = session.turns().beginning_at(piece.message).is_some();
        begins.then_some((piece.message, has_id))
    });
    let (last, has_id) = inputs.next()?;
    let mut of_last = inputs.take_while(|(message, _)| *message == last);
    Some(has_id || of_last.any(|(_, has_id)| has_id))
}

/// Appends the id of a turn to the last text of its input. If the input has no text, returns a separate piece that
/// belongs after the input.
fn append_turn_tag(
    pieces: &mut [Piece],
    from: usize,
    message: Ordinal,
    turn: TurnNumber,
    session: &Session,
) -> Option<Piece> {
    let is_words = |piece: &&mut Piece| {
        let dressed = matches!(piece.form, PieceForm::Block | PieceForm::Input { .. });
        piece.message == message && dressed && is_text(session, piece)
    };
    // The id follows the last text, because it marks the end of the input.
    match pieces[from..].iter_mut().rev().find(is_words) {
        Some(words) => {
            let interjected = matches!(
                words.form,
                PieceForm::Input {
                    interjected: true,
                    ..
                }
            );
            words.form = PieceForm::Input {
                turn: Some(turn),
                interjected,
            };
            None
        }
        None => Some(Piece {
            message,
            block: 0,
            form: PieceForm::Tag(turn),
        }),
    }
}

fn insert_after(pieces: &mut Vec<Piece>, from: usize, tag: Piece) {
    let of_input = |piece: &Piece| piece.message == tag.message;
    if let Some(last) = pieces[from..].iter().rposition(of_input) {
        pieces.insert(from + last + 1, tag);
    }
}

fn is_text(session: &Session, piece: &Piece) -> bool {
    let block = session.transcript().block(piece.message, piece.block);
    matches!(block, Some(Block::Text { .. }))
}
