//! The sealed part of a view, and the points up to which it was served.

use std::collections::VecDeque;

use super::{Form, Piece};
use crate::ids::Epoch;
use crate::message::Digest;
use crate::session::Transcript;

/// How many servings back a caller's etag is still recognised. One further back gets the whole view.
const MAX_SEALS: usize = 64;

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
}

impl Sealed {
    /// Puts one together again from what a snapshot holds.
    pub fn restore(
        pieces: Vec<Piece>,
        digest: Digest,
        epoch: Epoch,
        seals: Vec<Seal>,
        pictures: usize,
    ) -> Self {
        Self {
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

    /// How many pictures the pieces show.
    pub fn pictures(&self) -> usize {
        self.pictures
    }

    /// The digest with these pieces at the end.
    fn digest_with(&self, pieces: &[Piece], transcript: &Transcript) -> Digest {
        if pieces.is_empty() {
            return self.digest;
        }
        let mut link = Vec::with_capacity(pieces.len() * 32);
        for piece in pieces {
            link.extend_from_slice(transcript.digest(piece.message).as_bytes());
            link.extend_from_slice(&piece.message.get().to_le_bytes());
            link.extend_from_slice(&piece.block.to_le_bytes());
            link.extend_from_slice(format!("{:?}", piece.form).as_bytes());
        }
        self.digest.chain(&link)
    }

    /// Seals what was just served at the end.
    pub(crate) fn extend(&mut self, pieces: &[Piece], transcript: &Transcript) {
        self.digest = self.digest_with(pieces, transcript);
        self.pictures += pictures(pieces, transcript);
        self.pieces.extend_from_slice(pieces);
        self.mark();
    }

    /// A view-changing event: the first `keep` pieces stay, `then` follows, and the epoch moves.
    pub(crate) fn change(&mut self, keep: u32, then: &[Piece], transcript: &Transcript) {
        self.pieces.truncate(keep as usize);
        for seal in &mut self.seals {
            seal.intact = seal.intact.min(keep);
        }
        self.epoch = self.epoch.next();
        // The chain cannot be cut: it goes on from the epoch's number and the pieces that stay.
        self.digest = Digest::of_bytes(&self.epoch.get().to_le_bytes());
        let kept = std::mem::take(&mut self.pieces);
        self.digest = self.digest_with(&kept, transcript);
        self.digest = self.digest_with(then, transcript);
        self.pieces = kept;
        self.pieces.extend_from_slice(then);
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

/// How many pictures some pieces show.
fn pictures(pieces: &[Piece], transcript: &Transcript) -> usize {
    let of_piece = |piece: &Piece| match piece.form {
        Form::Block | Form::Result(_) => transcript.pictures_in(piece.message, piece.block).into(),
        _ => 0,
    };
    pieces.iter().map(of_piece).sum::<usize>()
}

/// Pieces are counted in 32 bits; a session would need 256 GiB of them to overflow that.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
