//! Later messages leave the view: regenerate, edit and resend, replace a half-streamed response.

use super::{Context, Decision, Rejection, answered, check_revision};
use crate::event::{Event, LayoutChange, Rewound};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::session::{RequestStamp, Session, Standing};
use crate::view::{Piece, count};

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
        let to = match self.to {
            None => None,
            Some(id) => {
                let found = transcript
                    .find(id)
                    .and_then(|ordinal| Some((ordinal, transcript.get(ordinal)?.standing)));
                match found {
                    Some((ordinal, Standing::Visible)) => Some(ordinal),
                    Some(_) => {
                        return Err(Rejection::invalid(
                            "to_message_id",
                            "names a message that is not in the view: name one that is",
                        ));
                    }
                    None => return Err(Rejection::NoSuchMessage { id }),
                }
            }
        };
        let stays = |ordinal: Ordinal| to.is_some_and(|last| ordinal <= last);
        let leaves = transcript
            .entries()
            .rev()
            .take_while(|(ordinal, _)| !stays(*ordinal))
            .any(|(_, entry)| entry.standing == Standing::Visible);
        if !leaves && self.request.is_none() {
            return Ok(Decision::Events(Vec::new()));
        }
        let change = without_later(session.sealed().pieces(), stays);
        Ok(Decision::Events(vec![Event::Rewound(Rewound {
            to,
            change,
            request: self.request,
        })]))
    }
}

/// The pieces without those of later messages.
fn without_later(pieces: &[Piece], stays: impl Fn(Ordinal) -> bool) -> LayoutChange {
    let keep = pieces
        .iter()
        .position(|piece| !stays(piece.message))
        .unwrap_or(pieces.len());
    let rest = pieces[keep..].iter().filter(|piece| stays(piece.message));
    LayoutChange {
        keep: count(keep),
        then: rest.copied().collect(),
    }
}
