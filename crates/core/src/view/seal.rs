//! The sealed part of a view, and the seals that identify its served states.

use std::collections::{BTreeSet, VecDeque};

use super::fixed_texts::CLEARED;
use super::{LayoutChange, Piece, PieceForm, count};
use crate::ids::{CallKey, Epoch};
use crate::message::Digest;
use crate::session::{Calls, Transcript};
use crate::tokens::estimate_text;

/// Number of seals that are kept. A caller with an older etag receives the whole view.
const MAX_SEALS: usize = 64;
/// Approximate size of a marker in tokens.
pub(crate) const MARKER_TOKENS: u32 = 8;

/// One served state of a view. A seal is also recorded after each view-changing event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// The epoch at that time.
    pub epoch: Epoch,
    /// The number of pieces at that time.
    pub pieces: u32,
    /// The number of leading pieces that have not changed since.
    pub intact: u32,
    /// The digest of the content of all pieces.
    pub digest: Digest,
}

/// All pieces that were served, in the order of the view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sealed {
    pieces: Vec<Piece>,
    digest: Digest,
    epoch: Epoch,
    seals: VecDeque<Seal>,
    /// The number of images in the pieces.
    image_count: usize,
    /// The calls whose results are shown without a replacement, oldest first.
    live_results: BTreeSet<CallKey>,
    /// The newest call whose result was cleared.
    last_cleared: Option<CallKey>,
    /// The index of the first piece of the latest serving.
    last_serve_start: usize,
}

impl Sealed {
    /// Rebuilds the sealed part from the fields of a snapshot.
    pub fn restore(
        pieces: Vec<Piece>,
        digest: Digest,
        epoch: Epoch,
        seals: Vec<Seal>,
        image_count: usize,
        last_serve_start: usize,
    ) -> Self {
        Self {
            live_results: live_results(&pieces).collect(),
            last_cleared: last_cleared(&pieces),
            last_serve_start,
            pieces,
            digest,
            epoch,
            seals: seals.into(),
            image_count,
        }
    }

    /// Returns all sealed pieces in the order of the view.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the recorded seals, oldest first. At most 64 are kept.
    pub fn seals(&self) -> impl Iterator<Item = &Seal> {
        self.seals.iter()
    }

    /// Returns the seal of the latest serving or view-changing event.
    pub fn last(&self) -> Option<&Seal> {
        self.seals.back()
    }

    /// Returns the digest of everything that is sealed.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the number of view-changing events.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the index of the first piece of the latest serving.
    pub fn last_serve_start(&self) -> usize {
        self.last_serve_start
    }

    /// Returns the number of images in the pieces.
    pub fn image_count(&self) -> usize {
        self.image_count
    }

    /// Returns the calls whose results are shown without a replacement, oldest first.
    pub fn live_results(&self) -> &BTreeSet<CallKey> {
        &self.live_results
    }

    /// Returns true if a call's result is shown without a replacement.
    pub(crate) fn shows_result(&self, call: CallKey) -> bool {
        self.live_results.contains(&call)
    }

    /// Returns the newest call whose result was cleared.
    pub(crate) fn last_cleared(&self) -> Option<CallKey> {
        self.last_cleared
    }

    /// Returns the calls whose results were shown for the first time in the latest serving.
    pub(crate) fn newest_results(&self) -> BTreeSet<CallKey> {
        live_results(&self.pieces[self.last_serve_start.min(self.pieces.len())..]).collect()
    }

    /// Returns the digest after these pieces are appended.
    fn digest_with(&self, pieces: &[Piece], transcript: &Transcript) -> Digest {
        if pieces.is_empty() {
            return self.digest;
        }
        // The digest of the message covers its content, so the pieces need no content of their own.
        let mut link = Vec::with_capacity(pieces.len() * 32);
        let mut text = String::new();
        for piece in pieces {
            text.clear();
            piece.form.write_digest_text(&mut text);
            link.extend_from_slice(transcript.digest(piece.message).as_bytes());
            // Two messages can have equal contents, so the digest of the message alone does not identify a piece.
            link.extend_from_slice(&piece.message.get().to_le_bytes());
            link.extend_from_slice(&piece.block.to_le_bytes());
            link.extend_from_slice(text.as_bytes());
        }
        self.digest.chain(&link)
    }

    /// Seals newly served pieces at the end of the view.
    pub(crate) fn extend(&mut self, pieces: &[Piece], transcript: &Transcript) {
        self.digest = self.digest_with(pieces, transcript);
        self.image_count += image_count(pieces, transcript);
        self.live_results.extend(live_results(pieces));
        self.last_serve_start = self.pieces.len();
        self.pieces.extend_from_slice(pieces);
        self.push_seal();
    }

    /// Applies a view-changing event: changes the pieces and increments the epoch.
    pub(crate) fn change(&mut self, change: &LayoutChange, transcript: &Transcript) {
        let first = change.first().map_or(u32::MAX, count);
        // A caller's older copy stays valid up to the first change, so only the rest is sent again.
        for seal in &mut self.seals {
            seal.intact = seal.intact.min(first);
        }
        self.epoch = self.epoch.next();
        // The digest is a chain that cannot be shortened. The change itself is therefore appended to the chain.
        self.digest = self.digest.chain(&self.epoch.get().to_le_bytes());
        for splice in &change.splices {
            // The same insertion at another place gives another view, so the place is part of the digest.
            let place = [splice.at.to_le_bytes(), splice.remove.to_le_bytes()].concat();
            self.digest = self.digest.chain(&place);
            self.digest = self.digest_with(&splice.insert, transcript);
        }
        let before = self.pieces.len();
        self.pieces = change.apply(&self.pieces);
        self.live_results = live_results(&self.pieces).collect();
        self.last_cleared = last_cleared(&self.pieces);
        // The latest serving shifts by the number of pieces that were inserted or removed before it.
        self.last_serve_start = (self.last_serve_start + self.pieces.len()).saturating_sub(before);
        self.image_count = image_count(&self.pieces, transcript);
        self.push_seal();
    }

    fn push_seal(&mut self) {
        let pieces = count(self.pieces.len());
        self.seals.push_back(Seal {
            epoch: self.epoch,
            pieces,
            intact: pieces,
            digest: self.digest,
        });
        // The number of seals bounds the memory of a session and the time to find an etag.
        while self.seals.len() > MAX_SEALS {
            self.seals.pop_front();
        }
    }
}

/// Returns the calls whose results are shown without a replacement.
fn live_results(pieces: &[Piece]) -> impl Iterator<Item = CallKey> {
    pieces.iter().filter_map(|piece| match piece.form {
        PieceForm::Result(call) | PieceForm::ResultWithoutMedia(call) => Some(call),
        _ => None,
    })
}

/// Returns the newest call whose result was cleared.
fn last_cleared(pieces: &[Piece]) -> Option<CallKey> {
    let cleared = pieces.iter().filter_map(|piece| match piece.form {
        PieceForm::Cleared(call) => Some(call),
        _ => None,
    });
    cleared.max()
}

/// Returns the number of images in some pieces.
fn image_count(pieces: &[Piece], transcript: &Transcript) -> usize {
    let of_piece = |piece: &Piece| match piece.form {
        // All other forms show a text, such as a marker, in place of an image.
        PieceForm::Block | PieceForm::Result(_) => {
            transcript.image_count(piece.message, piece.block).into()
        }
        _ => 0,
    };
    pieces.iter().map(of_piece).sum::<usize>()
}

/// Returns the estimated tokens of a result in its current form.
pub(crate) fn shown_tokens(calls: &Calls, form: PieceForm, call: CallKey) -> u32 {
    match form {
        PieceForm::Result(_) | PieceForm::ResultWithoutMedia(_) => {
            calls.get(call).map_or(0, |call| call.result_tokens)
        }
        PieceForm::SnippedResult(_) => MARKER_TOKENS,
        _ => estimate_text(CLEARED),
    }
}
