//! The contract that every engine keeps: what a session's log is, and how it changes.

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use tokio::sync::broadcast;

use crate::{StoreError, StoreId};

/// The most bytes that one append's frame or one snapshot may have. It bounds how long one session
/// can hold up the others, and how much memory a write takes.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The most bytes of a summary. It is rewritten by every append, so it must stay small.
pub const MAX_SUMMARY_BYTES: usize = 2048;

/// The most bytes of a lease owner's name, so that a head always fits one stored value.
pub const MAX_OWNER_BYTES: usize = 256;

/// The longest lease, in milliseconds: a setting may ask for no more. One that has longer to go was taken by a wrong clock,
/// and holds nobody up.
pub const LONGEST_LEASE_MS: i64 = 60 * 60 * 1000;

/// The furthest ahead of now that a session may be due, in milliseconds. A later due time was set by a wrong clock and counts
/// as due: a worker with nothing to do yet looks again before then.
pub const LONGEST_WAIT_MS: i64 = 5 * 60 * 1000;
/// The most files that one append may name for the first time, and that one call of [`SessionLog::intend`] may announce.
pub const MAX_FILES: usize = 4096;

/// The most bytes of a file's name.
pub const MAX_FILE_BYTES: usize = 160;

/// The most sessions that one call of [`SessionLog::list`] or [`SessionLog::due`] returns, so that
/// no reply grows with the store.
pub const MAX_LIST: usize = 1000;

/// One append's events, as the one encoded frame that they were appended as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The revision of its first event, by which a reader knows what it may skip.
    pub first: Revision,
    /// How many events it holds, so that a reader need not decode it to find the next.
    pub events: u32,
    /// The events, encoded and compressed by the caller.
    pub bytes: Bytes,
}

impl Frame {
    /// The revision of its last event, which is where the next frame must join.
    pub fn last(&self) -> Revision {
        Revision::new(self.first.get() + u64::from(self.events) - 1)
    }
}

/// Where a session stands: which session of its name, how many events it holds, and by which append. What was read
/// of a session that is deleted by now is never taken for a part of a new one of that name, nor what a store has
/// lost for a part of what it holds instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Tells a session from an earlier one of the same name. Never zero, and never used again within a store.
    pub incarnation: u64,
    /// How many events it holds.
    pub revision: Revision,
    /// Tells the append that brought it there from another one to the same revision. There are two where a store went
    /// on from an earlier state of itself under those who use it: a standby took over that was behind, or a backup
    /// was put back. Zero where that cannot be or is not known, and is not compared then.
    pub token: u64,
}

impl Position {
    /// Where a session stands that is not there.
    pub const START: Self = Self {
        incarnation: 0,
        revision: Revision::ZERO,
        token: 0,
    };

    /// Returns true if both are the same place. A token that is zero is not compared.
    #[must_use]
    pub fn agrees(self, other: Self) -> bool {
        let tokens = [self.token, other.token];
        self.incarnation == other.incarnation
            && self.revision == other.revision
            && (tokens.contains(&0) || self.token == other.token)
    }

    /// The same session at another revision, by whichever append it came there.
    #[must_use]
    pub fn at(self, revision: Revision) -> Self {
        Self {
            revision,
            token: 0,
            ..self
        }
    }
}

/// What one append changes, all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What the events were decided on; [`Position::START`] creates the session.
    pub expected: Position,
    /// How many events the frame holds. Never none: an append that adds nothing is not one.
    pub events: NonZeroU32,
    /// The events, encoded. Opaque here.
    pub frame: Bytes,
    /// What lists show of the session without reading its log. Opaque here, replaced by each append.
    pub summary: Bytes,
    /// Whether the session's place in the worker's queue changes with it.
    pub due: DueChange,
    /// Bytes of the blobs that these events name for the first time: they count into what is stored.
    pub blob_bytes: u64,
    /// The files that these events name for the first time. Each was announced by [`SessionLog::intend`], and the append
    /// ends that intent. It is refused with [`StoreError::IntentRevoked`] where a sweep has taken one of them up.
    pub settles: Vec<Box<str>>,
}

/// A file that is about to be stored, or was stored and is named by no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIntent {
    /// The session whose events may come to name it.
    pub key: SessionKey,
    /// The file's name among the session's results.
    pub file: Box<str>,
    /// The time of the intent.
    pub at: Timestamp,
    /// True once a sweep has taken the file up: no append can name it any more.
    pub is_doomed: bool,
}

/// A change of a session's place in the worker's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueChange {
    /// It stays as it is.
    Keep,
    /// The worker should look at it from then on. Where nobody has a lease of it, not even one that lapsed, and it waits
    /// since before then, it goes on waiting since that: what changes all the time would wait for ever, and never long.
    At(Timestamp),
    /// There is nothing for the worker to do.
    Clear,
}

impl DueChange {
    /// Due at a time, or after half of [`LONGEST_WAIT_MS`] where that is sooner: the worker looks again then. Half, because
    /// clocks differ.
    pub fn at(due: Timestamp, now: Timestamp) -> Self {
        Self::At(due.min(now.plus_millis(LONGEST_WAIT_MS.unsigned_abs() / 2)))
    }
}

/// What is known of a session without reading its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    /// How many events it holds.
    pub revision: Revision,
    /// Tells a session from an earlier one of the same name: see [`Position`].
    pub incarnation: u64,
    /// Tells the last append from another one to the same revision: see [`Position`].
    pub token: u64,
    /// What the last append said that lists should show.
    pub summary: Bytes,
    /// The current snapshot, if one was taken.
    pub snapshot: Option<SnapshotMark>,
    /// The bytes of all frames, for quotas and for people.
    pub log_bytes: u64,
    /// The bytes of the blobs that its events name.
    pub blob_bytes: u64,
    /// The bytes of the frames that a load reads after the snapshot: they say when the next one pays.
    pub tail_bytes: u64,
    /// Since when the worker should look at it.
    pub due: Option<Timestamp>,
    /// Who is looking at it.
    pub lease: Option<Lease>,
}

impl SessionHead {
    /// Where the session stands.
    pub fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation,
            revision: self.revision,
            token: self.token,
        }
    }
}

/// What a project, or all of them together, holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageUsage {
    /// Sessions.
    pub sessions: u64,
    /// Bytes of their frames, current snapshots and blobs, as they were given: what a disk needs for
    /// them is more.
    pub bytes: u64,
    /// The time since counting began. Changes of that time may be missing.
    pub age: Duration,
}

/// Where the current snapshot stands, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The revision that it holds the state of.
    pub at: Revision,
    /// Its size: the next one is due when the tail outgrows it.
    pub bytes: u64,
}

/// The state of a session at a revision, so that a load need not replay the whole log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// The revision that it holds the state of.
    pub at: Revision,
    /// The state, encoded. Opaque here.
    pub bytes: Bytes,
}

/// Rows of sessions in the order of their names, with those that cannot be read in their places.
#[derive(Debug, Default)]
pub struct RowPage {
    /// Each session's head, or why it cannot be read.
    pub rows: Vec<(SessionKey, Result<SessionHead, StoreError>)>,
    /// Rows between them without a readable name, which no list can show.
    pub nameless: u64,
}

impl RowPage {
    /// All of them, for somebody who must not miss one.
    pub(crate) fn complete(self) -> Result<Vec<(SessionKey, SessionHead)>, StoreError> {
        if self.nameless > 0 {
            return Err(StoreError::Read("a row has no readable name".into()));
        }
        let rows = self.rows.into_iter();
        rows.map(|(key, head)| Ok((key, head?))).collect()
    }
}

/// A session that the worker should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSession {
    /// Which.
    pub key: SessionKey,
    /// Since when.
    pub at: Timestamp,
    /// Its revision when it was listed, so that a worker can see what it is behind by.
    pub revision: Revision,
}

/// A worker that asks what is due.
#[derive(Debug, Clone, Copy)]
pub struct DueQuery<'a> {
    /// The name under which it holds leases.
    pub owner: &'a str,
    /// No more than so many of one project: a project with thousands of due sessions must not hide those of the
    /// others.
    pub each: usize,
    /// What another worker has given back last is left to it, which may still have it in memory, unless it has been
    /// ready since before then. A log that one process has to itself need not know who that was.
    pub others_before: Timestamp,
}

impl DueQuery<'static> {
    /// Whatever is due.
    pub(crate) const ALL: Self = Self {
        owner: "",
        each: usize::MAX,
        others_before: Timestamp::from_millis(i64::MAX),
    };
}

/// The right to work on a due session for a while, so that two workers do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The worker that holds it.
    pub owner: String,
    /// When it lapses unless renewed: a worker that died must not keep it.
    pub until: Timestamp,
}

impl Lease {
    /// Returns true if the lease holds at a time. A lease with longer to go than any lease can have was taken by a wrong
    /// clock and does not hold.
    pub fn holds(&self, now: Timestamp) -> bool {
        holds(self.until.as_millis(), now.as_millis())
    }

    /// The remaining length at a time, in milliseconds. It is bounded so that it can be added to any time.
    pub(crate) fn length_ms(&self, now: Timestamp) -> i64 {
        const CENTURY_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
        let length = self.until.as_millis().saturating_sub(now.as_millis());
        length.min(CENTURY_MS)
    }
}

/// Returns true if a lease that ends at `until` holds.
pub(crate) fn holds(until: i64, now: i64) -> bool {
    until > now && until <= now.saturating_add(LONGEST_LEASE_MS)
}

/// Returns true if a session with this due time is due now.
pub(crate) fn is_due(due: i64, now: i64) -> bool {
    due <= now || due > now.saturating_add(LONGEST_WAIT_MS)
}

/// What is left of a deleted session until everything that belonged to it is gone. It is written in
/// the same change that takes the log away, so a crash forgets no deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The session.
    pub key: SessionKey,
    /// Which one of that name.
    pub incarnation: u64,
    /// When it was deleted.
    pub at: Timestamp,
    /// Who was looking at it then, and may write its `summary.md` until the lease is given back or
    /// lapses.
    pub lease: Option<Lease>,
}

/// An engine that keeps every session's log.
///
/// Every change of one session is atomic and durable when its call returns `Ok`; what a call shows
/// is durable too. Changes of different sessions do not depend on each other, so an engine may keep
/// each session on another machine. What a call was refused for ([`StoreError::Conflict`] and the like) it did not
/// do; of a call that could not be carried out ([`StoreError::Failed`], [`StoreError::Unreachable`],
/// [`StoreError::Closed`]) it is not known, and comparing the position tells. Dropping a call's future does not take
/// its change back.
#[async_trait]
pub trait SessionLog: Send + Sync + 'static {
    /// Whether nobody else can have the log open: what an earlier process left under way is dead then.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// The log's identity, which never changes.
    async fn store_id(&self) -> Result<StoreId, StoreError>;

    /// What is known of a session, or nothing when there is none of that name.
    async fn head(&self, key: &SessionKey) -> Result<Option<SessionHead>, StoreError>;

    /// The frames that hold revisions after a position, oldest first, up to about `max_bytes` and always at least one
    /// if there is any. The first frame may begin at or before it: it is the one that holds the next revision. There
    /// are none when the session never stood there, or is not there any more.
    async fn read(
        &self,
        key: &SessionKey,
        after: Position,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError>;

    /// Appends if the session still stands where it is expected to, and returns where it stands then.
    /// [`StoreError::Conflict`] says at which revision it stands instead.
    async fn append(&self, key: &SessionKey, batch: Batch) -> Result<Position, StoreError>;

    /// Announces files that are about to be stored for a session, which need not exist yet. Durable when it returns, so
    /// that a file whose event never comes is found again. Announcing a file again makes its intent younger.
    /// [`StoreError::IntentRevoked`] where a sweep has taken one of them up.
    async fn intend(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Up to `limit` intents in the order of sessions and files, those after `after`.
    async fn intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<Vec<FileIntent>, StoreError>;

    /// Takes an intent up that was made before `before`, so that no append can settle it any more: its file may go.
    /// True when it is taken up, now or before.
    async fn doom_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Ends an intent without an event. An intent that does not exist is no failure.
    async fn end_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError>;

    /// The current snapshot; none when the session is not there any more.
    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<StoredSnapshot>, StoreError>;

    /// Replaces the snapshot by the session's state at a position. One that is older than the current one changes
    /// nothing, because a slow writer must not undo a fast one's work, nor does one of a position where the session
    /// never stood; one past the head is refused.
    async fn put_snapshot(
        &self,
        key: &SessionKey,
        at: Position,
        bytes: Bytes,
    ) -> Result<(), StoreError>;

    /// Up to `limit` rows in the order of their names, those after `after`; of one project or of all. One that cannot be
    /// read hides none of the others. There are fewer only where nothing follows.
    async fn rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError>;

    /// Up to `limit` sessions in the order of their names, those after `after`; of one project or of
    /// all. Fails where one of them cannot be read: it is for those who must not miss one.
    async fn list(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, SessionHead)>, StoreError> {
        self.rows(project, after, limit).await?.complete()
    }

    /// Deletes a session if it still stands where it is expected to: its log, its snapshot, its row and its place in
    /// the queue. A crash never leaves half of it to be seen. A [`Tombstone`] stays until
    /// [`Self::forget`], and as long as it does, an append that would create a session of that name is
    /// refused with [`StoreError::Deleting`]: what is still to be removed elsewhere is found by name.
    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// The tombstone of that name.
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError>;

    /// Up to `limit` tombstones in the order of their names, those after `after`.
    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError>;

    /// Takes the right to remove what is left of a deleted session, unless somebody else has it or a worker had the
    /// session's lease when it was deleted. True when it is the caller's: until then nobody else removes anything
    /// under that name, which may be a new session's by the time. [`Self::release`] gives it back.
    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Takes a tombstone away, because nothing of the session is left elsewhere. False while the
    /// engine itself still holds records of it: ask again a little later. False too while the tombstone has a lease of
    /// somebody else than `owner`: the caller's own claim lapsed, and another process removes what is left. A tombstone
    /// that is gone already, or is another incarnation's, is no failure.
    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError>;

    /// Up to `limit` sessions that are due and not leased. Ordered by when they became ready: the time
    /// they were due, or the end of a lease that lapsed, whichever is later. Those come last that a wrong clock has put
    /// further ahead than [`LONGEST_WAIT_MS`] or [`LONGEST_LEASE_MS`]: they are due too.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<DueSession>, StoreError>;

    /// The same of what one worker should take up.
    async fn due_for(
        &self,
        worker: DueQuery<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueSession>, StoreError>;

    /// Takes the lease of a due session unless another worker holds it. The holder's own claim renews
    /// its lease, whatever has become of the due time since. True when the lease is the caller's. Where several
    /// processes share the log, `now` counts only as far as the engine's own clock has come: a process whose clock is
    /// ahead takes nothing from the others. Where one has it to itself, no lease outlives the process that took it.
    async fn claim(
        &self,
        key: &SessionKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Gives a lease back with what is next for the session; false when it is no longer the owner's. If
    /// an append set or cleared the due time since the claim, that stands and `next` is ignored: the
    /// worker did not know of it. The lease of a deleted session is given back to its tombstone.
    async fn release(
        &self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, StoreError>;

    /// Takes a duty that one of the processes on a store has at a time, such as looking through all of it, unless
    /// somebody else has it. The holder's own claim renews it; it lapses by itself. True when it is the caller's. One
    /// that has more than twice as long to go as is asked for was claimed by a wrong clock, and may be taken.
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Who is told that others have changed sessions; nobody where no others are. A hint may be lost, and may be of
    /// what is known already: the log is the truth.
    fn hints(&self) -> Option<broadcast::Receiver<SessionKey>> {
        None
    }

    /// What a project holds, or all of them together, without looking at every session. An engine whose
    /// sessions cannot be changed and counted in one step may tell what it counted the last time: a minute ago, or as
    /// long ago as a new count takes.
    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError>;

    /// Whether a write has a chance: [`StoreError::Full`] when there is no room for one. Costs next to
    /// nothing while there is. For whoever stores something else first, such as a blob.
    async fn has_room(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes a canary, durably: whether the engine can still take writes.
    async fn check(&self) -> Result<(), StoreError>;

    /// Finishes what was accepted and refuses what comes after, so that a process can end knowing that
    /// nothing is under way.
    async fn close(&self) -> Result<(), StoreError>;
}
