//! The storage contract that every store engine implements: session logs, file intents, tombstones,
//! leases and the work queue.

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use tokio::sync::broadcast;

use crate::{StoreError, StoreId};

/// The maximum size of one append's frame or of one snapshot, in bytes. The limit bounds the memory of
/// a write and the time that one session can delay others.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The maximum size of a session summary, in bytes. Every append rewrites the summary, so it must stay
/// small.
pub const MAX_SUMMARY_BYTES: usize = 2048;

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
/// The maximum number of files that one append may name for the first time. [`SessionLog::intend`] has
/// the same limit per call.
pub const MAX_FILES: usize = 4096;

/// The maximum length of a file name, in bytes.
pub const MAX_FILE_BYTES: usize = 160;

/// The maximum number of rows that one call of [`SessionLog::list`] or [`SessionLog::due`] returns. The
/// limit keeps replies independent of the size of the store.
pub const MAX_LIST: usize = 1000;

/// The events of one append, encoded as one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The revision of the first event. Readers use it to skip frames.
    pub first: Revision,
    /// The number of events in the frame. A reader can find the next frame without decoding this one.
    pub events: u32,
    /// The events, encoded and compressed by the caller.
    pub bytes: Bytes,
}

impl Frame {
    /// Returns the revision of the last event. The next frame must start at the revision after it.
    pub fn last(&self) -> Revision {
        Revision::new(self.first.get() + u64::from(self.events) - 1)
    }
}

/// Identifies one history of a session: the incarnation, the number of events and the token of the last
/// append. Comparing positions detects two cases: the session was deleted and created again, or the
/// store lost appends and continued from an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Distinguishes sessions with the same name. Never zero and never reused within a store.
    pub incarnation: u64,
    /// The number of events in the log.
    pub revision: Revision,
    /// Distinguishes appends that led to the same revision. Two such appends exist after a store continued
    /// from an earlier state: a lagging standby was promoted, or a backup was restored. Zero means unknown
    /// or not needed by the engine, and is not compared.
    pub token: u64,
}

impl Position {
    /// The position of a session that does not exist.
    pub const START: Self = Self {
        incarnation: 0,
        revision: Revision::ZERO,
        token: 0,
    };

    /// Returns true if both positions identify the same history. A token of zero is not compared.
    #[must_use]
    pub fn agrees(self, other: Self) -> bool {
        // Engines with a single history do not use tokens and set zero.
        let tokens = [self.token, other.token];
        self.incarnation == other.incarnation
            && self.revision == other.revision
            && (tokens.contains(&0) || self.token == other.token)
    }

    /// Returns the position of the same session at another revision. The token becomes zero, because the
    /// append is unknown.
    #[must_use]
    pub fn at(self, revision: Revision) -> Self {
        Self {
            revision,
            token: 0,
            ..self
        }
    }
}

/// The changes of one append. They are applied atomically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The position that the events were decided on. [`Position::START`] creates the session.
    pub expected: Position,
    /// The number of events in the frame.
    pub events: NonZeroU32,
    /// The encoded events. The store does not interpret them.
    pub frame: Bytes,
    /// The data that lists return for the session without reading its log. The store does not interpret it.
    /// Each append replaces it.
    pub summary: Bytes,
    /// The change of the session's due time in the work queue.
    pub due: DueChange,
    /// The size of the blobs that these events name for the first time, in bytes. It counts towards the
    /// storage usage.
    pub blob_bytes: u64,
    /// The files that these events name for the first time. Each was announced by [`SessionLog::intend`],
    /// and the append ends its intent. The append fails with [`StoreError::IntentRevoked`] if a sweep has
    /// doomed one of them.
    pub settles: Vec<Box<str>>,
}

/// A file that is about to be stored, or that was stored and is not named by any event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIntent {
    /// The session whose events may name the file.
    pub key: SessionKey,
    /// The file's name among the session's results.
    pub file: Box<str>,
    /// The time of the intent.
    pub at: Timestamp,
    /// True after a sweep has doomed the file. No append can name it any more.
    pub is_doomed: bool,
}

/// A page of intents, ordered by session and file. An empty page means that no more follow.
#[derive(Debug, Default)]
pub struct IntentPage {
    /// The readable intents.
    pub intents: Vec<FileIntent>,
    /// The number of unreadable intents that this page skips. Their files stay.
    pub unreadable: u64,
}

/// Collects the records of a page.
#[derive(Debug, Default)]
pub(crate) struct IntentCollector {
    page: IntentPage,
    /// Unreadable records after the last readable one. The next page begins there and counts them.
    trailing: u64,
}

impl IntentCollector {
    /// Adds a record, or counts an unreadable one.
    pub(crate) fn push(&mut self, intent: Option<FileIntent>) {
        match intent {
            Some(intent) => {
                self.page.intents.push(intent);
                self.page.unreadable += std::mem::take(&mut self.trailing);
            }
            None => self.trailing += 1,
        }
    }

    /// Returns the number of readable intents.
    pub(crate) fn len(&self) -> usize {
        self.page.intents.len()
    }

    /// Returns the page. No page follows an empty one, so it counts all its unreadable records.
    pub(crate) fn page(mut self) -> IntentPage {
        if self.page.intents.is_empty() {
            self.page.unreadable = self.trailing;
        }
        self.page
    }
}

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

/// The metadata of a session, readable without its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    /// The number of events in the log.
    pub revision: Revision,
    /// Distinguishes sessions with the same name. See [`Position`].
    pub incarnation: u64,
    /// Distinguishes appends that led to the same revision. See [`Position`].
    pub token: u64,
    /// The summary that the last append stored for lists.
    pub summary: Bytes,
    /// The current snapshot, if one exists.
    pub snapshot: Option<SnapshotMark>,
    /// The size of all frames, in bytes. Used for quotas and statistics.
    pub log_bytes: u64,
    /// The size of the blobs that the events name, in bytes.
    pub blob_bytes: u64,
    /// The size of the frames after the snapshot, in bytes. A load replays them, so this size decides when
    /// the next snapshot is worth its cost.
    pub tail_bytes: u64,
    /// The due time of the session in the work queue. `None` if no work is due.
    pub due: Option<Timestamp>,
    /// The current lease, which may have expired.
    pub lease: Option<Lease>,
}

impl SessionHead {
    /// Returns the current position of the session.
    pub fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation,
            revision: self.revision,
            token: self.token,
        }
    }
}

/// The storage usage of one project or of all projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageUsage {
    /// The number of sessions.
    pub sessions: u64,
    /// The size of all frames, current snapshots and blobs, in bytes. The space on disk is larger.
    pub bytes: u64,
    /// The time since the count started. Changes made during this time may be missing.
    pub age: Duration,
}

/// The metadata of the current snapshot, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The revision of the state in the snapshot.
    pub at: Revision,
    /// The size of the snapshot, in bytes. The next snapshot is due when the tail of the log is larger.
    pub bytes: u64,
}

/// The state of a session at a revision. A load replays only the events after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// The revision of the state in the snapshot.
    pub at: Revision,
    /// The encoded state. The store does not interpret it.
    pub bytes: Bytes,
}

/// A page of session rows in the order of their names. Unreadable rows are included as errors.
#[derive(Debug, Default)]
pub struct RowPage {
    /// Each session's head, or the error that occurred while reading it.
    pub rows: Vec<(SessionKey, Result<SessionHead, StoreError>)>,
    /// The number of rows in this range whose names are unreadable. Lists cannot show them.
    pub nameless: u64,
}

impl RowPage {
    /// Returns all rows, or an error if any row is unreadable.
    pub(crate) fn complete(self) -> Result<Vec<(SessionKey, SessionHead)>, StoreError> {
        if self.nameless > 0 {
            return Err(StoreError::Read("a row has no readable name".into()));
        }
        let rows = self.rows.into_iter();
        rows.map(|(key, head)| Ok((key, head?))).collect()
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
    pub each: usize,
    /// Sessions that another worker released last are returned only if they became ready before this time.
    /// That worker may still have them cached. An engine with a single process may ignore this field.
    pub others_before: Timestamp,
}

impl DueQuery<'static> {
    /// A query without restrictions: any owner, any number per project.
    pub(crate) const ALL: Self = Self {
        owner: "",
        each: usize::MAX,
        others_before: Timestamp::from_millis(i64::MAX),
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
    pub fn holds(&self, now: Timestamp) -> bool {
        holds(self.until.as_millis(), now.as_millis())
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
pub(crate) fn holds(until: i64, now: i64) -> bool {
    until > now && until <= now.saturating_add(LONGEST_LEASE_MS)
}

/// Returns true if a session with this due time is due. Both times are in milliseconds.
pub(crate) fn is_due(due: i64, now: i64) -> bool {
    due <= now || due > now.saturating_add(LONGEST_WAIT_MS)
}

/// The record of a deleted session until all its data is removed. The deletion writes it atomically, so
/// a crash never loses a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The deleted session.
    pub key: SessionKey,
    /// The incarnation that was deleted.
    pub incarnation: u64,
    /// The time of the deletion.
    pub at: Timestamp,
    /// The lease at the time of the deletion, or the lease of the process that removes the data. A worker
    /// with this lease may still write `summary.md` until the lease is released or expires.
    pub lease: Option<Lease>,
}

/// The log of all sessions, implemented by each store engine.
///
/// - Every change of one session is atomic, and durable when its call returns `Ok`. Reads return only
///   durable data.
/// - Changes of different sessions are independent. An engine may store each session on another machine.
/// - A rejected call ([`StoreError::Conflict`] and the like) has changed nothing.
/// - The outcome of a failed call ([`StoreError::Failed`], [`StoreError::Unreachable`],
///   [`StoreError::Closed`]) is unknown. Callers compare the position to find out.
/// - Dropping a call's future does not undo its change.
#[async_trait]
pub trait SessionLog: Send + Sync + 'static {
    /// Returns true if no other process can have the log open. Operations left unfinished by an earlier
    /// process are then orphaned.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Returns the identity of the log. It never changes.
    async fn store_id(&self) -> Result<StoreId, StoreError>;

    /// Returns the metadata of a session, or `None` if no session has this name.
    async fn head(&self, key: &SessionKey) -> Result<Option<SessionHead>, StoreError>;

    /// Returns the frames after a position, oldest first. The total size is about `max_bytes`, but at least
    /// one frame is returned if any exists.
    ///
    /// The first frame contains the next revision, and may begin at or before the position. The result is
    /// empty if the session never had this position or no longer exists.
    async fn read(
        &self,
        key: &SessionKey,
        after: Position,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError>;

    /// Appends if the session is still at the expected position, and returns the new position. Otherwise
    /// fails with [`StoreError::Conflict`], which contains the current revision.
    async fn append(&self, key: &SessionKey, batch: Batch) -> Result<Position, StoreError>;

    /// Announces files that are about to be stored for a session. The intents are durable on return, so
    /// that a sweep can find files whose event was never appended. Announcing a file again updates the time
    /// of its intent.
    ///
    /// Fails with [`StoreError::IntentRevoked`] if a sweep has doomed one of the files.
    async fn intend(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns up to `limit` intents after `after`, ordered by session and file. Unreadable intents are skipped and
    /// counted, so that they do not hide others.
    async fn intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<IntentPage, StoreError>;

    /// Dooms an intent that is older than `before`. No append can end it afterwards, so its file may be
    /// deleted. Returns true if the intent is doomed now, by this call or an earlier one.
    async fn doom_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Ends an intent without an event. A missing intent is not an error.
    async fn end_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError>;

    /// Returns the current snapshot, or `None` if the session has no snapshot or does not exist any more.
    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<StoredSnapshot>, StoreError>;

    /// Replaces the snapshot with the state at a position. A snapshot older than the current one is
    /// ignored, so that a slow writer does not undo the work of a fast one. A snapshot of a position that
    /// the session never had is ignored too.
    ///
    /// Fails with [`StoreError::SnapshotAhead`] if the position is after the head.
    async fn put_snapshot(
        &self,
        key: &SessionKey,
        at: Position,
        bytes: Bytes,
    ) -> Result<(), StoreError>;

    /// Returns up to `limit` rows after `after`, ordered by name, of one project or of all projects.
    /// Unreadable rows are returned as errors and do not hide other rows. Fewer than `limit` rows mean that
    /// no more follow.
    async fn rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError>;

    /// Returns up to `limit` sessions after `after`, ordered by name, of one project or of all projects.
    /// Fails if any of them is unreadable. Use it where no session may be missed.
    async fn list(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, SessionHead)>, StoreError> {
        self.rows(project, after, limit).await?.complete()
    }

    /// Deletes a session if it is still at the expected position: its log, snapshot, row and queue entry.
    /// The deletion is atomic.
    ///
    /// A [`Tombstone`] remains until [`Self::forget`], because data in other places is still found by name.
    /// Until then, creating a session of this name fails with [`StoreError::Deleting`].
    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns the tombstone of a session name, if one exists.
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError>;

    /// Returns up to `limit` tombstones after `after`, ordered by name.
    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError>;

    /// Takes the right to remove the remaining data of a deleted session, and returns true on success.
    /// Returns false while another owner's lease on the tombstone is valid. That includes the lease that a
    /// worker held at the deletion.
    ///
    /// While the claim is valid, no other process removes data under this name, which a new session may
    /// use later. [`Self::release`] ends the claim.
    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Removes a tombstone after all data in other places was removed. Returns false while the engine still
    /// holds records of the session. The caller retries later.
    ///
    /// Also returns false if another owner holds the tombstone's lease. The caller's own claim has expired
    /// then, and another process removes the data. A missing tombstone, or one of another incarnation, is
    /// not an error.
    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError>;

    /// Returns up to `limit` sessions that are due and not leased. They are ordered by the time at which
    /// they became ready: the due time or the end of an expired lease, whichever is later.
    ///
    /// Sessions with a time further ahead than [`LONGEST_WAIT_MS`] or [`LONGEST_LEASE_MS`] are due too, and
    /// follow last. A wrong clock set these times.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<DueSession>, StoreError>;

    /// Returns up to `limit` due sessions that match a worker's query, in the order of [`Self::due`].
    async fn due_for(
        &self,
        worker: DueQuery<'_>,
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

    /// Takes or renews a leader task, which one process at a time runs for the whole store. Returns true if
    /// the caller is the leader. The claim expires at the lease deadline.
    ///
    /// A claim with more than twice the requested time remaining came from a wrong clock, and may be taken
    /// over.
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Subscribes to notifications that other processes changed sessions. Returns `None` if the engine has
    /// no other processes. A hint may be lost or outdated; callers must verify against the log.
    fn hints(&self) -> Option<broadcast::Receiver<SessionKey>> {
        None
    }

    /// Returns the storage usage of one project or of all projects without reading every session. Engines
    /// that cannot count atomically may return an earlier count: one minute old, or as old as a new count
    /// takes.
    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError>;

    /// Fails with [`StoreError::Full`] if the store has no room for a write. The check is cheap while room
    /// is available. Callers use it before they store something else, such as a blob.
    async fn has_room(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes a canary durably, to verify that the engine accepts writes.
    async fn check(&self) -> Result<(), StoreError>;

    /// Completes accepted calls and rejects later ones. The process can exit safely afterwards.
    async fn close(&self) -> Result<(), StoreError>;
}
