//! Leases of leader tasks for engines that a single process uses.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use palimpsest_core::ids::Timestamp;

use crate::Lease;

/// The current lease of each leader task.
#[derive(Debug, Default)]
pub struct LeaderTasks(Mutex<BTreeMap<&'static str, Lease>>);

impl LeaderTasks {
    /// Implements [`crate::Leadership::claim_leader_task`].
    pub fn claim(&self, duty: &'static str, lease: Lease, now: Timestamp) -> bool {
        let mut duties = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has = duties.get(duty);
        // A claim beyond twice the requested length was made by a process with a wrong clock.
        // The lease ends at `now + length`, so the difference is `now + 2 * length`.
        let wrong = 2 * lease.until.as_millis() - now.as_millis();
        let is_mine = has.is_none_or(|it| {
            // The holder may renew, and anyone may take an expired or invalid claim.
            it.owner == lease.owner || it.until <= now || it.until.as_millis() > wrong
        });
        if is_mine {
            duties.insert(duty, lease);
        }
        is_mine
    }
}
