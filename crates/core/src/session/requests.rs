//! Which requests a session has answered, so that a retry gets the same answer and changes nothing.

use crate::event::{RequestMethod, RequestStamp};
use std::collections::{HashMap, VecDeque};

use crate::ids::{Revision, Timestamp};
use crate::message::Digest;

/// How many requests are remembered.
const MAX_REQUESTS: usize = 1_000;
/// For how long.
const MAX_AGE_MS: u64 = 24 * 60 * 60 * 1_000;

/// A request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredRequest {
    /// What was asked.
    pub digest: Digest,
    /// The event that answers it.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
}

/// The requests that are remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    by_id: HashMap<(RequestMethod, Box<str>), AnsweredRequest>,
    order: VecDeque<(RequestMethod, Box<str>)>,
}

impl Requests {
    /// An answered request, unless it is too old to count at `now`.
    pub fn find(&self, stamp: &RequestStamp, now: Timestamp) -> Option<AnsweredRequest> {
        let answered = *self.by_id.get(&(stamp.method, stamp.id.clone()))?;
        (now.millis_since(answered.at) <= MAX_AGE_MS).then_some(answered)
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (RequestMethod, &str, AnsweredRequest)> {
        self.order.iter().filter_map(|key| {
            let answered = *self.by_id.get(key)?;
            Some((key.0, &*key.1, answered))
        })
    }

    /// Remembers one, and forgets what is too old or too much.
    pub fn record(&mut self, method: RequestMethod, id: &str, answered: AnsweredRequest) {
        let key = (method, Box::from(id));
        if self.by_id.insert(key.clone(), answered).is_some() {
            self.order.retain(|other| *other != key);
        }
        self.order.push_back(key);
        while let Some(oldest) = self.order.front() {
            let age = self
                .by_id
                .get(oldest)
                .map_or(0, |old| answered.at.millis_since(old.at));
            if self.order.len() <= MAX_REQUESTS && age <= MAX_AGE_MS {
                break;
            }
            if let Some(key) = self.order.pop_front() {
                self.by_id.remove(&key);
            }
        }
    }
}
