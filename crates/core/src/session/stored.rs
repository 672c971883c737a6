//! The results of a session that were stored, by the call that each belongs to.

use std::collections::{BTreeMap, HashSet};

use crate::ids::CallKey;
use crate::levels::results::Stored;
use crate::message::Digest;

/// The results that were stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredResults {
    by_call: BTreeMap<CallKey, Stored>,
    /// What stands in their places, so that it is recognised when it comes back as content.
    texts: HashSet<Digest>,
}

impl StoredResults {
    /// Puts them together again from what a snapshot holds.
    pub fn restore(all: Vec<Stored>) -> Self {
        let mut stored = Self::default();
        for one in all {
            stored.insert(one);
        }
        stored
    }

    /// The result of a call, when it was stored.
    pub fn get(&self, call: CallKey) -> Option<&Stored> {
        self.by_call.get(&call)
    }

    /// The result in a file.
    pub fn in_file(&self, file: &str) -> Option<&Stored> {
        let call = file
            .split_once('-')
            .and_then(|(call, _)| CallKey::parse(call))?;
        self.get(call).filter(|stored| &*stored.file == file)
    }

    /// All of them, in the order of their calls.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Stored> {
        self.by_call.values()
    }

    /// Whether a text stands in the place of a result.
    pub fn is_replacement(&self, text: &str) -> bool {
        !self.texts.is_empty() && self.texts.contains(&Digest::of_bytes(text.as_bytes()))
    }

    /// What stands in the place of a call's result.
    pub(crate) fn text(&self, call: CallKey) -> &str {
        self.get(call).map_or("", |stored| &stored.text)
    }

    pub(crate) fn insert(&mut self, stored: Stored) {
        self.texts.insert(Digest::of_bytes(stored.text.as_bytes()));
        self.by_call.insert(stored.call, stored);
    }
}
