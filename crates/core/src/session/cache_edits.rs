//! The edits that the provider applies to its own cache: cumulative, and pinned to the message where
//! each was first given, because a request must repeat all of them at the same places.

use super::{NotHeld, Session};
use crate::event::{CacheEditsIssued, PinPlace};
use crate::ids::{CallKey, Ordinal};
use crate::view::{Etag, Prefix, Target, in_array, places_of, wire};

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

impl Session {
    /// The place of the last message in the array for a target, of which the caller says what it has.
    /// None when that takes more than is held.
    pub fn last_place(&self, target: &Target, known: Option<Etag>) -> Option<PinPlace> {
        let length = self.array_length(target, known).ok()?;
        Some(PinPlace {
            target: target.digest(),
            message: length.checked_sub(1)?,
        })
    }

    /// For each edit of the provider's cache, the place of its message in the array for a target, which
    /// has `length` messages; none where the target does not see it.
    ///
    /// A place is noted when the edit is first given, because there are more and more edits and the
    /// oldest may be as old as the session. Only after the view has changed, or for another target, are
    /// they looked for, from the end.
    pub fn edit_places(&self, target: &Target, length: u32) -> Result<Vec<Option<u32>>, NotHeld> {
        let pins = self.cache_edits.pins();
        let digest = target.digest();
        let noted = |pin: &CachePin| pin.place.filter(|place| place.target == digest);
        let mut places: Vec<_> = pins
            .iter()
            .map(|pin| noted(pin).map(|place| place.message))
            .collect();
        let unknown = |index: &usize| places[*index].is_none();
        let missing: Vec<usize> = (0..pins.len()).filter(unknown).collect();
        let messages: Vec<Ordinal> = missing.iter().map(|index| pins[*index].message).collect();
        let found = places_of(self, &messages, target, length)?;
        for (index, place) in missing.into_iter().zip(found) {
            places[index] = place;
        }
        Ok(places)
    }

    /// How many messages the array for a target has. What the caller says it has is not looked at again.
    fn array_length(&self, target: &Target, known: Option<Etag>) -> Result<u32, NotHeld> {
        let prefix = match known {
            Some(etag) => etag.prefix(self, target)?,
            None => Prefix::default(),
        };
        let new = wire(self, &self.sealed().pieces()[prefix.from..], target)?;
        Ok(prefix.keep + in_array(&new, target))
    }
}
