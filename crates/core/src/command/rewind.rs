//! Rewind: removes later messages from the view, for example to regenerate or edit a message or to replace a partial
//! response.

use super::decision::Decided;
use super::reject::Rejection;
use crate::event::{Event, RequestStamp, SessionRewound, Visibility};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::levels::repair::{PieceAction, repair_layout};
use crate::session::{ContentNotLoaded, RewindPoint, Session};
use crate::tokens::TokenLedger;
use crate::view::{LayoutChange, Piece, PieceForm};

/// Removes later messages from the view. They stay in the transcript.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rewind {
    /// The last message that stays. `None` removes all messages.
    pub to: Option<MessageId>,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

impl Rewind {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        let transcript = session.transcript();
        let point = match self.to {
            None => None,
            Some(id) => {
                let found = transcript
                    .find(id)
                    .and_then(|ordinal| Some((ordinal, transcript.get(ordinal)?.visibility)));
                match found {
                    // An earlier rewind removed the message, or a summary replaces it. An undo must restore it first.
                    Some((
                        _,
                        visibility @ (Visibility::Rewound
                        | Visibility::Compacted
                        | Visibility::Withdrawn
                        | Visibility::Unconfirmed),
                    )) => {
                        return Err(Rejection::MessageNotVisible { id, visibility });
                    }
                    // The placeholder of its span would describe removed messages.
                    Some((ordinal, visibility @ Visibility::Collapsed))
                        if !ends_span(session, ordinal) =>
                    {
                        return Err(Rejection::MessageNotVisible { id, visibility });
                    }
                    Some((ordinal, _)) => {
                        let point = RewindPoint::new(session, ordinal);
                        // A summary of later messages would describe removed messages.
                        if point.summarized().next().is_some() {
                            let visibility = Visibility::Compacted;
                            return Err(Rejection::MessageNotVisible { id, visibility });
                        }
                        Some(point)
                    }
                    None => return Err(Rejection::MessageNotFound { id }),
                }
            }
        };
        let stays = |ordinal: Ordinal| point.as_ref().is_some_and(|point| point.stays(ordinal));
        // Messages that a placeholder or summary replaced are removed together with the visible ones. The application of
        // the event searches this list by binary search, so it is in ascending order.
        let all = || {
            let entries = transcript.entries();
            let in_effect = entries.filter(|(_, entry)| entry.visibility.is_in_effect());
            in_effect.map(|(ordinal, _)| ordinal).collect()
        };
        let removed: Vec<Ordinal> = point.as_ref().map_or_else(all, RewindPoint::leaving);
        // With a stamp, an event is written even without effect, so that a retry is recognized.
        if removed.is_empty() && self.request.is_none() {
            return Ok(Decided::events(Vec::new()));
        }
        let change = change_without_later(session, stays)?;
        let before_tokens = session.tokens().tokens;
        let sizes = removed
            .iter()
            .filter_map(|it| session.transcript().get(*it));
        let sizes = sizes.filter(|entry| entry.visibility.is_in_view());
        let sizes = sizes.map(|entry| u64::from(entry.size.tokens));
        Ok(Decided::events(vec![Event::SessionRewound(
            SessionRewound {
                to: point.as_ref().map(RewindPoint::to),
                // Sizes are estimates, so their sum can exceed the counted tokens.
                freed_tokens: sizes.sum::<u64>().min(before_tokens),
                removed,
                before_tokens,
                ledger: ledger_without(session, stays)?,
                change,
                request: self.request,
            },
        )]))
    }
}

/// Returns true if no placeholder covers both this message and a later one.
fn ends_span(session: &Session, message: Ordinal) -> bool {
    let placeholder = session.placeholder_of(message);
    placeholder.is_none_or(|one| one.span.last() == message)
}

/// Returns the ledger of the remaining messages. The provider's measurements up to the last remaining response are
/// still valid, because a rewind removes only the end.
fn ledger_without(
    session: &Session,
    stays: impl Fn(Ordinal) -> bool,
) -> Result<TokenLedger, ContentNotLoaded> {
    let (epoch, window) = (session.sealed().epoch().next(), session.thresholds().window);
    let overhead = session.last_served().overhead_tokens;
    let mut ledger = session
        .ledger()
        .reset_for_view(session.tokens().tokens, overhead);
    // Messages before the boundary report usage for the view before the compaction, so they count as estimates.
    let boundaries = session.compactions().boundaries.iter().rev();
    let mut in_force = boundaries.filter(|boundary| {
        let summary = boundary.summary;
        summary.is_some_and(|summary| session.transcript().is_in_view(summary))
    });
    let boundary = in_force.next().map(|boundary| boundary.message);
    let staying = session
        .transcript()
        .entries()
        .filter(|(ordinal, entry)| stays(*ordinal) && entry.visibility.is_in_view());
    for (ordinal, entry) in staying {
        let is_before = boundary.is_some_and(|mark| ordinal < mark);
        if is_before || entry.visibility == Visibility::Collapsed {
            ledger.add_estimated(entry.counts_as(), entry.size);
            continue;
        }
        let message = session.transcript().require_content(ordinal)?;
        ledger.add(message, ordinal, entry.size, epoch, window);
    }
    // These responses were used for calibration when they were appended.
    ledger.calibration = session.ledger().calibration;
    Ok(ledger)
}

/// Returns the layout change that removes the pieces of later messages.
///
/// In the layout a result can precede text that arrived earlier. If the result leaves and the text stays, its call
/// can no longer be answered in place, so an interruption replaces the result.
fn change_without_later(
    session: &Session,
    stays: impl Fn(Ordinal) -> bool,
) -> Result<LayoutChange, ContentNotLoaded> {
    let pieces = session.sealed().pieces();
    let is_words = |piece: &Piece| {
        stays(piece.message) && piece.form.is_shown() && piece.form.answered_call_key().is_none()
    };
    let last_words = pieces.iter().rposition(is_words);
    repair_layout(session, |index, piece| {
        let of_call = piece.form.answered_call_key().and_then(|call| {
            let call = session.calls().get(call)?;
            Some(call.message)
        });
        // A synthetic answer leaves together with its call.
        if !piece.form.represents_block() && of_call.is_some_and(|message| !stays(message)) {
            return PieceAction::Remove;
        }
        if stays(piece.message) {
            return PieceAction::Keep;
        }
        let followed = last_words.is_some_and(|last| last > index);
        let interrupted = piece
            .form
            .answered_call_key()
            .filter(|_| followed)
            .and_then(|call| {
                let message = session.calls().get(call)?.message;
                stays(message).then_some(Piece {
                    message,
                    block: 0,
                    form: PieceForm::Interrupted(call),
                })
            });
        interrupted.map_or(PieceAction::Remove, PieceAction::Replace)
    })
}
