//! Later messages leave the view: regenerate, edit and resend, replace a half-streamed response.

use super::{Context, Decision, Rejection, answered, check_revision};
use crate::event::{Event, LayoutChange, Rewound};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::Block;
use crate::session::{RequestStamp, Session, Standing};
use crate::view::{DropReason, Form, Piece, Side, side};

/// Take later messages out of the view. They stay in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rewind {
    /// The last message that stays; all leave when there is none.
    pub to: Option<MessageId>,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

impl Rewind {
    pub(super) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        let transcript = session.transcript();
        // The view is counted and mended from its messages.
        if !transcript.is_whole() {
            return Err(Rejection::NotHeld);
        }
        let to = match self.to {
            None => None,
            Some(id) => {
                let found = transcript
                    .find(id)
                    .and_then(|ordinal| Some((ordinal, transcript.get(ordinal)?.standing)));
                match found {
                    Some((_, Standing::Rewound)) => return Err(Rejection::NotVisible { id }),
                    Some((ordinal, _)) => Some(ordinal),
                    None => return Err(Rejection::NoSuchMessage { id }),
                }
            }
        };
        let stays = |ordinal: Ordinal| to.is_some_and(|last| ordinal <= last);
        let mut left: Vec<Ordinal> = transcript
            .entries()
            .rev()
            .take_while(|(ordinal, _)| !stays(*ordinal))
            .filter(|(_, entry)| entry.standing == Standing::Visible)
            .map(|(ordinal, _)| ordinal)
            .collect();
        left.reverse();
        if left.is_empty() && self.request.is_none() {
            return Ok(Decision::Events(Vec::new()));
        }
        let change = without_later(session, stays);
        Ok(Decision::Events(vec![Event::Rewound(Rewound {
            to,
            left,
            before_tokens: session.tokens().tokens,
            change,
            request: self.request,
        })]))
    }
}

/// The pieces without those of later messages.
///
/// A result may stand before words that came earlier than it did. When the result leaves and the
/// words stay, its call can never be answered in its place, so an interruption takes that place.
fn without_later(session: &Session, stays: impl Fn(Ordinal) -> bool) -> LayoutChange {
    let pieces = session.sealed().pieces();
    let is_words = |piece: &Piece| {
        stays(piece.message) && piece.form.is_shown() && piece.form.answers().is_none()
    };
    let last_words = pieces.iter().rposition(is_words);
    let stands_in = |(index, piece): (usize, &Piece)| {
        if stays(piece.message) {
            return Some(*piece);
        }
        let call = piece.form.answers()?;
        let message = session.calls().get(call)?.message;
        let followed = last_words.is_some_and(|last| last > index);
        (stays(message) && followed).then_some(Piece {
            message,
            block: 0,
            form: Form::Interrupted(call),
        })
    };
    let mut left: Vec<Piece> = pieces.iter().enumerate().filter_map(stands_in).collect();
    drop_trailing_thinking(&mut left, session);
    LayoutChange::between(pieces, &left)
}

/// Thinking that stood before what left may now end its message, which providers refuse.
fn drop_trailing_thinking(pieces: &mut [Piece], session: &Session) {
    let transcript = session.transcript();
    let mut ends = true;
    for piece in pieces
        .iter_mut()
        .rev()
        .filter(|piece| piece.form.is_shown())
    {
        let thinks = piece.form == Form::Block
            && transcript
                .content(piece.message)
                .and_then(|message| message.blocks.get(usize::from(piece.block)))
                .is_some_and(Block::is_thinking);
        if thinks && ends {
            piece.form = Form::Dropped(DropReason::TrailingThinking);
        } else {
            ends = side(piece, transcript) != Side::Assistant;
        }
    }
}
