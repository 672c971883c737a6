//! Finds the rounds of a view that may be collapsed: complete, answered, old and without user input.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::ids::Ordinal;
use crate::message::{MessageKind, Role};
use crate::session::Session;
use crate::view::{Piece, PieceForm, Speaker, speaker};

/// One model response and the tool results that answer its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// The range of its pieces in the view.
    pub(super) pieces: Range<usize>,
    /// Its messages in ascending order. Never empty.
    pub(super) messages: Vec<Ordinal>,
}

impl Round {
    /// Returns the estimated tokens of the round in its current form.
    pub(super) fn tokens(&self, session: &Session) -> u32 {
        let size = |message: &Ordinal| {
            let entry = session.transcript().get(*message);
            entry.map_or(0, |entry| entry.size.tokens)
        };
        self.messages.iter().map(size).fold(0, u32::saturating_add)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PieceRole {
    /// Content of the model.
    Model,
    /// A tool result or a text of the service.
    Answer,
    /// Content that no round may include.
    Barrier,
}

/// Returns the rounds before the current user turn that may be collapsed. Adjacent rounds form one run.
pub(super) fn runs(session: &Session) -> Vec<Vec<Round>> {
    let current = session.current_turn();
    let Some(end) = current.and_then(|turn| session.turns().start(turn)) else {
        return Vec::new();
    };
    let pieces = session.sealed().pieces();
    // Counts of pieces are computed once, because every candidate range is compared with them.
    let whole = PieceCounts::of(session);
    let (mut runs, mut run) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < pieces.len() {
        // A range that is no collapsible round ends the current run, so that spans never cross it.
        let to = round_end(session, pieces, at, end);
        let round = whole.round(pieces, at..to);
        let round = round.filter(|_| to > at && is_standalone(session, pieces, at..to));
        if let Some(round) = round {
            run.push(round);
        } else if !run.is_empty() {
            runs.push(std::mem::take(&mut run));
        }
        // If no round begins here, `to` equals `at`. The walk then skips one piece.
        at = to.max(at + 1);
    }
    if !run.is_empty() {
        runs.push(run);
    }
    runs
}

/// Returns the index after the round that begins at `from`. Returns `from` if no round begins there.
fn round_end(session: &Session, pieces: &[Piece], from: usize, end: Ordinal) -> usize {
    let role_of = |piece: &Piece| piece_role(session, piece, end);
    let says = |of: PieceRole| move |piece: &&Piece| role_of(piece) == of;
    let spoken = pieces[from..]
        .iter()
        .take_while(says(PieceRole::Model))
        .count();
    if spoken == 0 {
        return from;
    }
    let answers = pieces[from + spoken..].iter();
    from + spoken + answers.take_while(says(PieceRole::Answer)).count()
}

/// Returns true if the round begins a wire message of the model and no result after the round answers it. Pieces that
/// are not shown are ignored.
fn is_standalone(session: &Session, pieces: &[Piece], range: Range<usize>) -> bool {
    let shown = |piece: &&Piece| piece.form.is_shown();
    let before = pieces[..range.start].iter().rev().find(shown);
    let after = pieces[range.end..].iter().find(shown);
    before.is_none_or(|piece| speaker(piece, session.transcript()) != Speaker::Assistant)
        && after.is_none_or(|piece| piece.form.answered_call_key().is_none())
}

fn piece_role(session: &Session, piece: &Piece, end: Ordinal) -> PieceRole {
    // The piece takes the place of a result, even if its message belongs to a later turn.
    if matches!(piece.form, PieceForm::Interrupted(_)) {
        return PieceRole::Answer;
    }
    let Some(entry) = session.transcript().get(piece.message) else {
        return PieceRole::Barrier;
    };
    let is_of_the_work = entry.kind == MessageKind::Ordinary
        && !entry.role.is_system()
        && piece.message < end
        && session.pins().pin_of_message(piece.message).is_none()
        && session.turns().beginning_at(piece.message).is_none();
    if !is_of_the_work {
        return PieceRole::Barrier;
    }
    match piece.form {
        PieceForm::Opening
        | PieceForm::Operator
        | PieceForm::Input { .. }
        | PieceForm::Tag(_)
        | PieceForm::Text(_)
        | PieceForm::Placeholder(_) => PieceRole::Barrier,
        // These texts belong to the work around them and leave with it.
        PieceForm::Gap | PieceForm::Nudge => PieceRole::Answer,
        _ if entry.role == Role::Assistant => PieceRole::Model,
        _ => PieceRole::Answer,
    }
}

/// The number of pieces of each message. A round must contain all pieces of its messages.
struct PieceCounts {
    pieces: HashMap<Ordinal, usize>,
    waiting: HashSet<Ordinal>,
}

impl PieceCounts {
    fn of(session: &Session) -> Self {
        let mut pieces = HashMap::new();
        for piece in session
            .sealed()
            .pieces()
            .iter()
            .filter(|piece| piece.form.represents_block())
        {
            *pieces.entry(piece.message).or_default() += 1;
        }
        Self {
            pieces,
            waiting: session.pending().iter().map(|item| item.message).collect(),
        }
    }

    /// Returns the round of some pieces. `None` without calls, with an unanswered call, or with an incomplete message.
    fn round(&self, pieces: &[Piece], range: Range<usize>) -> Option<Round> {
        let inside = &pieces[range.clone()];
        // A result without its call, or a call without its result, would make the view invalid.
        let calls: HashSet<_> = inside
            .iter()
            .filter_map(|piece| piece.form.call_key())
            .collect();
        let answers: HashSet<_> = inside
            .iter()
            .filter_map(|piece| piece.form.answered_call_key())
            .collect();
        if calls.is_empty() || calls != answers {
            return None;
        }
        let mut own: HashMap<Ordinal, usize> = HashMap::new();
        for piece in inside.iter().filter(|piece| piece.form.represents_block()) {
            *own.entry(piece.message).or_default() += 1;
        }
        let is_whole = own.iter().all(|(message, count)| {
            self.pieces.get(message) == Some(count) && !self.waiting.contains(message)
        });
        let mut messages: Vec<Ordinal> = own.into_keys().collect();
        messages.sort_unstable();
        is_whole.then_some(Round {
            pieces: range,
            messages,
        })
    }
}
