//! The stored results of a session, indexed by the block of the transcript that contains each result.
//!
//! The index uses blocks and not calls: after a rewind a call can get another result, and an undo must find the first
//! one again.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Calls;
use crate::event::StoredResult;
use crate::ids::{CallKey, Ordinal};
use crate::message::Digest;

/// A message and the index of a block in it.
type BlockPosition = (Ordinal, u16);

/// A stored result and the block that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedResult {
    /// The block. `None` in records of an early version, which did not store it.
    pub position: Option<BlockPosition>,
    /// The stored result.
    pub stored: StoredResult,
}

/// The stored results of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredResults {
    by_position: BTreeMap<BlockPosition, StoredResult>,
    /// The block of the latest stored result of each call.
    by_call: BTreeMap<CallKey, BlockPosition>,
    by_file: HashMap<Box<str>, BlockPosition>,
    /// Digests of the replacement texts. They identify a replacement that a caller appends as content.
    replacement_digests: HashSet<Digest>,
    /// Length of the longest replacement text, in bytes. Longer texts are not digested.
    longest_replacement: usize,
}

impl StoredResults {
    /// Rebuilds the stored results from a snapshot.
    pub fn restore(all: Vec<PositionedResult>, calls: &Calls) -> Self {
        let mut stored = Self::default();
        for PositionedResult {
            position,
            stored: one,
        } in all
        {
            let original = || calls.get(one.call).and_then(|call| call.result_position);
            if let Some(position) = position.or_else(original) {
                stored.insert(position, one);
            }
        }
        stored
    }

    /// Returns the number of stored results.
    pub fn len(&self) -> usize {
        self.by_position.len()
    }

    /// Returns true if no result is stored.
    pub fn is_empty(&self) -> bool {
        self.by_position.is_empty()
    }

    /// Returns the stored result of a call. If there are several, returns the last in the transcript.
    pub fn get(&self, call: CallKey) -> Option<&StoredResult> {
        self.by_position.get(self.by_call.get(&call)?)
    }

    /// Returns the stored result of a block.
    pub fn at(&self, message: Ordinal, block: u16) -> Option<&StoredResult> {
        self.by_position.get(&(message, block))
    }

    /// Iterates over the stored results of a message.
    pub fn of(&self, message: Ordinal) -> impl Iterator<Item = (u16, &StoredResult)> {
        let blocks = self.by_position.range((message, 0)..=(message, u16::MAX));
        blocks.map(|((_, block), stored)| (*block, stored))
    }

    /// Returns the stored result in a file.
    pub fn find_by_file(&self, file: &str) -> Option<&StoredResult> {
        self.by_position.get(self.by_file.get(file)?)
    }

    /// Returns the block whose result is stored in a file.
    pub fn position_of_file(&self, file: &str) -> Option<(Ordinal, u16)> {
        self.by_file.get(file).copied()
    }

    /// Iterates over all stored results in the order of the transcript.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Ordinal, u16, &StoredResult)> {
        let all = self.by_position.iter();
        all.map(|((message, block), stored)| (*message, *block, stored))
    }

    /// Returns true if a text is the replacement of a stored result.
    pub fn is_replacement(&self, text: &str) -> bool {
        // A longer text cannot be a replacement, so large results are never hashed here.
        text.len() <= self.longest_replacement
            && self
                .replacement_digests
                .contains(&Digest::of_bytes(text.as_bytes()))
    }

    pub(crate) fn insert(&mut self, position: BlockPosition, stored: StoredResult) {
        self.replacement_digests
            .insert(Digest::of_bytes(stored.replacement.as_bytes()));
        self.longest_replacement = self.longest_replacement.max(stored.replacement.len());
        // The last block wins regardless of the order of storing, because a snapshot preserves only the blocks.
        let last = |known: &mut BlockPosition| *known = position.max(*known);
        self.by_call
            .entry(stored.call)
            .and_modify(last)
            .or_insert(position);
        self.by_file
            .entry(stored.file.clone())
            .and_modify(last)
            .or_insert(position);
        self.by_position.insert(position, stored);
    }
}
