//! The head of a session and the rules of its changes, shared by the sled and memory engines. The code
//! has no I/O: an engine loads a record, changes it here and stores it. The PostgreSQL engine has these
//! rules in SQL.

use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::message::Digest;

use crate::work_queue::{is_due, lease_is_valid};
use crate::{
    Batch, DueChange, Lease, MAX_FILE_BYTES, MAX_FILES, MAX_FRAME_BYTES, MAX_LIST_ROW_BYTES,
    MAX_LOOKUP_DIGESTS, MAX_LOOKUP_PARENTS, MAX_OWNER_BYTES, MAX_SESSION_TIPS, Position,
    SessionHead, SnapshotMark, StoreError, Tombstone,
};

/// The head of a session as the engines store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadRecord {
    pub incarnation: u64,
    pub revision: u64,
    pub log_bytes: u64,
    pub blob_bytes: u64,
    pub tail_bytes: u64,
    pub snapshot: Option<SnapshotRecord>,
    pub due: Option<i64>,
    /// Counts the appends that set or cleared `due`. A release compares it with the value at the claim.
    pub due_changes: u64,
    pub lease: Option<LeaseRecord>,
    /// The parent of a subagent session, by which the index of subagents finds it.
    pub parent: Option<SessionKey>,
    pub list_row: Bytes,
}

/// The metadata of the current snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRecord {
    pub at: u64,
    pub bytes: u64,
    /// Part of the key of the stored bytes. A new snapshot therefore never overwrites the one that is being
    /// read.
    pub version: u64,
}

/// A lease, and the value of `due_changes` at the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    pub owner: String,
    pub until: i64,
    pub due_changes: u64,
}

impl HeadRecord {
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            revision: 0,
            log_bytes: 0,
            blob_bytes: 0,
            tail_bytes: 0,
            snapshot: None,
            due: None,
            due_changes: 0,
            lease: None,
            parent: None,
            list_row: Bytes::new(),
        }
    }

    pub fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation,
            revision: Revision::new(self.revision),
            // Engines with this record have a single history, so their positions need no token.
            token: 0,
        }
    }

    pub fn append(&mut self, batch: &Batch) {
        let bytes = batch.frame.len() as u64;
        self.revision += u64::from(batch.events.get());
        self.log_bytes += bytes;
        self.blob_bytes += batch.blob_bytes;
        self.tail_bytes += bytes;
        self.list_row = batch.list_row.clone();
        self.parent.clone_from(&batch.parent);
        match batch.due {
            // `due_changes` counts only appends that change the due time, so `Keep` returns before the increment.
            DueChange::Keep => return,
            DueChange::At(at) => self.due = Some(self.due_with(at.as_millis())),
            DueChange::Clear => self.due = None,
        }
        self.due_changes += 1;
    }

    /// Returns the due time after an append requested `at`. A session that already waits without a lease
    /// keeps the earlier time.
    fn due_with(&self, at: i64) -> i64 {
        // A lease, even an expired one, means that a worker has seen the old due time.
        let waits = self.due.filter(|_| self.lease.is_none());
        waits.map_or(at, |due| due.min(at))
    }

    /// Returns true if a snapshot at `at` would replace the current one. Fails if `at` is after the head.
    pub fn accepts_snapshot(&self, at: Revision) -> Result<bool, StoreError> {
        if at.get() > self.revision {
            return Err(StoreError::SnapshotAhead {
                at,
                head: Revision::new(self.revision),
            });
        }
        Ok(self.snapshot.is_none_or(|mark| mark.at <= at.get()))
    }

    /// Sets the current snapshot. `tail_bytes` is the size of the frames after it.
    pub fn set_snapshot(&mut self, at: Revision, bytes: u64, tail_bytes: u64) {
        let version = self.next_snapshot_version();
        self.snapshot = Some(SnapshotRecord {
            at: at.get(),
            bytes,
            version,
        });
        self.tail_bytes = tail_bytes;
    }

    pub fn next_snapshot_version(&self) -> u64 {
        self.snapshot.map_or(0, |mark| mark.version + 1)
    }

    pub fn claim(&mut self, lease: &Lease, now: Timestamp) -> bool {
        let now = now.as_millis();
        match &mut self.lease {
            // A renewal keeps `due_changes` of the first claim: the holder has not seen later changes.
            Some(held) if held.owner == lease.owner && held.until > now => {
                held.until = lease.until.as_millis();
                return true;
            }
            Some(held) if lease_is_valid(held.until, now) => return false,
            _ => {}
        }
        // The holder's own renewal above does not depend on the due time. A first claim does.
        if !self.due.is_some_and(|due| is_due(due, now)) {
            return false;
        }
        self.lease = Some(LeaseRecord {
            owner: lease.owner.clone(),
            until: lease.until.as_millis(),
            due_changes: self.due_changes,
        });
        true
    }

    pub fn release(&mut self, owner: &str, next: DueChange) -> bool {
        let Some(held) = self.lease.take_if(|held| held.owner == owner) else {
            return false;
        };
        // Otherwise an append changed the due time after the claim, so `next` is outdated.
        if held.due_changes == self.due_changes {
            match next {
                DueChange::Keep => {}
                DueChange::At(at) => self.due = Some(at.as_millis()),
                DueChange::Clear => self.due = None,
            }
        }
        true
    }

    /// Returns the tombstone that replaces the record when the session is deleted.
    pub fn tombstone(&self, key: &SessionKey, at: Timestamp) -> Tombstone {
        Tombstone {
            key: key.clone(),
            incarnation: self.incarnation,
            at,
            lease: self.head().lease,
        }
    }

    /// Returns the time at which the session becomes ready for a worker, which is its sort key in the
    /// queue.
    pub fn ready_at(&self) -> Option<i64> {
        let lease_end = self.lease.as_ref().map_or(i64::MIN, |held| held.until);
        self.due.map(|due| due.max(lease_end))
    }

    /// Returns true if a worker may claim the session at `now`.
    pub fn is_ready(&self, now: i64) -> bool {
        let is_held = |held: &LeaseRecord| lease_is_valid(held.until, now);
        self.due.is_some_and(|due| is_due(due, now)) && !self.lease.as_ref().is_some_and(is_held)
    }

    /// Returns the size that counts towards the storage usage of the project, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        let snapshot = self.snapshot.map_or(0, |mark| mark.bytes);
        self.log_bytes
            .saturating_add(snapshot)
            .saturating_add(self.blob_bytes)
    }

    pub fn head(&self) -> SessionHead {
        SessionHead {
            revision: Revision::new(self.revision),
            incarnation: self.incarnation,
            token: 0,
            list_row: self.list_row.clone(),
            snapshot: self.snapshot.map(|mark| SnapshotMark {
                at: Revision::new(mark.at),
                bytes: mark.bytes,
            }),
            log_bytes: self.log_bytes,
            blob_bytes: self.blob_bytes,
            tail_bytes: self.tail_bytes,
            due: self.due.map(Timestamp::from_millis),
            lease: self.lease.as_ref().map(|held| Lease {
                owner: held.owner.clone(),
                until: Timestamp::from_millis(held.until),
            }),
        }
    }
}

impl Tombstone {
    /// Implements [`crate::Tombstones::claim_removal`].
    pub fn claim(&mut self, incarnation: u64, lease: Lease, now: Timestamp) -> bool {
        let is_held = |held: &Lease| held.owner != lease.owner && held.is_valid(now);
        if self.incarnation != incarnation || self.lease.as_ref().is_some_and(is_held) {
            return false;
        }
        self.lease = Some(lease);
        true
    }

    /// Returns true if no other owner holds the lease of the tombstone.
    pub fn may_be_forgotten_by(&self, owner: &str) -> bool {
        // Expired or not, a lease of another owner means that another process has taken over the removal.
        self.lease.as_ref().is_none_or(|lease| lease.owner == owner)
    }
}

fn check_length(what: &'static str, len: usize, max: usize) -> Result<(), StoreError> {
    if len > max {
        return Err(StoreError::TooLarge { what, len, max });
    }
    Ok(())
}

/// Rejects a change that was decided on another position than the current one.
pub fn check_position(current: Option<&HeadRecord>, expected: Position) -> Result<(), StoreError> {
    let current = current.map_or(Position::START, HeadRecord::position);
    // The token is not compared: the engines that use this function have a single history.
    if (current.incarnation, current.revision) == (expected.incarnation, expected.revision) {
        return Ok(());
    }
    Err(StoreError::Conflict {
        current: current.revision,
    })
}

/// Rejects a batch that exceeds a size limit.
pub fn check_batch(batch: &Batch) -> Result<(), StoreError> {
    check_length("an append", batch.frame.len(), MAX_FRAME_BYTES)?;
    check_length("a summary", batch.list_row.len(), MAX_LIST_ROW_BYTES)?;
    let tips = batch.tips.as_ref().map_or(0, |tips| tips.digests.len());
    check_length("a list of tips", tips, MAX_SESSION_TIPS)?;
    check_files(&batch.completed_intents)
}

/// Rejects a lookup with too many digests.
pub fn check_lookup(digests: &[Digest]) -> Result<(), StoreError> {
    check_length("a lookup of digests", digests.len(), MAX_LOOKUP_DIGESTS)
}

/// Rejects a lookup with too many parents.
pub fn check_parents(parents: &[SessionKey]) -> Result<(), StoreError> {
    check_length("a lookup of parents", parents.len(), MAX_LOOKUP_PARENTS)
}

/// Rejects a list of files that is too long or contains an empty or too long name.
pub fn check_files(files: &[Box<str>]) -> Result<(), StoreError> {
    check_length("a list of files", files.len(), MAX_FILES)?;
    let mut longest = files.iter().map(|file| file.len());
    // The fold ends with `None` at an empty name.
    let longest = longest.try_fold(0, |most, len| (len > 0).then_some(most.max(len)));
    // An empty name is reported as too long, because both are invalid.
    check_length(
        "a file's name",
        longest.unwrap_or(usize::MAX),
        MAX_FILE_BYTES,
    )
}

/// Rejects a snapshot that exceeds the size limit.
pub fn check_snapshot(bytes: &Bytes) -> Result<(), StoreError> {
    check_length("a snapshot", bytes.len(), MAX_FRAME_BYTES)
}

/// Rejects a lease whose owner name is too long.
pub fn check_lease(lease: &Lease) -> Result<(), StoreError> {
    check_length("a lease owner", lease.owner.len(), MAX_OWNER_BYTES)
}
