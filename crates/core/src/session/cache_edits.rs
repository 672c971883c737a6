//! The edits that the provider applies to its own cache: cumulative, and pinned to the message where
//! each was first given, because a request must repeat all of them at the same places.

use crate::event::{CacheEditsIssued, PinPlace};
use crate::ids::{CallKey, Ordinal};

/// Edits that were given in one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePin {
    /// The user message that carries them.
    pub message: Ordinal,
    /// The calls whose results the provider leaves out.
    pub calls: Vec<CallKey>,
    /// Where the message stands, as long as nothing has changed the array since it was noted.
    pub place: Option<PinPlace>,
}

/// All edits that still hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheEdits {
    pins: Vec<CachePin>,
}

impl CacheEdits {
    /// Puts them together again from what a snapshot holds.
    pub fn restore(pins: Vec<CachePin>) -> Self {
        Self { pins }
    }

    /// Them, in the order in which they were given.
    pub fn pins(&self) -> &[CachePin] {
        &self.pins
    }

    /// The last call whose result the provider leaves out.
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

    /// Drops edits whose results, or whose messages, are not in the view any more.
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

    /// The array has changed: what stands where is not known any more.
    pub(crate) fn displace(&mut self) {
        for pin in &mut self.pins {
            pin.place = None;
        }
    }
}
