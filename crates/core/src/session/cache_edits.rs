//! The cache edits of a session. A request must repeat all edits at the same positions, so each edit is pinned to the
//! message that first carried it.

use crate::event::{CacheEditsIssued, PinPlace};
use crate::ids::{CallKey, Ordinal};

/// The cache edits that one message carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePin {
    /// The user message that carries the edits.
    pub message: Ordinal,
    /// The calls whose results the provider removes from its cached prompt.
    pub calls: Vec<CallKey>,
    /// The position of the message in the array. `None` once a layout change has moved messages.
    pub place: Option<PinPlace>,
}

/// All cache edits that are in effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheEdits {
    pins: Vec<CachePin>,
}

impl CacheEdits {
    /// Rebuilds the cache edits from a snapshot.
    pub fn restore(pins: Vec<CachePin>) -> Self {
        Self { pins }
    }

    /// Returns the cache edits, in the order in which they were issued.
    pub fn pins(&self) -> &[CachePin] {
        &self.pins
    }

    /// Returns the latest call whose result is removed.
    pub fn last(&self) -> Option<CallKey> {
        let calls = self.pins.iter().flat_map(|pin| &pin.calls);
        calls.copied().max()
    }

    pub(crate) fn issue(&mut self, event: &CacheEditsIssued) {
        self.pins.push(CachePin {
            message: event.message,
            calls: event.calls.clone(),
            place: event.place,
        });
    }

    /// Removes edits whose results or messages left the view.
    pub(crate) fn retain(
        &mut self,
        live: impl Fn(CallKey) -> bool,
        stands: impl Fn(Ordinal) -> bool,
    ) {
        for pin in &mut self.pins {
            pin.calls.retain(|call| live(*call));
        }
        self.pins
            .retain(|pin| !pin.calls.is_empty() && stands(pin.message));
    }

    /// Forgets all positions, because the array changed.
    pub(crate) fn displace(&mut self) {
        for pin in &mut self.pins {
            pin.place = None;
        }
    }
}
