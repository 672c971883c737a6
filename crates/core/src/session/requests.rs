//! The requests that a session has answered. A retry returns the same answer and changes nothing.

use crate::event::{RequestMethod, RequestStamp};
use std::collections::{HashMap, VecDeque};

use crate::ids::{Revision, Timestamp};
use crate::message::Digest;

/// Maximum number of requests that are kept per session.
const MAX_REQUESTS: usize = 1_000;
/// Maximum age of a request, in milliseconds: 24 hours.
const MAX_AGE_MS: u64 = 24 * 60 * 60 * 1_000;

/// A request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredRequest {
    /// The digest of the request's body.
    pub digest: Digest,
    /// The revision of the event that answers the request.
    pub revision: Revision,
    /// Time of the answer.
    pub at: Timestamp,
}

/// The answered requests of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    by_id: HashMap<(RequestMethod, Box<str>), AnsweredRequest>,
    order: VecDeque<(RequestMethod, Box<str>)>,
}

impl Requests {
    /// Returns the answered request with this stamp. `None` if it is older than 24 hours at `now`.
    pub fn find(&self, stamp: &RequestStamp, now: Timestamp) -> Option<AnsweredRequest> {
        let answered = *self.by_id.get(&(stamp.method, stamp.id.clone()))?;
        // `record` evicts old requests only when another request arrives, so the age is checked here too.
        (now.millis_since(answered.at) <= MAX_AGE_MS).then_some(answered)
    }

    /// Iterates over all requests, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (RequestMethod, &str, AnsweredRequest)> {
        self.order.iter().filter_map(|key| {
            let answered = *self.by_id.get(key)?;
            Some((key.0, &*key.1, answered))
        })
    }

    /// Records a request and removes requests that exceed the maximum age or number.
    pub fn record(&mut self, method: RequestMethod, id: &str, answered: AnsweredRequest) {
        let key = (method, Box::from(id));
        // A repeated id moves to the end, because its age counts from the latest answer.
        if self.by_id.insert(key.clone(), answered).is_some() {
            self.order.retain(|other| *other != key);
        }
        self.order.push_back(key);
        // Entries are in the order of their answers, so the loop stops at the first one that stays.
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
