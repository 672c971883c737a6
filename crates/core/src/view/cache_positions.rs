//! Positions in a target's array at which a prompt cache ends or a cache edit is pinned.

use super::etag::{Etag, Prefix};
use super::positions::message_positions;
use super::target::Target;
use super::wire::{array_length, wire};
use crate::event::ArrayPosition;
use crate::ids::Ordinal;
use crate::session::{CacheEditBatch, ContentNotLoaded, Session};

impl Session {
    /// Returns the position of the last message in the array for a target. `known` is the etag of the caller's copy.
    /// `None` if the array is empty or the required content is not loaded.
    pub fn last_array_position(
        &self,
        target: &Target,
        known: Option<Etag>,
    ) -> Option<ArrayPosition> {
        let length = self.array_length(target, known).ok()?;
        Some(ArrayPosition {
            target: target.digest(),
            message: length.checked_sub(1)?,
        })
    }

    /// Returns the position of each cache edit's message in an array of `length` messages. `None` if the target does
    /// not see the message.
    ///
    /// A position is recorded when the edit is first returned. Cache edits accumulate, and the oldest may be as old as
    /// the session. Positions are searched, from the end, only after a view change or for another target.
    pub fn edit_positions(
        &self,
        target: &Target,
        length: u32,
    ) -> Result<Vec<Option<u32>>, ContentNotLoaded> {
        let batches = self.cache_edits().batches();
        let digest = target.digest();
        let noted =
            |batch: &CacheEditBatch| batch.position.filter(|position| position.target == digest);
        let mut positions: Vec<_> = batches
            .iter()
            .map(|batch| noted(batch).map(|position| position.message))
            .collect();
        // Only the missing positions are searched, in one walk.
        let unknown = |index: &usize| positions[*index].is_none();
        let missing: Vec<usize> = (0..batches.len()).filter(unknown).collect();
        let messages: Vec<Ordinal> = missing
            .iter()
            .map(|index| batches[*index].message)
            .collect();
        let found = message_positions(self, &messages, target, length)?;
        for (index, position) in missing.into_iter().zip(found) {
            positions[index] = position;
        }
        Ok(positions)
    }

    /// Returns the number of messages in the array for a target. The caller's copy is not rendered again.
    fn array_length(&self, target: &Target, known: Option<Etag>) -> Result<u32, ContentNotLoaded> {
        let prefix = match known {
            Some(etag) => etag.prefix(self, target)?,
            None => Prefix::default(),
        };
        let new = wire(self, &self.sealed().pieces()[prefix.from..], target)?;
        Ok(prefix.keep + array_length(&new, target))
    }
}
