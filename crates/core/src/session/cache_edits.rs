//! The cache edits of a session. A request must repeat all edits at the same positions, so each edit is pinned to the
//! message that first carried it.

use crate::event::{ArrayPosition, CacheEditsIssued};
use crate::ids::{CallKey, Ordinal};

/// The cache edits that one message carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEditBatch {
    /// The user message that carries the edits.
    pub message: Ordinal,
    /// The calls whose results the provider removes from its cached prompt.
    pub calls: Vec<CallKey>,
    /// The position of the message in the array. `None` once a layout change has moved messages.
    pub position: Option<ArrayPosition>,
}

/// All cache edits that are in effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheEdits {
    batches: Vec<CacheEditBatch>,
}

impl CacheEdits {
    /// Rebuilds the cache edits from a snapshot.
    pub fn restore(batches: Vec<CacheEditBatch>) -> Self {
        Self { batches }
    }

    /// Returns the cache edits, in the order in which they were issued.
    pub fn batches(&self) -> &[CacheEditBatch] {
        &self.batches
    }

    /// Returns the latest call whose result is removed.
    pub fn last(&self) -> Option<CallKey> {
        let calls = self.batches.iter().flat_map(|pin| &pin.calls);
        calls.copied().max()
    }

    pub(crate) fn issue(&mut self, event: &CacheEditsIssued) {
        self.batches.push(CacheEditBatch {
            message: event.message,
            calls: event.calls.clone(),
            position: event.position,
        });
    }

    /// Removes edits whose results or messages left the view.
    pub(crate) fn retain(
        &mut self,
        live: impl Fn(CallKey) -> bool,
        stands: impl Fn(Ordinal) -> bool,
    ) {
        for pin in &mut self.batches {
            pin.calls.retain(|call| live(*call));
        }
        self.batches
            .retain(|pin| !pin.calls.is_empty() && stands(pin.message));
    }

    /// Forgets all positions, because the array changed.
    pub(crate) fn invalidate_positions(&mut self) {
        for pin in &mut self.batches {
            pin.position = None;
        }
    }
}
