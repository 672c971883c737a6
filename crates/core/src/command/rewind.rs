//! Later messages leave the view: regenerate, edit and resend, replace a half-streamed response.

use super::decision::{Decision, DecisionContext, answered, check_revision};
use super::reject::Rejection;
use crate::event::{Event, RequestStamp, SessionRewound, Visibility};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::levels::repair::{PieceAction, repair_layout};
use crate::session::{ContentNotLoaded, Session};
use crate::tokens::TokenLedger;
use crate::view::{LayoutChange, Piece, PieceForm};

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
        context: DecisionContext<'_>,
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
                    Some((_, Visibility::Rewound)) => return Err(Rejection::NotVisible { id }),
                    // A summary stands for it: it has to come back first.
                    Some((_, Visibility::Compacted | Visibility::Withdrawn)) => {
                        return Err(Rejection::NotVisible { id });
                    }
                    // The placeholder would tell of what has left.
                    Some((ordinal, Visibility::Collapsed)) if !ends_span(session, ordinal) => {
                        return Err(Rejection::NotVisible { id });
                    }
                    // So would the summary.
                    Some((ordinal, _)) if session.told_after(ordinal).next().is_some() => {
                        return Err(Rejection::NotVisible { id });
                    }
                    Some((ordinal, _)) => Some(ordinal),
                    None => return Err(Rejection::MessageNotFound { id }),
                }
            }
        };
        // What a compaction made stays with what it kept.
        let stays = |ordinal: Ordinal| {
            to.is_some_and(|last| ordinal <= last || session.is_framing(ordinal))
        };
        // With all that is in the view goes all that summaries in it tell of.
        let mut left: Vec<Ordinal> = transcript
            .entries()
            .rev()
            .take_while(|(ordinal, _)| to.is_none_or(|last| *ordinal > last))
            .filter(|(ordinal, entry)| entry.standing.holds() && !stays(*ordinal))
            .map(|(ordinal, _)| ordinal)
            .collect();
        left.reverse();
        if left.is_empty() && self.request.is_none() {
            return Ok(Decision::Events(Vec::new()));
        }
        let change = without_later(session, stays)?;
        let before_tokens = session.tokens().tokens;
        let sizes = left.iter().filter_map(|it| session.transcript().get(*it));
        let sizes = sizes.filter(|entry| entry.standing.takes_part());
        let sizes = sizes.map(|entry| u64::from(entry.size.tokens));
        Ok(Decision::Events(vec![Event::SessionRewound(
            SessionRewound {
                to,
                freed_tokens: sizes.sum::<u64>().min(before_tokens),
                left,
                before_tokens,
                ledger: ledger_without(session, stays)?,
                change,
                request: self.request,
            },
        )]))
    }
}

/// Whether a placeholder stands for nothing later than a message.
fn ends_span(session: &Session, message: Ordinal) -> bool {
    let placeholder = session.fold_of(message);
    placeholder.is_none_or(|one| one.span.last() == message)
}

/// The count of what stays. What stands before the end of the last response is still what the provider
/// measured, because a rewind takes away the end alone.
fn ledger_without(
    session: &Session,
    stays: impl Fn(Ordinal) -> bool,
) -> Result<TokenLedger, ContentNotLoaded> {
    let (epoch, window) = (session.sealed().epoch().next(), session.thresholds().window);
    let overhead = session.last_served().overhead_tokens;
    let mut ledger = session.ledger().rebased(session.tokens().tokens, overhead);
    // The usage of messages that a compaction kept measured the view before it.
    let boundaries = session.compactions().boundaries.iter().rev();
    let mut in_force = boundaries.filter(|boundary| {
        let summary = boundary.summary;
        summary.is_some_and(|summary| session.transcript().is_visible(summary))
    });
    let boundary = in_force.next().map(|boundary| boundary.mark);
    let staying = session
        .transcript()
        .entries()
        .filter(|(ordinal, entry)| stays(*ordinal) && entry.standing.takes_part());
    for (ordinal, entry) in staying {
        let is_before = boundary.is_some_and(|mark| ordinal < mark);
        if is_before || entry.standing == Visibility::Collapsed {
            ledger.follow(entry.counts_as(), entry.size);
            continue;
        }
        let message = session.transcript().held(ordinal)?;
        ledger.add(message, ordinal, entry.size, epoch, window);
    }
    // The session has learned from these responses before.
    ledger.calibration = session.ledger().calibration;
    Ok(ledger)
}

/// The pieces without those of later messages.
///
/// A result may stand before words that came earlier than it did. When the result leaves and the
/// words stay, its call can never be answered in its place, so an interruption takes that place.
fn without_later(
    session: &Session,
    stays: impl Fn(Ordinal) -> bool,
) -> Result<LayoutChange, ContentNotLoaded> {
    let pieces = session.sealed().pieces();
    let is_words = |piece: &Piece| {
        stays(piece.message) && piece.form.is_shown() && piece.form.answers().is_none()
    };
    let last_words = pieces.iter().rposition(is_words);
    repair_layout(session, |index, piece| {
        let of_call = piece.form.answers().and_then(|call| {
            let call = session.calls().get(call)?;
            Some(call.message)
        });
        // What stands for an answer goes with its call, whatever made it necessary.
        if !piece.form.is_of_a_block() && of_call.is_some_and(|message| !stays(message)) {
            return PieceAction::Leave;
        }
        if stays(piece.message) {
            return PieceAction::Stay;
        }
        let followed = last_words.is_some_and(|last| last > index);
        let interrupted = piece.form.answers().filter(|_| followed).and_then(|call| {
            let message = session.calls().get(call)?.message;
            stays(message).then_some(Piece {
                message,
                block: 0,
                form: PieceForm::Interrupted(call),
            })
        });
        interrupted.map_or(PieceAction::Leave, PieceAction::Yield)
    })
}
