//! The results of a session that were stored, by the block of the transcript that each belongs to.
//!
//! By the block and not by the call: after a rewind a call may get another result, and what was stored
//! of the first must be there when an undo brings it back.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Calls;
use crate::event::StoredResult;
use crate::ids::{CallKey, Ordinal};
use crate::message::Digest;

/// A block of the transcript.
type BlockPosition = (Ordinal, u16);

/// A result that was stored, and the block that brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedResult {
    /// The block; not known of what an early version wrote down.
    pub place: Option<BlockPosition>,
    /// The result.
    pub stored: StoredResult,
}

/// The results that were stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredResults {
    by_place: BTreeMap<BlockPosition, StoredResult>,
    /// The last one of each call.
    by_call: BTreeMap<CallKey, BlockPosition>,
    by_file: HashMap<Box<str>, BlockPosition>,
    /// What stands in their places, so that it is recognised when it comes back as content.
    texts: HashSet<Digest>,
    /// The length of the longest of them: what is longer need not be digested.
    longest: usize,
}

impl StoredResults {
    /// Puts them together again from what a snapshot holds.
    pub fn restore(all: Vec<PositionedResult>, calls: &Calls) -> Self {
        let mut stored = Self::default();
        for PositionedResult { place, stored: one } in all {
            let original = || calls.get(one.call).and_then(|call| call.original);
            if let Some(place) = place.or_else(original) {
                stored.insert(place, one);
            }
        }
        stored
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// The result of a call, when it was stored; of several, the last.
    pub fn get(&self, call: CallKey) -> Option<&StoredResult> {
        self.by_place.get(self.by_call.get(&call)?)
    }

    /// The result in a block, when it was stored.
    pub fn at(&self, message: Ordinal, block: u16) -> Option<&StoredResult> {
        self.by_place.get(&(message, block))
    }

    /// The results in the blocks of a message, as far as they were stored.
    pub fn of(&self, message: Ordinal) -> impl Iterator<Item = (u16, &StoredResult)> {
        let blocks = self.by_place.range((message, 0)..=(message, u16::MAX));
        blocks.map(|((_, block), stored)| (*block, stored))
    }

    /// The result in a file.
    pub fn in_file(&self, file: &str) -> Option<&StoredResult> {
        self.by_place.get(self.by_file.get(file)?)
    }

    /// The block whose result is in a file.
    pub fn place_of(&self, file: &str) -> Option<(Ordinal, u16)> {
        self.by_file.get(file).copied()
    }

    /// All of them, in the order of the transcript.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Ordinal, u16, &StoredResult)> {
        let all = self.by_place.iter();
        all.map(|((message, block), stored)| (*message, *block, stored))
    }

    /// Whether a text stands in the place of a result.
    pub fn is_replacement(&self, text: &str) -> bool {
        text.len() <= self.longest && self.texts.contains(&Digest::of_bytes(text.as_bytes()))
    }

    pub(crate) fn insert(&mut self, place: BlockPosition, stored: StoredResult) {
        self.texts.insert(Digest::of_bytes(stored.text.as_bytes()));
        self.longest = self.longest.max(stored.text.len());
        // The last place wins, whichever was stored first: a snapshot knows only places.
        let last = |known: &mut BlockPosition| *known = place.max(*known);
        self.by_call
            .entry(stored.call)
            .and_modify(last)
            .or_insert(place);
        self.by_file
            .entry(stored.file.clone())
            .and_modify(last)
            .or_insert(place);
        self.by_place.insert(place, stored);
    }
}
