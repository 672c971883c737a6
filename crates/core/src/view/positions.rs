//! Maps the pieces of a view to positions in the array of a target.
//!
//! Positions are counted from the end if the length of the array is known. Callers nearly always need recent positions,
//! so the cost does not depend on the length of the view.

use std::collections::{BTreeMap, BTreeSet};

use super::etag::whole_groups;
use super::system_messages::{ShownPiece, separate, with_system_messages};
use super::tail::{Speaker, speaker};
use super::wire::{GroupKey, Renderer};
use super::{Piece, Target, WireBlock, WireRole};
use crate::ids::Ordinal;
use crate::session::{ContentNotLoaded, Session};

/// The position of a message of an array, or of a block in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewPosition {
    /// The index of the message.
    pub message: u32,
    /// The index of the block. `None` names all blocks.
    pub block: Option<u32>,
}

/// A piece that a target sees, with its position.
pub(super) struct PositionedPiece<'a> {
    /// The index of the piece in the view.
    pub(super) index: usize,
    /// The index in the array of the message that contains the piece.
    pub(super) message: u32,
    /// The role of that message.
    pub(super) role: WireRole,
    /// The block in the form that the target sees.
    pub(super) block: WireBlock<'a>,
}

/// Iterates over the pieces in a target's array, from last to first.
pub(super) struct ReversePieces<'a, 't> {
    render: Renderer<'a, 't>,
    target: &'t Target,
    /// The pieces that are not rendered yet.
    pieces: &'a [Piece],
    /// Rendered pieces in the order of the array. Only for a target with system messages, whose order can differ.
    turn: Vec<ShownPiece<'a>>,
    /// The array index of the message of the last returned piece. Initially the length of the array.
    message: u32,
    last_key: Option<GroupKey>,
}

impl<'a, 't> ReversePieces<'a, 't> {
    /// Creates an iterator over some pieces that form `length` messages.
    fn new(session: &'a Session, pieces: &'a [Piece], target: &'t Target, length: u32) -> Self {
        Self {
            render: Renderer::new(session, target),
            target,
            pieces,
            turn: Vec::new(),
            message: length,
            last_key: None,
        }
    }

    /// Creates an iterator over all sealed pieces.
    pub(super) fn of(session: &'a Session, target: &'t Target, length: u32) -> Self {
        Self::new(session, session.sealed().pieces(), target, length)
    }

    pub(super) fn next(&mut self) -> Result<Option<PositionedPiece<'a>>, ContentNotLoaded> {
        let shown = if self.target.takes_system_messages() {
            self.next_of_turn()?
        } else {
            self.next_shown()?
        };
        let Some(ShownPiece { index, key, block }) = shown else {
            return Ok(None);
        };
        if self.last_key != Some(key) {
            // The count starts at the length, so the last message of the array gets the last index.
            self.message = self.message.saturating_sub(1);
            self.last_key = Some(key);
        }
        Ok(Some(PositionedPiece {
            index,
            message: self.message,
            role: key.role,
            block,
        }))
    }

    /// Renders the last piece that is not rendered yet.
    fn next_shown(&mut self) -> Result<Option<ShownPiece<'a>>, ContentNotLoaded> {
        while let Some((piece, before)) = self.pieces.split_last() {
            self.pieces = before;
            let Some((key, block)) = self.render.piece(piece)? else {
                continue;
            };
            if self.target.sends_separately(key.role) {
                // System pieces lead the view and are outside the array, so the array begins here.
                break;
            }
            let index = before.len();
            return Ok(Some(ShownPiece { index, key, block }));
        }
        self.pieces = &[];
        Ok(None)
    }

    /// Returns the last piece of the current turn. Renders the whole turn before if it is a new one.
    fn next_of_turn(&mut self) -> Result<Option<ShownPiece<'a>>, ContentNotLoaded> {
        if let Some(shown) = self.turn.pop() {
            return Ok(Some(shown));
        }
        let all = self.pieces;
        while let Some(shown) = self.next_shown()? {
            if self.turn.last().is_some_and(|last| last.key != shown.key) {
                // The piece belongs to the turn before, which is rendered later.
                self.pieces = &all[..=shown.index];
                break;
            }
            self.turn.push(shown);
        }
        // The pieces were collected backwards. `separate` needs the order of the array, and `pop` then takes from its
        // end.
        self.turn.reverse();
        separate(&self.render, all, &mut self.turn, 0)?;
        Ok(self.turn.pop())
    }

    /// Returns true if a piece at or after this index may follow.
    fn may_reach(&self, index: usize) -> bool {
        self.pieces.len() > index || self.turn.iter().any(|shown| shown.index >= index)
    }
}

impl Session {
    /// Returns the number of leading messages, in an array of `length` messages, that consist of the first `pieces`
    /// pieces alone. Only the pieces after them are read.
    pub fn message_count_before(
        &self,
        pieces: usize,
        target: &Target,
        length: u32,
    ) -> Result<u32, ContentNotLoaded> {
        // The system messages of a turn can follow later pieces of it, so the turn counts as a whole.
        let pieces = if target.takes_system_messages() {
            whole_groups(self, pieces, target)?
        } else {
            pieces
        };
        let mut walk = ReversePieces::of(self, target, length);
        // If no later piece is visible, all messages consist of the first `pieces` pieces alone.
        let mut before = length;
        // The first visible piece at or after `pieces` determines the first message that is not kept.
        while walk.may_reach(pieces) {
            match walk.next()? {
                Some(seen) if seen.index >= pieces => before = seen.message,
                Some(_) => {}
                None => break,
            }
        }
        Ok(before)
    }
}

/// Returns the index of a piece among the blocks of its message.
pub(super) fn position_in_message(
    session: &Session,
    index: usize,
    target: &Target,
) -> Result<u32, ContentNotLoaded> {
    let pieces = &session.sealed().pieces()[..end_of_turn(session, index, target)];
    // Only the message of the piece matters, so any length serves as the start of the count.
    let mut walk = ReversePieces::new(session, pieces, target, u32::MAX);
    let (mut message, mut before) = (None, 0_u32);
    while let Some(seen) = walk.next()? {
        match message {
            None if seen.index == index => message = Some(seen.message),
            None => {}
            Some(message) if seen.message == message => before += 1,
            Some(_) => break,
        }
    }
    Ok(before)
}

/// Returns the index after the last piece that decides about the position of a piece in its message.
fn end_of_turn(session: &Session, index: usize, target: &Target) -> usize {
    if !target.takes_system_messages() {
        return index + 1;
    }
    // Operator messages follow the rest of their turn, so the whole turn decides.
    let later = session
        .sealed()
        .pieces()
        .get(index + 1..)
        .unwrap_or_default();
    let in_turn = |piece: &&Piece| {
        !piece.form.is_shown() || speaker(piece, session.transcript()) == Speaker::User
    };
    index + 1 + later.iter().take_while(in_turn).count()
}

/// Returns the position of the last block of each of some messages in an array of `length` messages. `None` if the
/// target does not see the message. One backward walk finds all positions and ends with the first of them.
pub(super) fn message_positions(
    session: &Session,
    messages: &[Ordinal],
    target: &Target,
    length: u32,
) -> Result<Vec<Option<u32>>, ContentNotLoaded> {
    let mut positions = vec![None; messages.len()];
    let mut missing = messages.len();
    let mut walk = ReversePieces::of(session, target, length);
    let pieces = session.sealed().pieces();
    while missing > 0
        && let Some(seen) = walk.next()?
    {
        let of = pieces[seen.index].message;
        for (message, position) in messages.iter().zip(&mut positions) {
            // The walk goes backwards, so the first hit is the last block of the message.
            if *message == of && position.is_none() {
                *position = Some(seen.message);
                missing -= 1;
            }
        }
    }
    Ok(positions)
}

/// Returns the pieces that a target sees, in the order of the array.
pub(super) fn shown_pieces<'a>(
    session: &'a Session,
    pieces: &[Piece],
    target: &Target,
) -> Result<Vec<ShownPiece<'a>>, ContentNotLoaded> {
    let render = Renderer::new(session, target);
    if target.takes_system_messages() {
        return with_system_messages(&render, pieces);
    }
    let mut shown = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.iter().enumerate() {
        if let Some((key, block)) = render.piece(piece)? {
            shown.push(ShownPiece { index, key, block });
        }
    }
    Ok(shown)
}

/// Returns the pieces at positions of the array that some pieces form. The array is rendered once for all positions.
/// A position without a block names all pieces of its message. Positions without a piece are missing in the result.
pub(super) fn pieces_at(
    session: &Session,
    pieces: &[Piece],
    target: &Target,
    positions: &BTreeSet<ViewPosition>,
) -> Result<BTreeMap<ViewPosition, Vec<Piece>>, ContentNotLoaded> {
    let shown = shown_pieces(session, pieces, target)?;
    let shown = shown.iter().map(|one| (&pieces[one.index], one.key));
    let (mut position, mut last_key) = (None::<(u32, u32)>, None);
    let mut found = BTreeMap::<_, Vec<Piece>>::new();
    for (piece, key) in shown {
        if target.sends_separately(key.role) {
            continue;
        }
        // Positions are counted from the start, because the length of the array is not known here.
        let (message, block) = match position {
            Some((message, block)) if last_key == Some(key) => (message, block + 1),
            Some((message, _)) => (message + 1, 0),
            None => (0, 0),
        };
        (position, last_key) = (Some((message, block)), Some(key));
        // A piece has two positions: that of its whole message, and that of its block.
        for block in [None, Some(block)] {
            let here = ViewPosition { message, block };
            if positions.contains(&here) {
                found.entry(here).or_default().push(*piece);
            }
        }
    }
    Ok(found)
}
