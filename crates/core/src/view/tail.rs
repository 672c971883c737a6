//! The end of a view: the last speaker and the open calls.

use super::{Piece, PieceForm};
use crate::ids::CallKey;
use crate::message::Role;
use crate::session::Transcript;

/// The author of a piece: the operator, the user or the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The operator, at the start of the view.
    System,
    /// The user and the tool results.
    User,
    /// The model.
    Assistant,
}

/// The state at the end of a view that its continuation depends on. Only the last two messages are read, so the cost
/// does not depend on the length of the view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewTail {
    /// The last speaker. `None` if the view contains only system messages or nothing.
    pub last: Option<Speaker>,
    /// The calls of the last assistant message without a result, in order.
    pub open_calls: Vec<CallKey>,
}

impl ViewTail {
    /// Determines the end of a list of pieces.
    pub fn of(pieces: &[Piece], transcript: &Transcript) -> Self {
        let mut tail = Self::default();
        let mut answered = Vec::new();
        let mut in_assistant = false;
        // A provider requires results directly after the message with their calls. Only the last such message can have
        // open calls.
        for piece in pieces.iter().rev().filter(|piece| piece.form.is_shown()) {
            match speaker(piece, transcript) {
                Speaker::System => break,
                Speaker::User if in_assistant => break,
                Speaker::User => {
                    tail.last.get_or_insert(Speaker::User);
                    answered.extend(piece.form.answered_call_key());
                }
                Speaker::Assistant => {
                    in_assistant = true;
                    tail.last.get_or_insert(Speaker::Assistant);
                    if let Some(call) = piece.form.call_key()
                        // The pieces are visited backwards, so the results of a call are known before the call.
                        && !answered.contains(&call)
                    {
                        tail.open_calls.push(call);
                    }
                }
            }
        }
        tail.open_calls.reverse();
        tail
    }
}

/// Returns the speaker of a piece.
pub(crate) fn speaker(piece: &Piece, transcript: &Transcript) -> Speaker {
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
