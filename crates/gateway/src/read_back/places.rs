//! The positions of blocks, calls or items in a response, as the provider and the agent have them.

use std::collections::{HashMap, HashSet};

use super::splice::Splice;

/// The parts of the current response, by their position in it.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The calls of offered tools.
    hidden: HashSet<u64>,
    /// The positions for the agent of all other parts.
    shown: HashMap<u64, u64>,
    /// The next free position for the agent.
    next: u64,
}

impl Places {
    /// Hides a call of an offered tool.
    pub(super) fn hide(&mut self, state: &mut Splice, index: u64) {
        state.calls.own += 1;
        self.hidden.insert(index);
    }

    pub(super) fn is_hidden(&self, index: u64) -> bool {
        self.hidden.contains(&index)
    }

    /// Gives a part its position for the agent, and returns it. Until a call is hidden, the agent gets the bytes of the
    /// provider, whatever its positions are.
    pub(super) fn show(&mut self, state: &Splice, index: u64) -> u64 {
        let place = if state.is_displaced() {
            self.next
        } else {
            index
        };
        self.shown.insert(index, place);
        // A provider can leave gaps between positions, and can choose the largest number.
        self.next = self.next.max(place.saturating_add(1));
        place
    }

    /// Returns the position of a part for the agent. `None` for a part that the agent does not have.
    pub(super) fn get(&self, index: u64) -> Option<u64> {
        self.shown.get(&index).copied()
    }

    /// Returns the number of parts that the agent has.
    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }

    /// Begins the next response of the provider, whose parts follow those of this one.
    pub(super) fn begin_next(&mut self) {
        self.hidden.clear();
        self.shown.clear();
    }
}
