//! The work queue: due times of sessions, and the leases of workers. A lease is a part of the session's row, so claims and
//! appends of one session are ordered.

use async_trait::async_trait;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};

use crate::StoreError;

/// The maximum length of a lease owner's name, in bytes. The limit ensures that a head always fits one
/// stored value.
pub const MAX_OWNER_BYTES: usize = 256;

/// The maximum length of a lease, in milliseconds. Settings cannot exceed it. A lease with a longer
/// remaining time was taken by a process with a wrong clock and is ignored.
pub const LONGEST_LEASE_MS: i64 = 60 * 60 * 1000;

/// The maximum distance of a due time from now, in milliseconds. A later due time was set by a process
/// with a wrong clock and counts as due. A worker with nothing to do schedules its next look before
/// then.
pub const LONGEST_WAIT_MS: i64 = 5 * 60 * 1000;

/// A change of a session's due time in the work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueChange {
    /// Keeps the current due time.
    Keep,
    /// Sets the due time. An earlier due time is kept if the session has no lease, not even an expired one.
    /// Otherwise a session that changes all the time would be postponed for ever.
    At(Timestamp),
    /// Removes the session from the queue.
    Clear,
}

impl DueChange {
    /// Returns a change to `due`, or to half of [`LONGEST_WAIT_MS`] from now if that is sooner. The worker
    /// then looks at the session again. The other half is a margin for clock differences.
    pub fn at(due: Timestamp, now: Timestamp) -> Self {
        Self::At(due.min(now.plus_millis(LONGEST_WAIT_MS.unsigned_abs() / 2)))
    }
}

/// A session with work that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSession {
    /// The session.
    pub key: SessionKey,
    /// The due time.
    pub at: Timestamp,
    /// The revision at the time of listing. Workers compute their lag from it.
    pub revision: Revision,
}

/// A worker's query for due sessions.
#[derive(Debug, Clone, Copy)]
pub struct DueQuery<'a> {
    /// The owner name of the worker's leases.
    pub owner: &'a str,
    /// The maximum number of sessions per project. Without it, a project with thousands of due sessions
    /// would hide all others.
    pub max_per_project: usize,
    /// Sessions that another worker released last are returned only if they became ready before this time.
    /// That worker may still have them cached. An engine with a single process may ignore this field.
    pub others_ready_before: Timestamp,
}

impl DueQuery<'static> {
    /// A query without restrictions: any owner, any number per project.
    pub const ALL: Self = Self {
        owner: "",
        max_per_project: usize::MAX,
        others_ready_before: Timestamp::from_millis(i64::MAX),
    };
}

/// The exclusive right to work on a session until a deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The worker that holds the lease.
    pub owner: String,
    /// The deadline. The lease expires then unless it is renewed, so a worker that died does not keep it.
    pub until: Timestamp,
}

impl Lease {
    /// Returns true if the lease is valid at `now`. A lease with more than [`LONGEST_LEASE_MS`] remaining
    /// was taken by a process with a wrong clock and is not valid.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        lease_is_valid(self.until.as_millis(), now.as_millis())
    }

    /// Returns the remaining time at `now`, in milliseconds. The result is at most 100 years, so that
    /// adding it to a clock value does not overflow.
    pub(crate) fn length_ms(&self, now: Timestamp) -> i64 {
        const CENTURY_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
        let length = self.until.as_millis().saturating_sub(now.as_millis());
        length.min(CENTURY_MS)
    }
}

/// Returns true if a lease with the deadline `until` is valid. Both times are in milliseconds.
pub(crate) fn lease_is_valid(until: i64, now: i64) -> bool {
    until > now && until <= now.saturating_add(LONGEST_LEASE_MS)
}

/// Returns true if a session with this due time is due. Both times are in milliseconds.
pub(crate) fn is_due(due: i64, now: i64) -> bool {
    due <= now || due > now.saturating_add(LONGEST_WAIT_MS)
}

/// The queue of sessions with due work.
#[async_trait]
pub trait WorkQueue: Send + Sync + 'static {
    /// Returns up to `limit` due sessions that match a query and are not leased. They are ordered by the time at which
    /// they became ready: the due time or the end of an expired lease, whichever is later.
    ///
    /// Sessions with a time further ahead than [`LONGEST_WAIT_MS`] or [`LONGEST_LEASE_MS`] are due too, and
    /// follow last. A wrong clock set these times.
    async fn due(
        &self,
        query: DueQuery<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueSession>, StoreError>;

    /// Takes the lease of a due session unless another worker holds it. Returns true if the caller holds
    /// the lease. A repeated claim by the holder renews the lease, even if the due time has changed.
    ///
    /// If several processes share the log, the engine uses its own clock instead of `now`, also in [`Self::due`]. A
    /// process with a wrong clock therefore takes no lease from others. If one process has the log to itself, leases
    /// end with that process.
    async fn claim(
        &self,
        key: &SessionKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Releases a lease and applies `next` to the due time. Returns false if the caller no longer holds the
    /// lease.
    ///
    /// `next` is ignored if an append set or cleared the due time since the claim, because the worker did
    /// not see that change. A deleted session's lease is released on its tombstone.
    async fn release(
        &self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, StoreError>;
}
