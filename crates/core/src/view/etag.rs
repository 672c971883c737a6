//! What a caller says it has, and how much of it is still right.

use super::wire::{group_key, in_array, wire};
use super::{Piece, Sealed, Target};
use crate::ids::Epoch;
use crate::message::Digest;
use crate::session::{ContentNotLoaded, Session};

const VERSION: u8 = 1;
const LEN: usize = 1 + 4 + 4 + 4 + 16;

/// A view that was served, named for a caller. Opaque outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Etag {
    epoch: Epoch,
    /// How many pieces the view had.
    pieces: u32,
    /// How many wire messages they made for the target.
    length: u32,
    /// Stands for the pieces, the target and the length together.
    check: Digest,
}

/// How much of a caller's copy still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prefix {
    /// How many wire messages the caller keeps.
    pub keep: u32,
    /// The piece with which the rest begins.
    pub from: usize,
}

impl Etag {
    /// Names a view of `pieces` pieces and `length` wire messages.
    pub fn new(epoch: Epoch, pieces: u32, length: u32, digest: Digest, target: &Target) -> Self {
        Self {
            epoch,
            pieces,
            length,
            check: check(epoch, length, digest, target),
        }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [VERSION; LEN];
        bytes[1..5].copy_from_slice(&self.epoch.get().to_le_bytes());
        bytes[5..9].copy_from_slice(&self.pieces.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.length.to_le_bytes());
        bytes[13..].copy_from_slice(self.check.as_bytes());
        bytes
    }

    /// Reads one; anything that is not an etag is no error, only unknown.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let number = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let mut check = [0; 16];
        check.copy_from_slice(&bytes[13..]);
        (bytes[0] == VERSION).then(|| Self {
            epoch: Epoch::new(number(1)),
            pieces: number(5),
            length: number(9),
            check: Digest::from_bytes(check),
        })
    }

    /// How many pieces the view had.
    pub fn pieces(self) -> usize {
        self.pieces as usize
    }

    /// Whether this names a view of the current epoch for this target that is still as it was.
    pub fn is_current(self, sealed: &Sealed, target: &Target) -> bool {
        self.seal(sealed, target)
            .is_some_and(|seal| seal.intact == seal.pieces)
    }

    fn seal<'s>(self, sealed: &'s Sealed, target: &Target) -> Option<&'s super::Seal> {
        sealed.seals().find(|seal| {
            seal.epoch == self.epoch
                && seal.pieces == self.pieces
                && check(seal.epoch, self.length, seal.digest, target) == self.check
        })
    }

    /// How much of the view that this names is a prefix of the view as it is now.
    pub fn prefix(self, session: &Session, target: &Target) -> Result<Prefix, ContentNotLoaded> {
        let pieces = session.sealed().pieces();
        let Some(seal) = self.seal(session.sealed(), target) else {
            return Ok(Prefix::default());
        };
        let intact = (seal.intact as usize).min(pieces.len());
        let key = |piece: &Piece| group_key(session, piece, target);
        if seal.intact == seal.pieces {
            let mut next = pieces[intact..].iter().map(key);
            let next = next.find_map(Result::transpose).transpose()?;
            let (start, last) = last_group(&pieces[..intact], key)?;
            return Ok(match (next, last) {
                (Some(next), Some(last)) if next == last && self.length > 0 => Prefix {
                    keep: self.length - 1,
                    from: start,
                },
                _ => Prefix {
                    keep: self.length,
                    from: intact,
                },
            });
        }
        // The view changed behind the first `intact` pieces. Their last message may have been longer
        // in the caller's copy, so it is sent again.
        let (start, last) = last_group(&pieces[..intact], key)?;
        if last.is_none() {
            return Ok(Prefix::default());
        }
        let kept = wire(session, &pieces[..start], target)?;
        Ok(Prefix {
            keep: in_array(&kept, target),
            from: start,
        })
    }
}

/// How many messages of the array are made of the first `pieces` pieces alone. The last of them counts
/// only when nothing that follows belongs to it.
pub(super) fn kept_messages(
    session: &Session,
    pieces: usize,
    target: &Target,
) -> Result<u32, ContentNotLoaded> {
    let all = session.sealed().pieces();
    let (kept, rest) = all.split_at(pieces.min(all.len()));
    let key = |piece: &Piece| group_key(session, piece, target);
    let next = rest
        .iter()
        .map(key)
        .find_map(Result::transpose)
        .transpose()?;
    let (start, last) = last_group(kept, key)?;
    let whole = if next.is_some() && next == last {
        &kept[..start]
    } else {
        kept
    };
    Ok(in_array(&wire(session, whole, target)?, target))
}

/// Where the last wire message of some pieces begins, and its key.
fn last_group<K: PartialEq + Copy>(
    pieces: &[Piece],
    key: impl Fn(&Piece) -> Result<Option<K>, ContentNotLoaded>,
) -> Result<(usize, Option<K>), ContentNotLoaded> {
    let (mut start, mut last) = (pieces.len(), None);
    for (index, piece) in pieces.iter().enumerate().rev() {
        match (key(piece)?, last) {
            (None, _) => {}
            (Some(key), None) => (start, last) = (index, Some(key)),
            (Some(key), Some(of_last)) if key == of_last => start = index,
            _ => break,
        }
    }
    Ok((start, last))
}

fn check(epoch: Epoch, length: u32, digest: Digest, target: &Target) -> Digest {
    let mut link = Vec::with_capacity(24);
    link.extend_from_slice(target.digest().as_bytes());
    link.extend_from_slice(&epoch.get().to_le_bytes());
    link.extend_from_slice(&length.to_le_bytes());
    digest.chain(&link)
}
