//! The sealed part of a view, and the points up to which it was served.

use std::collections::{BTreeSet, VecDeque};

use super::words::CLEARED;
use super::{LayoutChange, Piece, PieceForm, count};
use crate::ids::{CallKey, Epoch};
use crate::message::Digest;
use crate::session::{Calls, Transcript};
use crate::tokens::estimate_text;

/// How many servings back a caller's etag is still recognised. One further back gets the whole view.
const MAX_SEALS: usize = 64;
/// What a marker has in tokens, roughly.
pub(crate) const MARKER_TOKENS: u32 = 8;

/// A point up to which a view was served, or at which a view-changing event left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// The epoch of that serving.
    pub epoch: Epoch,
    /// How many pieces it had.
    pub pieces: u32,
    /// How many of them are still what they were.
    pub intact: u32,
    /// Stands for the content of all of them.
    pub digest: Digest,
}

/// Everything that was served, in the order in which the model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sealed {
    pieces: Vec<Piece>,
    digest: Digest,
    epoch: Epoch,
    seals: VecDeque<Seal>,
    /// How many pictures the pieces show.
    pictures: usize,
    /// The calls whose results are shown as they came, oldest first.
    live: BTreeSet<CallKey>,
    /// The last call whose result was cleared.
    last_cleared: Option<CallKey>,
    /// Where the latest serving began.
    newest_from: usize,
}

impl Sealed {
    /// Puts one together again from what a snapshot holds.
    pub fn restore(
        pieces: Vec<Piece>,
        digest: Digest,
        epoch: Epoch,
        seals: Vec<Seal>,
        pictures: usize,
        newest_from: usize,
    ) -> Self {
        Self {
            live: live(&pieces).collect(),
            last_cleared: last_cleared(&pieces),
            newest_from,
            pieces,
            digest,
            epoch,
            seals: seals.into(),
            pictures,
        }
    }

    /// The pieces.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The points up to which it was served, oldest first.
    pub fn seals(&self) -> impl Iterator<Item = &Seal> {
        self.seals.iter()
    }

    /// The latest serving.
    pub fn last(&self) -> Option<&Seal> {
        self.seals.back()
    }

    /// Stands for the content of everything sealed.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How many view-changing events there were.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where the latest serving began.
    pub fn newest_from(&self) -> usize {
        self.newest_from
    }

    /// How many pictures the pieces show.
    pub fn pictures(&self) -> usize {
        self.pictures
    }

    /// The calls whose results are shown as they came, oldest first.
    pub fn live(&self) -> &BTreeSet<CallKey> {
        &self.live
    }

    /// Whether a call's result is shown as it came.
    pub(crate) fn shows_result(&self, call: CallKey) -> bool {
        self.live.contains(&call)
    }

    /// The last call whose result was cleared.
    pub(crate) fn last_cleared(&self) -> Option<CallKey> {
        self.last_cleared
    }

    /// The calls whose results were shown for the first time in the latest serving.
    pub(crate) fn newest_results(&self) -> BTreeSet<CallKey> {
        live(&self.pieces[self.newest_from.min(self.pieces.len())..]).collect()
    }

    /// The digest with these pieces at the end.
    fn digest_with(&self, pieces: &[Piece], transcript: &Transcript) -> Digest {
        if pieces.is_empty() {
            return self.digest;
        }
        let mut link = Vec::with_capacity(pieces.len() * 32);
        let mut text = String::new();
        for piece in pieces {
            text.clear();
            piece.form.write_digest_text(&mut text);
            link.extend_from_slice(transcript.digest(piece.message).as_bytes());
            link.extend_from_slice(&piece.message.get().to_le_bytes());
            link.extend_from_slice(&piece.block.to_le_bytes());
            link.extend_from_slice(text.as_bytes());
        }
        self.digest.chain(&link)
    }

    /// Seals what was just served at the end.
    pub(crate) fn extend(&mut self, pieces: &[Piece], transcript: &Transcript) {
        self.digest = self.digest_with(pieces, transcript);
        self.pictures += pictures(pieces, transcript);
        self.live.extend(live(pieces));
        self.newest_from = self.pieces.len();
        self.pieces.extend_from_slice(pieces);
        self.mark();
    }

    /// A view-changing event: pieces leave, come or take another form, and the epoch moves.
    pub(crate) fn change(&mut self, change: &LayoutChange, transcript: &Transcript) {
        let first = change.first().map_or(u32::MAX, count);
        for seal in &mut self.seals {
            seal.intact = seal.intact.min(first);
        }
        self.epoch = self.epoch.next();
        // The chain cannot be cut: it goes on from what was, and what became of it.
        self.digest = self.digest.chain(&self.epoch.get().to_le_bytes());
        for splice in &change.splices {
            let place = [splice.at.to_le_bytes(), splice.remove.to_le_bytes()].concat();
            self.digest = self.digest.chain(&place);
            self.digest = self.digest_with(&splice.insert, transcript);
        }
        let before = self.pieces.len();
        self.pieces = change.apply(&self.pieces);
        self.live = live(&self.pieces).collect();
        self.last_cleared = last_cleared(&self.pieces);
        // What was new has moved by as many pieces as came or left before it.
        self.newest_from = (self.newest_from + self.pieces.len()).saturating_sub(before);
        self.pictures = pictures(&self.pieces, transcript);
        self.mark();
    }

    fn mark(&mut self) {
        let pieces = count(self.pieces.len());
        self.seals.push_back(Seal {
            epoch: self.epoch,
            pieces,
            intact: pieces,
            digest: self.digest,
        });
        while self.seals.len() > MAX_SEALS {
            self.seals.pop_front();
        }
    }
}

/// The calls whose results some pieces show as they came.
fn live(pieces: &[Piece]) -> impl Iterator<Item = CallKey> {
    pieces.iter().filter_map(|piece| match piece.form {
        PieceForm::Result(call) | PieceForm::ResultWithoutMedia(call) => Some(call),
        _ => None,
    })
}

/// The last call whose result was cleared.
fn last_cleared(pieces: &[Piece]) -> Option<CallKey> {
    let cleared = pieces.iter().filter_map(|piece| match piece.form {
        PieceForm::Cleared(call) => Some(call),
        _ => None,
    });
    cleared.max()
}

/// How many pictures some pieces show.
fn pictures(pieces: &[Piece], transcript: &Transcript) -> usize {
    let of_piece = |piece: &Piece| match piece.form {
        PieceForm::Block | PieceForm::Result(_) => {
            transcript.pictures_in(piece.message, piece.block).into()
        }
        _ => 0,
    };
    pieces.iter().map(of_piece).sum::<usize>()
}

/// The tokens of a result as it is shown.
pub(crate) fn shown_tokens(calls: &Calls, form: PieceForm, call: CallKey) -> u32 {
    match form {
        PieceForm::Result(_) | PieceForm::ResultWithoutMedia(_) => {
            calls.get(call).map_or(0, |call| call.result_tokens)
        }
        PieceForm::SnippedResult(_) => MARKER_TOKENS,
        _ => estimate_text(CLEARED),
    }
}
