//! The responses that the provider stores. The oldest ones are evicted.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

const MAX_STORED: usize = 1_000;
const MAX_STORED_BYTES: usize = 64 * 1024 * 1024;

/// The conversation up to and including a stored response.
struct Conversation {
    id: String,
    items: Vec<Value>,
    bytes: usize,
}

/// An item of stored conversations.
#[derive(Default)]
struct Item {
    /// The number of stored conversations with the item.
    uses: usize,
    /// The id of the reasoning item directly before.
    reasoning: Option<String>,
}

/// The stored responses, oldest first.
#[derive(Default)]
pub(crate) struct Stored {
    all: VecDeque<Conversation>,
    bytes: usize,
    /// The items of all stored conversations by id, because a request is checked item by item.
    items: HashMap<String, Item>,
}

impl Stored {
    /// Stores the items of a conversation under the id of its last response.
    pub(super) fn add(&mut self, id: &str, items: Vec<Value>) {
        let bytes = items.iter().map(|item| item.to_string().len()).sum();
        self.bytes += bytes;
        for (at, item) in items.iter().enumerate() {
            let Some(id) = item["id"].as_str() else {
                continue;
            };
            let entry = self.items.entry(id.to_owned()).or_default();
            // A continued conversation repeats the items of earlier ones, which may be evicted first.
            entry.uses += 1;
            let before = at.checked_sub(1).map(|before| &items[before]);
            entry.reasoning = before
                .filter(|before| before["type"] == "reasoning")
                .and_then(|before| Some(before["id"].as_str()?.to_owned()));
        }
        self.all.push_back(Conversation {
            id: id.to_owned(),
            items,
            bytes,
        });
        while self.all.len() > MAX_STORED || self.bytes > MAX_STORED_BYTES {
            let Some(oldest) = self.all.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes;
            oldest.items.iter().for_each(|item| self.release(item));
        }
    }

    /// Forgets an item that no stored conversation has any more.
    fn release(&mut self, item: &Value) {
        let Some(id) = item["id"].as_str() else {
            return;
        };
        if let Some(entry) = self.items.get_mut(id) {
            entry.uses -= 1;
            if entry.uses == 0 {
                self.items.remove(id);
            }
        }
    }

    /// Returns the items of a conversation.
    pub(super) fn context(&self, id: &str) -> Option<Vec<Value>> {
        let found = self.all.iter().rev().find(|stored| stored.id == id)?;
        Some(found.items.clone())
    }

    /// Returns true if an item with this id is stored.
    pub(super) fn has_item(&self, id: &str) -> bool {
        self.items.contains_key(id)
    }

    /// Returns the id of the reasoning item directly before a stored item.
    pub(super) fn reasoning_of(&self, id: &str) -> Option<&str> {
        self.items.get(id)?.reasoning.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAX_STORED, Stored};

    #[test]
    fn the_oldest_responses_are_evicted() {
        let mut stored = Stored::default();
        for number in 0..=MAX_STORED {
            let id = format!("resp_{number}");
            stored.add(&id, vec![json!({"id": format!("msg_{number}")})]);
        }
        assert!(stored.context("resp_0").is_none());
        assert!(stored.context("resp_1").is_some());
        assert!(!stored.has_item("msg_0") && stored.has_item("msg_1"));
        let big = "x".repeat(40 * 1024 * 1024);
        stored.add("big", vec![json!(big)]);
        stored.add("bigger", vec![json!(big)]);
        assert!(stored.context("big").is_none() && stored.context("bigger").is_some());
    }
}
