//! Property tests: random operations compared with a simple model.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{Harness, Log, batch, bytes, erase, key, lease, read_all, restart, time};
use crate::latest_incarnation::LatestIncarnation as _;
use crate::memory::MemoryLog;
use palimpsest_store::{
    Batch, DueChange, DueQuery, Frame, SnapshotMark, StoreError, StoredSnapshot,
};

// Names with separators that an engine could confuse, in three projects.
const NAMES: [&str; 5] = ["p/a", "p/a.b", "p/a-b", "p.a/b", "q/a"];
const OWNERS: [&str; 2] = ["x", "y"];

#[derive(Debug, Clone)]
enum Operation {
    Append {
        name: &'static str,
        behind: u64,
        events: u32,
        len: usize,
        due: DueChange,
    },
    PutSnapshot {
        name: &'static str,
        back: i64,
        len: usize,
    },
    Read {
        name: &'static str,
        after: u64,
        max_bytes: usize,
    },
    List {
        project: Option<&'static str>,
        after: Option<&'static str>,
        limit: usize,
    },
    Delete {
        name: &'static str,
    },
    Due {
        now: i64,
        limit: usize,
    },
    Claim {
        name: &'static str,
        owner: &'static str,
        now: i64,
        lasts: i64,
    },
    Release {
        name: &'static str,
        owner: &'static str,
        next: DueChange,
    },
    Check,
    Reopen,
}

fn due_change() -> impl Strategy<Value = DueChange> {
    prop_oneof![
        3 => Just(DueChange::Keep),
        4 => (0..20_i64).prop_map(|at| DueChange::At(time(at))),
        1 => Just(DueChange::Clear),
    ]
}

/// Generates frame sizes: mostly small, often near the chunk size, and sometimes larger than a batch.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        20 => 0..200_usize,
        10 => 4070..4110_usize,
        5 => 8160..8200_usize,
        5 => 10_000..60_000_usize,
        1 => 1_030_000..1_200_000_usize,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = || select(&NAMES[..]);
    let owner = || select(&OWNERS[..]);
    // One of ten appends expects an earlier revision and must fail.
    let behind = prop_oneof![9 => Just(0), 1 => 1..3_u64];
    prop_oneof![
        12 => (name(), behind, 1..5_u32, len(), due_change()).prop_map(
            |(name, behind, events, len, due)| Operation::Append { name, behind, events, len, due }),
        4 => (name(), -1..8_i64, len())
            .prop_map(|(name, back, len)| Operation::PutSnapshot { name, back, len }),
        6 => (name(), 0..30_u64, 0..20_000_usize)
            .prop_map(|(name, after, max_bytes)| Operation::Read { name, after, max_bytes }),
        3 => (prop::option::of(select(vec!["p", "p.a", "q", "r"])), prop::option::of(name()), 0..7_usize)
            .prop_map(|(project, after, limit)| Operation::List { project, after, limit }),
        2 => name().prop_map(|name| Operation::Delete { name }),
        4 => (0..40_i64, 0..7_usize).prop_map(|(now, limit)| Operation::Due { now, limit }),
        6 => (name(), owner(), 0..40_i64, 1..15_i64)
            .prop_map(|(name, owner, now, lasts)| Operation::Claim { name, owner, now, lasts }),
        5 => (name(), owner(), due_change())
            .prop_map(|(name, owner, next)| Operation::Release { name, owner, next }),
        1 => Just(Operation::Check),
        2 => Just(Operation::Reopen),
    ]
}

/// Runs `cases` random sequences of operations and compares every result with the model. A failure
/// prints the shortest failing sequence. Must not be called from async code.
pub fn properties(harness: &dyn Harness, cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let operations = prop::collection::vec(operation(), 1..60);
    let ran = TestRunner::new(config).run(&operations, |operations| {
        runtime.block_on(async {
            let mut world = ModelState::new(harness.fresh().await);
            for operation in operations {
                world.step(harness, operation).await?;
                world.compare_heads().await?;
            }
            world.reopen(harness).await;
            world.compare_heads().await?;
            world.compare_logs().await
        })
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}

type Outcome = Result<(), TestCaseError>;

#[derive(Debug, Default)]
struct Session {
    frames: Vec<Frame>,
    snapshot: Option<StoredSnapshot>,
    due: Option<i64>,
    lease: Option<(&'static str, i64)>,
    /// True if an append changed the due time since the lease was taken.
    due_is_news: bool,
    incarnation: Option<u64>,
}

impl Session {
    fn revision(&self) -> u64 {
        self.frames
            .iter()
            .map(|frame| u64::from(frame.events))
            .sum()
    }

    fn ready(&self) -> Option<i64> {
        let due = self.due?;
        // A lease hides the session until its end, which can be after the due time.
        Some(self.lease.map_or(due, |(_, until)| due.max(until)))
    }

    fn bytes_after(&self, at: u64) -> u64 {
        let tail = self.frames.iter().filter(|frame| frame.last().get() > at);
        tail.map(|frame| frame.bytes.len() as u64).sum()
    }
}

struct ModelState {
    log: Log,
    sessions: BTreeMap<SessionKey, Session>,
    incarnations: HashSet<u64>,
    seed: u64,
}

impl ModelState {
    fn new(log: Log) -> Self {
        Self {
            log,
            sessions: BTreeMap::new(),
            incarnations: HashSet::new(),
            seed: 0,
        }
    }

    /// Restarts the store. The log handle is given away, because an engine may reopen a store only after
    /// its last user is gone.
    async fn reopen(&mut self, harness: &dyn Harness) {
        let log = std::mem::replace(&mut self.log, Arc::new(MemoryLog::new()));
        let (log, is_over) = restart(harness, log).await;
        self.log = log;
        for session in self.sessions.values_mut().filter(|_| is_over) {
            session.lease = None;
        }
    }

    fn fresh_bytes(&mut self, len: usize) -> Bytes {
        self.seed += 1;
        bytes(self.seed, len)
    }

    async fn step(&mut self, harness: &dyn Harness, operation: Operation) -> Outcome {
        match operation {
            Operation::Append {
                name,
                behind,
                events,
                len,
                due,
            } => {
                // Every frame has unique content, so that mixed-up frames are detected.
                let frame = self.fresh_bytes(len);
                self.append(&key(name), behind, events, frame, due).await
            }
            Operation::PutSnapshot { name, back, len } => {
                let bytes = self.fresh_bytes(len);
                self.put_snapshot(&key(name), back, bytes).await
            }
            Operation::Read {
                name,
                after,
                max_bytes,
            } => self.read(&key(name), after, max_bytes).await,
            Operation::List {
                project,
                after,
                limit,
            } => self.list(project, after, limit).await,
            Operation::Delete { name } => {
                let deleted = erase(&self.log, &key(name)).await;
                let existed = self.sessions.remove(&key(name)).is_some();
                prop_assert_eq!(deleted, existed);
                Ok(())
            }
            Operation::Due { now, limit } => self.due(now, limit).await,
            Operation::Claim {
                name,
                owner,
                now,
                lasts,
            } => self.claim(&key(name), owner, now, now + lasts).await,
            Operation::Release { name, owner, next } => self.release(&key(name), owner, next).await,
            Operation::Check => self.log.check().await.map_err(fail),
            Operation::Reopen => {
                self.reopen(harness).await;
                Ok(())
            }
        }
    }

    async fn append(
        &mut self,
        key: &SessionKey,
        behind: u64,
        events: u32,
        frame: Bytes,
        due: DueChange,
    ) -> Outcome {
        let current = self.sessions.get(key).map_or(0, Session::revision);
        let expected = current.saturating_sub(behind);
        let batch = Batch {
            due,
            blob_bytes: 0,
            completed_intents: Vec::new(),
            ..batch(expected, events, frame.clone())
        };
        match self.log.append_to(key, batch).await {
            Ok(revision) => {
                // Only an append at the current revision may succeed.
                prop_assert_eq!(expected, current);
                prop_assert_eq!(revision.get(), current + u64::from(events));
            }
            Err(StoreError::Conflict { current: found }) => {
                prop_assert_ne!(expected, current);
                prop_assert_eq!(found.get(), current);
                return Ok(());
            }
            Err(error) => return Err(fail(error)),
        }
        let session = self.sessions.entry(key.clone()).or_default();
        session.frames.push(Frame {
            first: Revision::new(current + 1),
            events,
            bytes: frame,
        });
        if due != DueChange::Keep {
            // Without a lease, the earlier due time wins. Otherwise a busy session would be postponed for ever.
            let waits = session.due.filter(|_| session.lease.is_none());
            let since = |at: i64| waits.map_or(at, |waits| waits.min(at));
            session.due = due_at(due).map(since);
            session.due_is_news = true;
        }
        Ok(())
    }

    async fn put_snapshot(&mut self, key: &SessionKey, back: i64, bytes: Bytes) -> Outcome {
        let Some(session) = self.sessions.get_mut(key) else {
            let snapshot = StoredSnapshot {
                at: Revision::ZERO,
                bytes,
            };
            let put = self.log.put_snapshot_of(key, snapshot).await;
            prop_assert!(matches!(put, Err(StoreError::NotFound(_))));
            return Ok(());
        };
        let head = session.revision();
        // A negative `back` is a position after the head, which the store must reject.
        let at = head.saturating_add_signed(-back);
        let snapshot = StoredSnapshot {
            at: Revision::new(at),
            bytes,
        };
        let put = self.log.put_snapshot_of(key, snapshot.clone()).await;
        if at > head {
            let refused = matches!(put, Err(StoreError::SnapshotAhead { .. }));
            prop_assert!(refused);
            return Ok(());
        }
        put.map_err(fail)?;
        if session
            .snapshot
            .as_ref()
            // The store ignores a late snapshot of an earlier position without an error.
            .is_none_or(|old| old.at <= snapshot.at)
        {
            session.snapshot = Some(snapshot);
        }
        Ok(())
    }

    async fn read(&self, key: &SessionKey, after: u64, max_bytes: usize) -> Outcome {
        let frames = self
            .log
            .frames_of(key, Revision::new(after), max_bytes)
            .await;
        let frames = frames.map_err(fail)?;
        let empty = Session::default();
        let session = self.sessions.get(key).unwrap_or(&empty);
        let mut expected = Vec::new();
        let mut size = 0;
        for frame in session
            .frames
            .iter()
            .filter(|frame| frame.last().get() > after)
        {
            size += frame.bytes.len();
            if !expected.is_empty() && size > max_bytes {
                break;
            }
            expected.push(frame.clone());
        }
        prop_assert!(frames == expected, "read after {} gave other frames", after);
        Ok(())
    }

    async fn list(&self, project: Option<&str>, after: Option<&str>, limit: usize) -> Outcome {
        let project = project.map(|name| ProjectId::new(name).expect("a legal project"));
        let after = after.map(key);
        let listed = self.log.list(project.as_ref(), after.as_ref(), limit).await;
        let listed: Vec<_> = listed
            .map_err(fail)?
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let expected = self.sessions.keys().filter(|key| {
            project
                .as_ref()
                .is_none_or(|project| key.project == *project)
                && after.as_ref().is_none_or(|after| *key > after)
        });
        let expected: Vec<_> = expected.take(limit).cloned().collect();
        prop_assert_eq!(listed, expected);
        Ok(())
    }

    async fn due(&self, now: i64, limit: usize) -> Outcome {
        let listed = self
            .log
            .due(DueQuery::ALL, time(now), limit)
            .await
            .map_err(fail)?;
        let mut expected: Vec<_> = self
            .sessions
            .iter()
            .filter_map(|(key, session)| Some((session.ready()?, key, session)))
            .filter(|(ready, ..)| *ready <= now)
            .map(|(ready, key, session)| (ready, key, session.due, session.revision()))
            .collect();
        expected.sort();
        expected.truncate(limit);
        prop_assert_eq!(listed.len(), expected.len());
        for (found, (_, key, due, revision)) in listed.iter().zip(expected) {
            prop_assert_eq!(&found.key, key);
            prop_assert_eq!(Some(found.at.as_millis()), due);
            prop_assert_eq!(found.revision.get(), revision);
        }
        Ok(())
    }

    async fn claim(
        &mut self,
        key: &SessionKey,
        owner: &'static str,
        now: i64,
        until: i64,
    ) -> Outcome {
        let claimed = self.log.claim(key, lease(owner, until), time(now)).await;
        let Some(session) = self.sessions.get_mut(key) else {
            prop_assert!(!claimed.map_err(fail)?);
            return Ok(());
        };
        let live = session.lease.filter(|(_, until)| *until > now);
        let renews = live.is_some_and(|(holder, _)| holder == owner);
        let takes = live.is_none() && session.due.is_some_and(|due| due <= now);
        prop_assert_eq!(claimed.map_err(fail)?, renews || takes);
        if renews || takes {
            session.lease = Some((owner, until));
        }
        // A new claim has seen the due time. A renewal has not, so it keeps the mark.
        if takes {
            session.due_is_news = false;
        }
        Ok(())
    }

    async fn release(&mut self, key: &SessionKey, owner: &'static str, next: DueChange) -> Outcome {
        let released = self.log.release(key, owner, next).await.map_err(fail)?;
        let session = self.sessions.get_mut(key);
        let held = session.filter(|s| s.lease.is_some_and(|(holder, _)| holder == owner));
        prop_assert_eq!(released, held.is_some());
        if let Some(session) = held {
            session.lease = None;
            // The due time of an append during the lease takes precedence over that of the release.
            if next != DueChange::Keep && !session.due_is_news {
                session.due = due_at(next);
            }
        }
        Ok(())
    }

    async fn compare_heads(&mut self) -> Outcome {
        for name in NAMES {
            let key = key(name);
            let head = self.log.head(&key).await.map_err(fail)?;
            let Some(session) = self.sessions.get_mut(&key) else {
                prop_assert_eq!(head, None);
                continue;
            };
            let head = head.ok_or_else(|| TestCaseError::fail("a session is missing"))?;
            prop_assert_eq!(head.revision.get(), session.revision());
            prop_assert_eq!(head.log_bytes, session.bytes_after(0));
            let at = session
                .snapshot
                .as_ref()
                .map_or(0, |snapshot| snapshot.at.get());
            prop_assert_eq!(head.tail_bytes, session.bytes_after(at));
            let mark = session.snapshot.as_ref().map(|snapshot| SnapshotMark {
                at: snapshot.at,
                bytes: snapshot.bytes.len() as u64,
            });
            prop_assert_eq!(head.snapshot, mark);
            prop_assert_eq!(head.due.map(Timestamp::as_millis), session.due);
            prop_assert_eq!(
                head.lease,
                session.lease.map(|(owner, until)| lease(owner, until))
            );
            match session.incarnation {
                Some(known) => prop_assert_eq!(head.incarnation, known),
                // The model cannot predict incarnations. It checks that they are never reused.
                None => prop_assert!(self.incarnations.insert(head.incarnation)),
            }
            session.incarnation = Some(head.incarnation);
        }
        Ok(())
    }

    async fn compare_logs(&self) -> Outcome {
        for name in NAMES {
            let key = key(name);
            let frames = read_all(&self.log, &key, 50_000).await;
            let snapshot = self.log.snapshot_of(&key).await.map_err(fail)?;
            let empty = Session::default();
            let session = self.sessions.get(&key).unwrap_or(&empty);
            prop_assert!(frames == session.frames, "{} has other frames", name);
            prop_assert!(
                snapshot == session.snapshot,
                "{} has another snapshot",
                name
            );
        }
        Ok(())
    }
}

fn due_at(change: DueChange) -> Option<i64> {
    match change {
        DueChange::At(at) => Some(at.as_millis()),
        DueChange::Keep | DueChange::Clear => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn fail(error: StoreError) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}
