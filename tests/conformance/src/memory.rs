//! The store engine in memory, for tests. It is the reference implementation and therefore kept simple.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use palimpsest_core::message::Digest;

use palimpsest_store::head_record::{
    HeadRecord, check_batch, check_files, check_lease, check_lookup, check_parents, check_position,
    check_snapshot,
};
use palimpsest_store::leader_tasks::LeaderTasks;
use palimpsest_store::{
    ArrayIndex, Batch, DueChange, DueQuery, DueSession, FileIntent, FileIntents, Frame, IntentPage,
    Leadership, Lease, MAX_LIST, Position, RowPage, SessionHead, SessionLog, SessionTips,
    StorageUsage, Store, StoreError, StoreId, StoredSnapshot, SubagentIndex, Tombstone, Tombstones,
    WorkQueue,
};

/// A log that is lost when the process ends, for tests and evaluation.
#[derive(Debug, Default)]
pub struct MemoryLog {
    state: Mutex<State>,
    /// The session whose deletions fail.
    undeletable: Mutex<Option<SessionKey>>,
    duties: LeaderTasks,
    id: OnceLock<StoreId>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionKey, Session>,
    tombstones: BTreeMap<SessionKey, Tombstone>,
    incarnations: u64,
    appends: u64,
    intents: BTreeMap<(SessionKey, Box<str>), FileIntent>,
    closed: bool,
}

impl State {
    /// Ends the intents of all files. Changes nothing if one of them is missing or revoked.
    fn settle(&mut self, key: &SessionKey, files: &[Box<str>]) -> Result<(), StoreError> {
        // Check all files before the first change, so that a rejection changes nothing.
        let names = files.iter().map(|file| (key.clone(), file.clone()));
        let names: Vec<_> = names.collect();
        let is_live = |name| self.intents.get(name).is_some_and(|it| !it.is_revoked);
        if let Some((_, file)) = names.iter().find(|name| !is_live(name)) {
            return Err(StoreError::IntentRevoked(file.clone()));
        }
        for name in &names {
            self.intents.remove(name);
        }
        Ok(())
    }

    fn session(&self, key: &SessionKey, incarnation: u64) -> Option<&Session> {
        let session = self.sessions.get(key);
        session.filter(|session| session.record.incarnation == incarnation)
    }
}

#[derive(Debug)]
struct Session {
    record: HeadRecord,
    frames: Vec<Frame>,
    snapshot: Bytes,
    scope: Digest,
    /// The tips, each with the number of the append that added it.
    tips: Vec<(Digest, u64)>,
}

impl Session {
    fn set_tips(&mut self, tips: SessionTips, number: u64) {
        let before = std::mem::take(&mut self.tips);
        // A tip that stays keeps its number, and with it its rank. Under another scope, all tips are new.
        let is_same_scope = self.scope == tips.scope;
        let numbered = tips.digests.into_iter().map(|digest| {
            let mut known = before.iter().filter(|_| is_same_scope);
            let known = known.find(|(known, _)| *known == digest);
            (digest, known.map_or(number, |(_, number)| *number))
        });
        self.tips = numbered.collect();
        self.scope = tips.scope;
    }
}

impl MemoryLog {
    /// Creates an empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the deletions of a session fail. `None` ends the fault.
    pub fn fail_deletion(&self, key: Option<SessionKey>) {
        *self
            .undeletable
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = key;
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(StoreError::Closed);
        }
        Ok(state)
    }
}

fn frames_after(frames: &[Frame], after: Revision) -> &[Frame] {
    // Frames are ordered, and the first kept one contains the next revision.
    let skipped = frames.partition_point(|frame| frame.last() <= after);
    &frames[skipped..]
}

#[async_trait]
impl SessionLog for MemoryLog {
    async fn head(&self, key: &SessionKey) -> Result<Option<SessionHead>, StoreError> {
        let state = self.open()?;
        Ok(state.sessions.get(key).map(|session| session.record.head()))
    }

    async fn read(
        &self,
        key: &SessionKey,
        after: Position,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError> {
        let state = self.open()?;
        let Some(session) = state.session(key, after.incarnation) else {
            return Ok(Vec::new());
        };
        let mut bytes = 0;
        let mut page = Vec::new();
        for frame in frames_after(&session.frames, after.revision) {
            bytes += frame.bytes.len();
            // A page has at least one frame. Otherwise a frame above the limit would stop the reader.
            if !page.is_empty() && bytes > max_bytes {
                break;
            }
            page.push(frame.clone());
        }
        Ok(page)
    }

    async fn append(&self, key: &SessionKey, batch: Batch) -> Result<Position, StoreError> {
        check_batch(&batch)?;
        let mut state = self.open()?;
        // All checks come before the first change, so that a rejected append leaves no trace.
        let current = state.sessions.get(key).map(|session| &session.record);
        check_position(current, batch.expected)?;
        let creates = current.is_none();
        if creates && state.tombstones.contains_key(key) {
            return Err(StoreError::Deleting(key.clone()));
        }
        state.settle(key, &batch.completed_intents)?;
        state.incarnations += u64::from(creates);
        state.appends += 1;
        let appends = state.appends;
        let incarnation = state.incarnations;
        let session = state
            .sessions
            .entry(key.clone())
            .or_insert_with(|| Session {
                record: HeadRecord::new(incarnation),
                frames: Vec::new(),
                snapshot: Bytes::new(),
                scope: Digest::default(),
                tips: Vec::new(),
            });
        session.record.append(&batch);
        if let Some(tips) = batch.tips {
            session.set_tips(tips, appends);
        }
        session.frames.push(Frame {
            first: batch.expected.revision.plus(1),
            events: batch.events.get(),
            bytes: batch.frame,
        });
        Ok(session.record.position())
    }

    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let undeletable = self.undeletable.lock();
        if undeletable.unwrap_or_else(PoisonError::into_inner).as_ref() == Some(key) {
            return Err(StoreError::Read("an injected fault".into()));
        }
        let record = state.sessions.get(key).map(|session| &session.record);
        check_position(record, expected)?;
        if let Some(session) = state.sessions.remove(key) {
            let tombstone = session.record.tombstone(key, at);
            state.tombstones.insert(key.clone(), tombstone);
        }
        Ok(())
    }

    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<StoredSnapshot>, StoreError> {
        let state = self.open()?;
        let session = state.session(key, incarnation);
        Ok(session.and_then(|session| {
            let mark = session.record.snapshot?;
            Some(StoredSnapshot {
                at: Revision::new(mark.at),
                bytes: session.snapshot.clone(),
            })
        }))
    }

    async fn put_snapshot(
        &self,
        key: &SessionKey,
        at: Position,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        check_snapshot(&bytes)?;
        let mut state = self.open()?;
        let session = state
            .sessions
            .get_mut(key)
            .filter(|session| session.record.incarnation == at.incarnation)
            .ok_or_else(|| StoreError::NotFound(key.clone()))?;
        if session.record.accepts_snapshot(at.revision)? {
            let tail = frames_after(&session.frames, at.revision);
            let tail_bytes = tail.iter().map(|frame| frame.bytes.len() as u64).sum();
            let size = bytes.len() as u64;
            session.record.set_snapshot(at.revision, size, tail_bytes);
            session.snapshot = bytes;
        }
        Ok(())
    }

    async fn list_rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let state = self.open()?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let page = state
            .sessions
            .range((from, Bound::Unbounded))
            .filter(|(key, _)| project.is_none_or(|project| key.project == *project))
            .take(limit.min(MAX_LIST));
        let rows = page.map(|(key, session)| (key.clone(), Ok(session.record.head())));
        Ok(RowPage {
            rows: rows.collect(),
            nameless: 0,
            left_out: Vec::new(),
        })
    }
}

#[async_trait]
impl ArrayIndex for MemoryLog {
    async fn find_by_tip(
        &self,
        project: &ProjectId,
        scope: Digest,
        digests: &[Digest],
    ) -> Result<Option<SessionKey>, StoreError> {
        check_lookup(digests)?;
        let state = self.open()?;
        let number = |session: &Session, digest: &Digest| {
            let mut tips = session.tips.iter().filter(|_| session.scope == scope);
            Some(tips.find(|(tip, _)| tip == digest)?.1)
        };
        Ok(digests.iter().find_map(|digest| {
            let sessions = state.sessions.iter();
            let own = sessions.filter(|(key, _)| key.project == *project);
            let found = own.filter_map(|(key, session)| Some((number(session, digest)?, key)));
            // Conversations with the same beginning have equal tips. The contract returns the session that got it last.
            found.max().map(|(_, key)| key.clone())
        }))
    }
}

#[async_trait]
impl SubagentIndex for MemoryLog {
    async fn subagents(
        &self,
        parents: &[SessionKey],
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        check_parents(parents)?;
        let state = self.open()?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let of_parent = |session: &Session| {
            let parent = session.record.parent.as_ref();
            parent.is_some_and(|parent| parents.contains(parent))
        };
        let later = state.sessions.range((from, Bound::Unbounded));
        let found = later.filter(|(_, session)| of_parent(session));
        let found = found.take(limit.min(MAX_LIST));
        Ok(found.map(|(key, _)| key.clone()).collect())
    }
}

#[async_trait]
impl WorkQueue for MemoryLog {
    async fn due(
        &self,
        query: DueQuery<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueSession>, StoreError> {
        let state = self.open()?;
        let mut ready: Vec<_> = state
            .sessions
            .iter()
            .filter_map(|(key, session)| {
                let ready = session.record.ready_at()?;
                let is_ready = session.record.is_ready(now.as_millis());
                is_ready.then_some((ready, key, &session.record))
            })
            .collect();
        ready.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        // The limit per project applies to the sorted list, so each project keeps its oldest sessions.
        let mut of_project: BTreeMap<&ProjectId, usize> = BTreeMap::new();
        ready.retain(|(_, key, _)| {
            let seen = of_project.entry(&key.project).or_default();
            *seen += 1;
            *seen <= query.max_per_project
        });
        ready.truncate(limit.min(MAX_LIST));
        Ok(ready
            .into_iter()
            .map(|(ready, key, record)| DueSession {
                key: key.clone(),
                at: Timestamp::from_millis(record.due.unwrap_or(ready)),
                revision: Revision::new(record.revision),
            })
            .collect())
    }

    async fn claim(
        &self,
        key: &SessionKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let mut state = self.open()?;
        let session = state.sessions.get_mut(key);
        Ok(session.is_some_and(|session| session.record.claim(&lease, now)))
    }

    async fn release(
        &self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, StoreError> {
        let mut state = self.open()?;
        // The lease of a deleted session has moved to its tombstone.
        if let Some(tombstone) = state.tombstones.get_mut(key) {
            let given = tombstone.lease.take_if(|lease| lease.owner == owner);
            if given.is_some() {
                return Ok(true);
            }
        }
        let session = state.sessions.get_mut(key);
        Ok(session.is_some_and(|session| session.record.release(owner, next)))
    }
}

#[async_trait]
impl Tombstones for MemoryLog {
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError> {
        Ok(self.open()?.tombstones.get(key).cloned())
    }

    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError> {
        let state = self.open()?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let page = state.tombstones.range((from, Bound::Unbounded));
        let page = page.take(limit.min(MAX_LIST));
        Ok(page.map(|(_, tombstone)| tombstone.clone()).collect())
    }

    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let mut state = self.open()?;
        let found = state.tombstones.get_mut(key);
        Ok(found.is_some_and(|found| found.claim(incarnation, lease, now)))
    }

    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError> {
        let mut state = self.open()?;
        let found = state.tombstones.get(key);
        let Some(found) = found.filter(|it| it.incarnation == incarnation) else {
            return Ok(true);
        };
        if !found.may_be_forgotten_by(owner) {
            return Ok(false);
        }
        state.tombstones.remove(key);
        Ok(true)
    }
}

#[async_trait]
impl FileIntents for MemoryLog {
    async fn declare_intents(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        check_files(&files)?;
        let mut state = self.open()?;
        let names = files.into_iter().map(|file| (key.clone(), file));
        let names: Vec<_> = names.collect();
        let doomed = |name| state.intents.get(name).is_some_and(|it| it.is_revoked);
        // A revoked intent must not be renewed, because a sweep may already delete the file.
        if let Some((_, file)) = names.iter().find(|name| doomed(name)) {
            return Err(StoreError::IntentRevoked(file.clone()));
        }
        for name in names {
            let intent = FileIntent {
                key: key.clone(),
                file: name.1.clone(),
                at,
                is_revoked: false,
            };
            state.intents.insert(name, intent);
        }
        Ok(())
    }

    async fn list_intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<IntentPage, StoreError> {
        let state = self.open()?;
        let from = after.map_or(Bound::Unbounded, |(key, file)| {
            Bound::Excluded((key.clone(), file.into()))
        });
        let page = state.intents.range((from, Bound::Unbounded));
        let page = page.take(limit.min(MAX_LIST));
        Ok(IntentPage {
            intents: page.map(|(_, intent)| intent.clone()).collect(),
            unreadable: 0,
        })
    }

    async fn revoke_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.open()?;
        let Some(intent) = state.intents.get_mut(&(key.clone(), file.into())) else {
            return Ok(false);
        };
        // A revoked intent stays revoked, whatever the limit of a later call is.
        intent.is_revoked |= intent.at < before;
        Ok(intent.is_revoked)
    }

    async fn complete_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError> {
        self.open()?.intents.remove(&(key.clone(), file.into()));
        Ok(())
    }
}

#[async_trait]
impl Leadership for MemoryLog {
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        Ok(self.duties.claim(duty, lease, now))
    }
}

#[async_trait]
impl Store for MemoryLog {
    fn is_exclusive(&self) -> bool {
        true
    }

    async fn store_id(&self) -> Result<StoreId, StoreError> {
        drop(self.open()?);
        // `get_or_init` accepts no function that can fail, so the id is made before.
        let new = StoreId::random()?;
        Ok(*self.id.get_or_init(|| new))
    }

    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError> {
        let state = self.open()?;
        let mut usage = StorageUsage::default();
        for (key, session) in &state.sessions {
            if project.is_none_or(|project| key.project == *project) {
                usage.sessions += 1;
                usage.bytes += session.record.stored_bytes();
            }
        }
        Ok(usage)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.open().map(|_| ())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        Ok(())
    }
}
