//! The positions of pinned content in the transcript.

use std::collections::BTreeMap;

use super::{PinTarget, WorkingState};
use crate::ids::Ordinal;
use crate::session::Transcript;

/// The positions of pinned messages and blocks, with their pins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pins {
    messages: BTreeMap<Ordinal, Box<str>>,
    blocks: BTreeMap<(Ordinal, u16), Box<str>>,
}

impl Pins {
    /// Collects the pins of a working state. Each pin names an existing message.
    pub(crate) fn of(state: &WorkingState, transcript: &Transcript) -> Self {
        let mut pins = Self::default();
        for pin in &state.pins {
            match &pin.target {
                PinTarget::Message(id) => {
                    let place = transcript.find(*id);
                    pins.messages
                        .extend(place.map(|place| (place, pin.id.clone())));
                }
                PinTarget::Block(id, block) => {
                    let place = transcript.find(*id);
                    let pinned = place.map(|place| ((place, *block), pin.id.clone()));
                    pins.blocks.extend(pinned);
                }
                PinTarget::Text(_) => {}
            }
        }
        pins
    }

    /// Returns true if nothing in the transcript is pinned.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.blocks.is_empty()
    }

    /// Returns the pin of a message, or of one of its blocks.
    pub fn pin_of_message(&self, message: Ordinal) -> Option<&str> {
        let mut blocks = self.blocks.range((message, 0)..=(message, u16::MAX));
        let of_block = || blocks.next().map(|(_, pin)| pin);
        let pin = self.messages.get(&message).or_else(of_block)?;
        Some(pin)
    }

    /// Returns the pin of a block, or of its whole message.
    pub fn pin_of_block(&self, message: Ordinal, block: u16) -> Option<&str> {
        let of_message = || self.messages.get(&message);
        let pin = self.blocks.get(&(message, block)).or_else(of_message)?;
        Some(pin)
    }
}
