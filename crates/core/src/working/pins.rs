//! Where the pins of a session stand in its transcript.

use std::collections::BTreeMap;

use super::{PinTarget, WorkingState};
use crate::ids::Ordinal;
use crate::session::Transcript;

/// The places of pinned messages and blocks, and the pins that name them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pins {
    messages: BTreeMap<Ordinal, Box<str>>,
    blocks: BTreeMap<(Ordinal, u16), Box<str>>,
}

impl Pins {
    /// Those of a working state. Pins only ever name messages that are there.
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

    /// Whether nothing of the transcript is pinned.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.blocks.is_empty()
    }

    /// The pin that holds a message, or a block of it.
    pub fn within(&self, message: Ordinal) -> Option<&str> {
        let mut blocks = self.blocks.range((message, 0)..=(message, u16::MAX));
        let of_block = || blocks.next().map(|(_, pin)| pin);
        let pin = self.messages.get(&message).or_else(of_block)?;
        Some(pin)
    }

    /// The pin that holds a block, or its whole message.
    pub fn at(&self, message: Ordinal, block: u16) -> Option<&str> {
        let of_message = || self.messages.get(&message);
        let pin = self.blocks.get(&(message, block)).or_else(of_message)?;
        Some(pin)
    }
}
