//! The rounds of a view that may fold: whole, answered, old, and with nothing of a person's in them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::ids::Ordinal;
use crate::message::{MessageKind, Role};
use crate::session::Session;
use crate::view::{Piece, PieceForm, Speaker, side};

/// What the model said at once, and what its tools answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// Its pieces.
    pub(super) pieces: Range<usize>,
    /// Its messages, in order; never empty.
    pub(super) messages: Vec<Ordinal>,
}

impl Round {
    /// What it has as it is shown, by the estimate.
    pub(super) fn tokens(&self, session: &Session) -> u32 {
        let size = |message: &Ordinal| {
            let entry = session.transcript().get(*message);
            entry.map_or(0, |entry| entry.size.tokens)
        };
        self.messages.iter().map(size).fold(0, u32::saturating_add)
    }
}

/// What a piece is to a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PieceRole {
    /// The model speaks.
    Model,
    /// Its tools answer, or the machine says something.
    Answer,
    /// No round goes past it.
    Wall,
}

/// The rounds that may fold, neighbours together, before the turn that is going on.
pub(super) fn runs(session: &Session) -> Vec<Vec<Round>> {
    let current = session.current_turn();
    let Some(end) = current.and_then(|turn| session.turns().start(turn)) else {
        return Vec::new();
    };
    let pieces = session.sealed().pieces();
    let whole = Whole::of(session);
    let (mut runs, mut run) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < pieces.len() {
        let to = round_from(session, pieces, at, end);
        let round = whole.round(pieces, at..to);
        let round = round.filter(|_| to > at && stands_alone(session, pieces, at..to));
        if let Some(round) = round {
            run.push(round);
        } else if !run.is_empty() {
            runs.push(std::mem::take(&mut run));
        }
        at = to.max(at + 1);
    }
    if !run.is_empty() {
        runs.push(run);
    }
    runs
}

/// Where the round ends that begins at a piece; there itself when none does.
fn round_from(session: &Session, pieces: &[Piece], from: usize, end: Ordinal) -> usize {
    let part = |piece: &Piece| part(session, piece, end);
    let says = |of: PieceRole| move |piece: &&Piece| part(piece) == of;
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

/// Whether a wire message of the model's begins with a round, and all that answers it is in the round.
/// What is not shown keeps nothing apart.
fn stands_alone(session: &Session, pieces: &[Piece], range: Range<usize>) -> bool {
    let shown = |piece: &&Piece| piece.form.is_shown();
    let before = pieces[..range.start].iter().rev().find(shown);
    let after = pieces[range.end..].iter().find(shown);
    before.is_none_or(|piece| side(piece, session.transcript()) != Speaker::Assistant)
        && after.is_none_or(|piece| piece.form.answers().is_none())
}

fn part(session: &Session, piece: &Piece, end: Ordinal) -> PieceRole {
    // It stands where a result would, whatever came that made it necessary.
    if matches!(piece.form, PieceForm::Interrupted(_)) {
        return PieceRole::Answer;
    }
    let Some(entry) = session.transcript().get(piece.message) else {
        return PieceRole::Wall;
    };
    let is_of_the_work = entry.kind == MessageKind::Ordinary
        && !entry.role.is_system()
        && piece.message < end
        && session.pins().within(piece.message).is_none()
        && session.turns().beginning_at(piece.message).is_none();
    if !is_of_the_work {
        return PieceRole::Wall;
    }
    match piece.form {
        PieceForm::Opening
        | PieceForm::Operator
        | PieceForm::Input { .. }
        | PieceForm::Tag(_)
        | PieceForm::Text(_)
        | PieceForm::Placeholder(_) => PieceRole::Wall,
        PieceForm::Gap | PieceForm::Nudge => PieceRole::Answer,
        _ if entry.role == Role::Assistant => PieceRole::Model,
        _ => PieceRole::Answer,
    }
}

/// How many pieces each message has in all, so that no message is cut.
struct Whole {
    pieces: HashMap<Ordinal, usize>,
    waiting: HashSet<Ordinal>,
}

impl Whole {
    fn of(session: &Session) -> Self {
        let mut pieces = HashMap::new();
        for piece in session
            .sealed()
            .pieces()
            .iter()
            .filter(|piece| piece.form.is_of_a_block())
        {
            *pieces.entry(piece.message).or_default() += 1;
        }
        Self {
            pieces,
            waiting: session.pending().iter().map(|item| item.message).collect(),
        }
    }

    /// The round that some pieces make: with calls, each answered within it, and no message cut.
    fn round(&self, pieces: &[Piece], range: Range<usize>) -> Option<Round> {
        let inside = &pieces[range.clone()];
        let calls: HashSet<_> = inside
            .iter()
            .filter_map(|piece| piece.form.calls())
            .collect();
        let answers: HashSet<_> = inside
            .iter()
            .filter_map(|piece| piece.form.answers())
            .collect();
        if calls.is_empty() || calls != answers {
            return None;
        }
        let mut own: HashMap<Ordinal, usize> = HashMap::new();
        for piece in inside.iter().filter(|piece| piece.form.is_of_a_block()) {
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
