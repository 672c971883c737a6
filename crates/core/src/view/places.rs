//! Where the pieces of a view stand in the array that they make for a target.
//!
//! Places are counted from the end wherever the length of the array is known: what is asked for is
//! nearly always new, and then the cost does not depend on how long the view is.

use super::wire::{GroupKey, Renderer};
use super::{Piece, Target, WireBlock, WireRole};
use crate::ids::Ordinal;
use crate::session::{ContentNotLoaded, Session};

/// A piece that a target sees, and where.
pub(super) struct PositionedPiece<'a> {
    /// Its place among the pieces.
    pub(super) index: usize,
    /// The place in the array of the message that it is part of.
    pub(super) message: u32,
    /// Who speaks there.
    pub(super) role: WireRole,
    /// What the target sees.
    pub(super) block: WireBlock<'a>,
}

/// The pieces that stand in a target's array, from the last one on.
pub(super) struct Backwards<'a, 't> {
    render: Renderer<'a, 't>,
    target: &'t Target,
    pieces: &'a [Piece],
    /// The message of the piece seen last; before the first one, the length of the array.
    message: u32,
    last_key: Option<GroupKey>,
}

impl<'a, 't> Backwards<'a, 't> {
    /// `length` is how many messages these pieces make.
    fn new(session: &'a Session, pieces: &'a [Piece], target: &'t Target, length: u32) -> Self {
        Self {
            render: Renderer::new(session, target),
            target,
            pieces,
            message: length,
            last_key: None,
        }
    }

    /// All that was served.
    pub(super) fn of(session: &'a Session, target: &'t Target, length: u32) -> Self {
        Self::new(session, session.sealed().pieces(), target, length)
    }

    pub(super) fn next(&mut self) -> Result<Option<PositionedPiece<'a>>, ContentNotLoaded> {
        while let Some((piece, before)) = self.pieces.split_last() {
            self.pieces = before;
            let Some((key, block)) = self.render.piece(piece)? else {
                continue;
            };
            if self.target.takes_apart(key.role) {
                // These lead: the array begins behind them.
                break;
            }
            if self.last_key != Some(key) {
                self.message = self.message.saturating_sub(1);
                self.last_key = Some(key);
            }
            return Ok(Some(PositionedPiece {
                index: before.len(),
                message: self.message,
                role: key.role,
                block,
            }));
        }
        self.pieces = &[];
        Ok(None)
    }
}

/// How many messages at the start of an array with `length` messages are made of the first `pieces`
/// pieces alone. What follows those pieces is looked at, and nothing else.
pub(super) fn messages_before(
    session: &Session,
    pieces: usize,
    target: &Target,
    length: u32,
) -> Result<u32, ContentNotLoaded> {
    let mut walk = Backwards::of(session, target, length);
    let mut before = length;
    while walk.pieces.len() > pieces {
        match walk.next()? {
            Some(seen) if seen.index >= pieces => before = seen.message,
            _ => break,
        }
    }
    Ok(before)
}

/// The place of a piece among the blocks of its message.
pub(super) fn place_in_message(
    session: &Session,
    index: usize,
    target: &Target,
) -> Result<u32, ContentNotLoaded> {
    let pieces = &session.sealed().pieces()[..=index];
    let mut walk = Backwards::new(session, pieces, target, u32::MAX);
    let mut blocks = 0_u32;
    while let Some(seen) = walk.next()? {
        if seen.message != u32::MAX - 1 {
            break;
        }
        blocks += 1;
    }
    Ok(blocks.saturating_sub(1))
}

/// The places in an array with `length` messages at which the last blocks of some messages stand;
/// none where the target does not see the message. One walk finds all of them, and ends with the
/// first of them.
pub(super) fn places_of(
    session: &Session,
    messages: &[Ordinal],
    target: &Target,
    length: u32,
) -> Result<Vec<Option<u32>>, ContentNotLoaded> {
    let mut places = vec![None; messages.len()];
    let mut missing = messages.len();
    let mut walk = Backwards::of(session, target, length);
    let pieces = session.sealed().pieces();
    while missing > 0
        && let Some(seen) = walk.next()?
    {
        let of = pieces[seen.index].message;
        for (message, place) in messages.iter().zip(&mut places) {
            if *message == of && place.is_none() {
                *place = Some(seen.message);
                missing -= 1;
            }
        }
    }
    Ok(places)
}

/// The pieces that stand at a place of the array that some pieces make.
pub(super) fn at(
    session: &Session,
    pieces: &[Piece],
    target: &Target,
    message: u32,
    block: Option<u32>,
) -> Result<Vec<Piece>, ContentNotLoaded> {
    let render = Renderer::new(session, target);
    let (mut place, mut last_key) = (None::<(u32, u32)>, None);
    let mut found = Vec::new();
    for piece in pieces {
        let Some((key, _)) = render.piece(piece)? else {
            continue;
        };
        if target.takes_apart(key.role) {
            continue;
        }
        let here = match place {
            Some((message, block)) if last_key == Some(key) => (message, block + 1),
            Some((message, _)) => (message + 1, 0),
            None => (0, 0),
        };
        (place, last_key) = (Some(here), Some(key));
        if here.0 == message && block.is_none_or(|block| here.1 == block) {
            found.push(*piece);
        }
    }
    Ok(found)
}
