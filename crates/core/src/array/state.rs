//! Changes of the caller's array by events.
//!
//! Appended and rewound messages change the links without an event of their own, so the links never disagree with the
//! transcript. [`ArraySynced`] records every other difference.

use super::links::{CallerArray, Link, LinkKind, MAX_RESPONSES, RecordedItem};
use crate::event::ArraySynced;
use crate::ids::Ordinal;
use crate::message::{CANONICAL_VERSION, CanonicalDigests, Digest, Message, Role};

impl CallerArray {
    /// Returns true if the links can be compared with new elements.
    pub fn is_current(&self) -> bool {
        self.version == u32::from(CANONICAL_VERSION)
    }

    /// Returns the event that turns this array into `after` and adds a tip. `None` if both arrays are equal and there is
    /// no tip.
    pub(crate) fn change_to(&self, after: Self, tip: Option<Digest>) -> Option<ArraySynced> {
        if *self == after && tip.is_none() {
            return None;
        }
        let both = self.links.iter().zip(&after.links);
        let keep = both.take_while(|(before, after)| before == after).count();
        let mut links = after.links;
        links.drain(..keep);
        Some(ArraySynced {
            version: after.version,
            format: after.format,
            lead: (self.lead != after.lead).then_some(after.lead),
            keep: crate::view::count(keep),
            links,
            is_provisional: after.is_provisional,
            // Only `ConfirmResponse` makes messages visible. It fills this field itself.
            confirmed: Vec::new(),
            abandoned: after.abandoned,
            tip,
        })
    }

    pub(crate) fn synced(&mut self, event: &ArraySynced) {
        self.version = event.version;
        self.format = event.format;
        if let Some(lead) = &event.lead {
            self.lead.clone_from(lead);
        }
        self.links.truncate(event.keep as usize);
        self.links.extend_from_slice(&event.links);
        self.is_provisional = event.is_provisional;
        self.abandoned.clone_from(&event.abandoned);
    }

    /// Adds a response at the known end. Returns the messages of the oldest response if there are too many.
    pub(crate) fn record(&mut self, items: Vec<RecordedItem>) -> Vec<RecordedItem> {
        self.responses.push(items);
        let excess = self.responses.len().saturating_sub(MAX_RESPONSES);
        self.responses.drain(..excess).flatten().collect()
    }

    /// Returns the array after the confirmation of a recorded response.
    pub(crate) fn confirmed(&self, response: usize) -> Option<Self> {
        let mut after = self.clone();
        let items = after.responses.get(response)?.clone();
        let links = items.iter().map(|item| Link {
            digest: item.digests.key(),
            role: Role::Assistant,
            message: item.message,
            kind: item.kind,
        });
        after.links.extend(links);
        after.responses.clear();
        Some(after)
    }

    /// Adds a visible message.
    pub(crate) fn appended(&mut self, message: &Message, ordinal: Ordinal) {
        // Without a known array, no links have to follow the transcript.
        if self.version == 0 {
            return;
        }
        // Digests of two versions are not comparable, so the array is unknown from here on.
        if !self.is_current() {
            *self = Self::default();
            return;
        }
        let digests = CanonicalDigests::of(message);
        let link = Link {
            digest: digests.key(),
            role: message.role,
            message: ordinal,
            kind: LinkKind::of(&digests),
        };
        // An operator message before the conversation is no element of it.
        if !self.links.is_empty() || !message.role.is_system() {
            self.links.push(link);
        }
    }

    /// Removes the messages that a rewind removed from the view, and all elements after them.
    pub(crate) fn rewound(&mut self, left: &[Ordinal]) {
        let has_left = |link: &Link| left.binary_search(&link.message).is_ok();
        let Some(keep) = self.links.iter().position(has_left) else {
            return;
        };
        let is_part = self.links[keep].kind == LinkKind::Part;
        self.links.truncate(keep);
        // The element of a removed part is not whole any more, so no element equals it.
        let mut elements = self.links.iter_mut().rev();
        if is_part && let Some(element) = elements.find(|link| link.kind != LinkKind::Part) {
            element.digest = Digest::default();
        }
    }
}
