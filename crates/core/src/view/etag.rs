//! Etags: the names of served views, and the part of a caller's copy that is still valid.

use super::wire::{array_length, group_key, wire};
use super::{Piece, Sealed, Target};
use crate::ids::Epoch;
use crate::message::Digest;
use crate::session::{ContentNotLoaded, Session};

const VERSION: u8 = 1;
const LEN: usize = 1 + 4 + 4 + 4 + 16;

/// The name of a served view. Opaque to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Etag {
    epoch: Epoch,
    /// The number of pieces in the view.
    pieces: u32,
    /// The number of wire messages that the pieces form for the target.
    length: u32,
    /// A digest of the pieces, the target, the epoch and the length.
    check: Digest,
}

/// The part of a caller's copy that is still valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prefix {
    /// The number of wire messages that the caller keeps.
    pub keep: u32,
    /// The index of the first piece that is not in the kept messages.
    pub from: usize,
}

impl Etag {
    /// Creates the etag of a view with `pieces` pieces and `length` wire messages.
    pub fn new(epoch: Epoch, pieces: u32, length: u32, digest: Digest, target: &Target) -> Self {
        Self {
            epoch,
            pieces,
            length,
            check: check(epoch, length, digest, target),
        }
    }

    /// Encodes the etag: a version byte, three little-endian `u32` and the 16-byte digest.
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [VERSION; LEN];
        bytes[1..5].copy_from_slice(&self.epoch.get().to_le_bytes());
        bytes[5..9].copy_from_slice(&self.pieces.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.length.to_le_bytes());
        bytes[13..].copy_from_slice(self.check.as_bytes());
        bytes
    }

    /// Decodes an etag. Returns `None` for bytes that are not an etag. Callers treat them as an unknown etag.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let number = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let mut check = [0; 16];
        check.copy_from_slice(&bytes[13..]);
        // An etag of another version counts as unknown, so its caller receives the whole view.
        (bytes[0] == VERSION).then(|| Self {
            epoch: Epoch::new(number(1)),
            pieces: number(5),
            length: number(9),
            check: Digest::from_bytes(check),
        })
    }

    /// Returns the number of pieces in the view.
    pub fn pieces(self) -> usize {
        self.pieces as usize
    }

    /// Returns true if the etag names a view for this target whose pieces have not changed since.
    pub fn is_current(self, sealed: &Sealed, target: &Target) -> bool {
        self.seal(sealed, target)
            .is_some_and(|seal| seal.intact == seal.pieces)
    }

    fn seal<'s>(self, sealed: &'s Sealed, target: &Target) -> Option<&'s super::Seal> {
        // The digest check rejects an etag of other content or of another target, and one with an altered length.
        sealed.seals().find(|seal| {
            seal.epoch == self.epoch
                && seal.pieces == self.pieces
                && check(seal.epoch, self.length, seal.digest, target) == self.check
        })
    }

    /// Returns the part of the named view that is a prefix of the current view. The prefix is empty for an unknown
    /// etag.
    pub fn prefix(self, session: &Session, target: &Target) -> Result<Prefix, ContentNotLoaded> {
        let pieces = session.sealed().pieces();
        let Some(seal) = self.seal(session.sealed(), target) else {
            return Ok(Prefix::default());
        };
        let intact = (seal.intact as usize).min(pieces.len());
        let key = |piece: &Piece| group_key(session, piece, target);
        // Without a change, only the last message can differ: new pieces with the same key are merged into it.
        if seal.intact == seal.pieces {
            let mut next = pieces[intact..].iter().map(key);
            let next = next.find_map(Result::transpose).transpose()?;
            let (start, last) = last_group(&pieces[..intact], key)?;
            if next.is_none() || next != last {
                return Ok(Prefix {
                    keep: self.length,
                    from: intact,
                });
            }
            // The new pieces are merged into the last group, so the caller must replace all messages of this group.
            let group = messages_of_group(session, &pieces[start..intact], target)?;
            return Ok(match self.length.checked_sub(group) {
                Some(keep) => Prefix { keep, from: start },
                // The digest covers the length, so the length includes the group and this case does not occur.
                None => Prefix {
                    keep: self.length,
                    from: intact,
                },
            });
        }
        // The view changed after the first `intact` pieces. Their last message may have been longer in the caller's
        // copy, so it is sent again.
        let (start, last) = last_group(&pieces[..intact], key)?;
        if last.is_none() {
            return Ok(Prefix::default());
        }
        // The length in the etag includes messages that have changed, so the kept messages are counted.
        let kept = wire(session, &pieces[..start], target)?;
        Ok(Prefix {
            keep: array_length(&kept, target),
            from: start,
        })
    }
}

impl Session {
    /// Returns the number of array messages that consist of the first `pieces` pieces alone. The last message counts
    /// only if no later piece belongs to it.
    pub fn message_count_of(
        &self,
        pieces: usize,
        target: &Target,
    ) -> Result<u32, ContentNotLoaded> {
        let whole = whole_groups(self, pieces, target)?;
        let whole = &self.sealed().pieces()[..whole];
        Ok(array_length(&wire(self, whole, target)?, target))
    }
}

/// Returns the number of those of the first `pieces` pieces that form messages without a later piece.
pub(super) fn whole_groups(
    session: &Session,
    pieces: usize,
    target: &Target,
) -> Result<usize, ContentNotLoaded> {
    // A later piece with the same key is merged into the last message, which is then not made of these pieces alone.
    let all = session.sealed().pieces();
    let (kept, rest) = all.split_at(pieces.min(all.len()));
    let key = |piece: &Piece| group_key(session, piece, target);
    let next = rest
        .iter()
        .map(key)
        .find_map(Result::transpose)
        .transpose()?;
    let (start, last) = last_group(kept, key)?;
    let is_joined = next.is_some() && next == last;
    Ok(if is_joined { start } else { kept.len() })
}

/// Returns the number of messages that the pieces of one key form for a target.
fn messages_of_group(
    session: &Session,
    group: &[Piece],
    target: &Target,
) -> Result<u32, ContentNotLoaded> {
    if !target.takes_system_messages() {
        return Ok(1);
    }
    Ok(array_length(&wire(session, group, target)?, target))
}

/// Returns the index at which the last wire message of some pieces begins, and the key of that message.
fn last_group<K: PartialEq + Copy>(
    pieces: &[Piece],
    key: impl Fn(&Piece) -> Result<Option<K>, ContentNotLoaded>,
) -> Result<(usize, Option<K>), ContentNotLoaded> {
    // Pieces without a key are invisible for the target, so they do not separate messages.
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
    // The target is part of the digest, because two targets may see different messages of the same pieces.
    let mut link = Vec::with_capacity(24);
    link.extend_from_slice(target.digest().as_bytes());
    link.extend_from_slice(&epoch.get().to_le_bytes());
    link.extend_from_slice(&length.to_le_bytes());
    digest.chain(&link)
}
