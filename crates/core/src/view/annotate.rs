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
    // An id that the model cannot use is noise.
    let tags_turns = policy.tag_turns && offers_snip.unwrap_or_else(|| tags_without_word(session));
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

/// Decides about the ids of turns if the call does not tell which tools the model has. A caller that sends whole arrays
/// tells its tools with some of them, so the last user input decides. All other callers ask for the tools.
fn tags_without_word(session: &Session) -> bool {
    if session.array().is_empty() {
        return true;
    }
    let pieces = || session.sealed().pieces().iter().rev();
    let is_input = |piece: &&Piece| session.turns().beginning_at(piece.message).is_some();
    let last = pieces().find(is_input).map(|piece| piece.message);
    let of_last = pieces().filter(|piece| Some(piece.message) == last);
    let mut forms = of_last.map(|piece| piece.form);
    forms.any(|form| {
        matches!(
            form,
            PieceForm::Input { turn: Some(_), .. } | PieceForm::Tag(_)
        )
    })
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
