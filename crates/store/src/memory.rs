//! The engine that keeps everything in memory, for tests. Simple on purpose: what it does is what the
//! others must do.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};

use crate::duties::Duties;
use crate::record::{Record, check_batch, check_lease, check_position, check_snapshot};
use crate::{
    Asks, Batch, Due, DueChange, Frame, Head, Lease, MAX_LIST, Position, SessionLog, Snapshot,
    StoreError, Tombstone, Usage,
};

/// A log that ends with the process, for tests and for trying things out.
#[derive(Debug, Default)]
pub struct MemoryLog {
    state: Mutex<State>,
    duties: Duties,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionKey, Session>,
    tombstones: BTreeMap<SessionKey, Tombstone>,
    incarnations: u64,
    closed: bool,
}

impl State {
    fn session(&self, key: &SessionKey, incarnation: u64) -> Option<&Session> {
        let session = self.sessions.get(key);
        session.filter(|session| session.record.incarnation == incarnation)
    }
}

#[derive(Debug)]
struct Session {
    record: Record,
    frames: Vec<Frame>,
    snapshot: Bytes,
}

impl MemoryLog {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
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
    let skipped = frames.partition_point(|frame| frame.last() <= after);
    &frames[skipped..]
}

#[async_trait]
impl SessionLog for MemoryLog {
    fn is_exclusive(&self) -> bool {
        true
    }

    async fn head(&self, key: &SessionKey) -> Result<Option<Head>, StoreError> {
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
        let current = state.sessions.get(key).map(|session| &session.record);
        check_position(current, batch.expected)?;
        let creates = current.is_none();
        if creates && state.tombstones.contains_key(key) {
            return Err(StoreError::Deleting(key.clone()));
        }
        state.incarnations += u64::from(creates);
        let incarnation = state.incarnations;
        let session = state
            .sessions
            .entry(key.clone())
            .or_insert_with(|| Session {
                record: Record::new(incarnation),
                frames: Vec::new(),
                snapshot: Bytes::new(),
            });
        session.record.append(&batch);
        session.frames.push(Frame {
            first: batch.expected.revision.plus(1),
            events: batch.events.get(),
            bytes: batch.frame,
        });
        Ok(session.record.position())
    }

    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<Snapshot>, StoreError> {
        let state = self.open()?;
        let session = state.session(key, incarnation);
        Ok(session.and_then(|session| {
            let mark = session.record.snapshot?;
            Some(Snapshot {
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

    async fn list(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, Head)>, StoreError> {
        let state = self.open()?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let page = state
            .sessions
            .range((from, Bound::Unbounded))
            .filter(|(key, _)| project.is_none_or(|project| key.project == *project))
            .take(limit.min(MAX_LIST));
        Ok(page
            .map(|(key, session)| (key.clone(), session.record.head()))
            .collect())
    }

    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let record = state.sessions.get(key).map(|session| &session.record);
        check_position(record, expected)?;
        if let Some(session) = state.sessions.remove(key) {
            let tombstone = session.record.tombstone(key, at);
            state.tombstones.insert(key.clone(), tombstone);
        }
        Ok(())
    }

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

    async fn forget(&self, key: &SessionKey, incarnation: u64) -> Result<bool, StoreError> {
        let mut state = self.open()?;
        let found = state.tombstones.get(key);
        if found.is_some_and(|it| it.incarnation == incarnation) {
            state.tombstones.remove(key);
        }
        Ok(true)
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<Due>, StoreError> {
        self.due_for(Asks::ALL, now, limit).await
    }

    async fn due_for(
        &self,
        worker: Asks<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Due>, StoreError> {
        let state = self.open()?;
        let mut ready: Vec<_> = state
            .sessions
            .iter()
            .filter_map(|(key, session)| {
                let ready = session.record.ready()?;
                (ready <= now.as_millis()).then_some((ready, key, &session.record))
            })
            .collect();
        ready.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let mut of_project: BTreeMap<&ProjectId, usize> = BTreeMap::new();
        ready.retain(|(_, key, _)| {
            let seen = of_project.entry(&key.project).or_default();
            *seen += 1;
            *seen <= worker.each
        });
        ready.truncate(limit.min(MAX_LIST));
        Ok(ready
            .into_iter()
            .map(|(ready, key, record)| Due {
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
        if let Some(tombstone) = state.tombstones.get_mut(key) {
            let given = tombstone.lease.take_if(|lease| lease.owner == owner);
            if given.is_some() {
                return Ok(true);
            }
        }
        let session = state.sessions.get_mut(key);
        Ok(session.is_some_and(|session| session.record.release(owner, next)))
    }

    async fn claim_duty(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        Ok(self.duties.claim(duty, lease, now))
    }

    async fn usage(&self, project: Option<&ProjectId>) -> Result<Usage, StoreError> {
        let state = self.open()?;
        let mut usage = Usage::default();
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
