//! Places in the array of a target at which a prompt cache ends or an edit of it is pinned.

use super::etag::{Etag, Prefix, kept_messages};
use super::places::{messages_before, places_of};
use super::target::Target;
use super::wire::{in_array, wire};
use crate::event::PinPlace;
use crate::ids::Ordinal;
use crate::session::{CachePin, ContentNotLoaded, Session};

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
    pub fn edit_places(
        &self,
        target: &Target,
        length: u32,
    ) -> Result<Vec<Option<u32>>, ContentNotLoaded> {
        let pins = self.cache_edits().pins();
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
    fn array_length(&self, target: &Target, known: Option<Etag>) -> Result<u32, ContentNotLoaded> {
        let prefix = match known {
            Some(etag) => etag.prefix(self, target)?,
            None => Prefix::default(),
        };
        let new = wire(self, &self.sealed().pieces()[prefix.from..], target)?;
        Ok(prefix.keep + in_array(&new, target))
    }

    /// How many messages of the array for a target are made of the first `pieces` pieces alone, where
    /// the length of the array is known. Its cost is that of what follows them.
    pub fn messages_before(
        &self,
        pieces: usize,
        target: &Target,
        length: u32,
    ) -> Result<u32, ContentNotLoaded> {
        messages_before(self, pieces, target, length)
    }

    /// How many messages of the array for a target are made of the first `pieces` pieces alone.
    pub fn messages_of(&self, pieces: usize, target: &Target) -> Result<u32, ContentNotLoaded> {
        kept_messages(self, pieces, target)
    }
}
