//! The end of a view: who spoke last, and which calls still wait for their results.

use super::{Form, Piece};
use crate::ids::CallKey;
use crate::message::Role;
use crate::session::Transcript;

/// Whose turn a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
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
    pub last: Option<Side>,
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
                Side::System => break,
                Side::User if in_assistant => break,
                Side::User => {
                    tail.last.get_or_insert(Side::User);
                    answered.extend(piece.form.answers());
                }
                Side::Assistant => {
                    in_assistant = true;
                    tail.last.get_or_insert(Side::Assistant);
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
pub(crate) fn side(piece: &Piece, transcript: &Transcript) -> Side {
    match piece.form {
        Form::Interrupted(_)
        | Form::Opening
        | Form::Gap
        | Form::Tag(_)
        | Form::Nudge
        | Form::Summary
        | Form::Placeholder(_)
        | Form::Operator
        | Form::Input { .. }
        | Form::Result(_)
        | Form::ResultWithoutMedia(_)
        | Form::Stored(_)
        | Form::Cleared(_)
        | Form::SnippedResult(_)
        | Form::Text(_) => Side::User,
        Form::Call(_) | Form::SnippedCall(_) => Side::Assistant,
        Form::Block | Form::Marker(_) | Form::Dropped(_) => match transcript.role(piece.message) {
            Role::User => Side::User,
            Role::Assistant => Side::Assistant,
            Role::System | Role::Developer => Side::System,
        },
    }
}
