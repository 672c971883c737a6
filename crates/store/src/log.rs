//! The logs of sessions, with their snapshots and rows.

use std::num::NonZeroU32;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};

use crate::{DueChange, Lease, SessionTips, StoreError};

/// The maximum size of one append's frame or of one snapshot, in bytes. The limit bounds the memory of
/// a write and the time that one session can delay others.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The maximum size of a session's list row, in bytes. Every append rewrites the row, so the row must stay small.
pub const MAX_LIST_ROW_BYTES: usize = 2048;

/// The maximum number of rows that one call of [`SessionLog::list`] or [`WorkQueue::due`](crate::WorkQueue::due) returns. The
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
    pub fn matches(self, other: Self) -> bool {
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
    pub list_row: Bytes,
    /// The parent, if this is a subagent session. All appends to a session name the same parent, because an earlier
    /// release may have created the session without an entry in the index of subagents.
    pub parent: Option<SessionKey>,
    /// The change of the session's due time in the work queue.
    pub due: DueChange,
    /// The size of the blobs that these events name for the first time, in bytes. It counts towards the
    /// storage usage.
    pub blob_bytes: u64,
    /// The files that these events name for the first time. Each was declared by
    /// [`FileIntents::declare_intents`](crate::FileIntents::declare_intents), and the append ends its intent. The append
    /// fails with [`StoreError::IntentRevoked`] if a sweep has revoked the intent of one of them.
    pub completed_intents: Vec<Box<str>>,
    /// The tips of the session from now on. A tip that the session has already keeps its rank among the sessions with
    /// this tip. `None` changes no tip.
    pub tips: Option<SessionTips>,
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
    /// The list row that the last append stored.
    pub list_row: Bytes,
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
    /// The parts of the store that did not answer. Their rows are missing in this page.
    pub left_out: Vec<Box<str>>,
}

impl RowPage {
    /// Returns all rows, or an error if any row is unreadable or missing.
    pub(crate) fn into_complete(self) -> Result<Vec<(SessionKey, SessionHead)>, StoreError> {
        if self.nameless > 0 {
            return Err(StoreError::Read("a row has no readable name".into()));
        }
        check_complete(&self.left_out)?;
        let rows = self.rows.into_iter();
        rows.map(|(key, head)| Ok((key, head?))).collect()
    }
}

/// Fails if a part of the store did not answer, for a caller that must not miss a session.
pub fn check_complete(left_out: &[Box<str>]) -> Result<(), StoreError> {
    match left_out.first() {
        None => Ok(()),
        Some(part) => Err(StoreError::Unreachable(format!(
            "its node {part} does not answer, and a list without the sessions of this node is incomplete"
        ))),
    }
}

/// The logs of all sessions, with their snapshots and rows. [`Store`](crate::Store) has the rules for all changes.
#[async_trait]
pub trait SessionLog: Send + Sync + 'static {
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

    /// Deletes a session if it is still at the expected position: its log, snapshot, row and queue entry.
    /// The deletion is atomic.
    ///
    /// A [`Tombstone`](crate::Tombstone) remains until [`Tombstones::forget`](crate::Tombstones::forget), because data in other places is still found by name.
    /// Until then, creating a session of this name fails with [`StoreError::Deleting`].
    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError>;

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
    /// no more follow. A part of the store that does not answer is left out, and the page names it.
    async fn list_rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError>;

    /// Returns up to `limit` sessions after `after`, ordered by name, of one project or of all projects.
    /// Fails if any of them is unreadable, or if a part of the store does not answer. Use it where no session may be missed.
    async fn list(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, SessionHead)>, StoreError> {
        self.list_rows(project, after, limit).await?.into_complete()
    }
}
