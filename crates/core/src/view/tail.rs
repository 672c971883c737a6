//! The end of a view: who spoke last, and which calls still wait for their results.

use super::{Piece, PieceForm};
use crate::ids::CallKey;
use crate::message::Role;
use crate::session::Transcript;

/// Whose turn a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The operator, before anyone else has spoken.
    System,
    /// The user and the tools.
    User,
    /// The model.
    Assistant,
}

/// What a continuation has to know about the end of a view. It is found by walking back over the
/// last two messages, so its cost does not depend on how long the view is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tail {
    /// Who spoke last; `None` as long as only the operator has.
    pub last: Option<Speaker>,
    /// The calls of the last assistant message that have no result yet, in order.
    pub open: Vec<CallKey>,
}

impl Tail {
    /// Reads the end of a list of pieces.
    pub fn of(pieces: &[Piece], transcript: &Transcript) -> Self {
        let mut tail = Self::default();
        let mut answered = Vec::new();
        let mut in_assistant = false;
        for piece in pieces.iter().rev().filter(|piece| piece.form.is_shown()) {
            match side(piece, transcript) {
                Speaker::System => break,
                Speaker::User if in_assistant => break,
                Speaker::User => {
                    tail.last.get_or_insert(Speaker::User);
                    answered.extend(piece.form.answers());
                }
                Speaker::Assistant => {
                    in_assistant = true;
                    tail.last.get_or_insert(Speaker::Assistant);
                    if let Some(call) = piece.form.calls()
                        && !answered.contains(&call)
                    {
                        tail.open.push(call);
                    }
                }
            }
        }
        tail.open.reverse();
        tail
    }
}

/// Whose turn a piece belongs to.
pub(crate) fn side(piece: &Piece, transcript: &Transcript) -> Speaker {
    match piece.form {
        PieceForm::Interrupted(_)
        | PieceForm::Opening
        | PieceForm::Gap
        | PieceForm::Tag(_)
        | PieceForm::Nudge
        | PieceForm::Summary
        | PieceForm::Placeholder(_)
        | PieceForm::Operator
        | PieceForm::Input { .. }
        | PieceForm::Result(_)
        | PieceForm::ResultWithoutMedia(_)
        | PieceForm::Stored(_)
        | PieceForm::Cleared(_)
        | PieceForm::SnippedResult(_)
        | PieceForm::Text(_) => Speaker::User,
        PieceForm::Call(_) | PieceForm::SnippedCall(_) => Speaker::Assistant,
        PieceForm::Block | PieceForm::Marker(_) | PieceForm::Dropped(_) => {
            match transcript.role(piece.message) {
                Role::User => Speaker::User,
                Role::Assistant => Speaker::Assistant,
                Role::System | Role::Developer => Speaker::System,
            }
        }
    }
}
