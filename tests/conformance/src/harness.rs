//! The store factory of the conformance suite, and helpers that its checks share.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionId, SessionKey, Timestamp};

use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{
    Batch, DueChange, Frame, Lease, Position, SessionHead, Store, StoreError, Tombstone,
};

/// Creates the stores for the conformance suite.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Returns a new empty store.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// Restarts a store. An engine without persistent state returns `log` itself.
    async fn reopen(&self, log: Arc<dyn Store>) -> Arc<dyn Store>;
}

pub(super) type Log = Arc<dyn Store>;

pub(super) fn key(name: &str) -> SessionKey {
    let (project, session) = name.split_once('/').expect("the name must contain a slash");
    SessionKey::new(
        ProjectId::new(project).expect("a legal project"),
        SessionId::new(session).expect("a legal session"),
    )
}

pub(super) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn lease(owner: &str, until: i64) -> Lease {
    Lease {
        owner: owner.to_owned(),
        until: time(until),
    }
}

/// Returns incompressible pseudo-random bytes that are unique per seed, so that mixed-up content is detected.
pub fn bytes(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

pub(super) fn batch(expected: u64, events: u32, frame: Bytes) -> Batch {
    Batch {
        expected: Position {
            revision: Revision::new(expected),
            ..Position::START
        },
        events: NonZeroU32::new(events).expect("a batch has events"),
        frame,
        list_row: Bytes::from_static(b"summary"),
        parent: None,
        due: DueChange::Keep,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

pub(super) fn batch_due(expected: u64, due: DueChange) -> Batch {
    Batch {
        due,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        ..batch(expected, 1, Bytes::from_static(b"due"))
    }
}

pub(super) fn conflict_at<T: std::fmt::Debug>(result: Result<T, StoreError>) -> u64 {
    match result {
        Err(StoreError::Conflict { current }) => current.get(),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// Restarts a store. Also returns true if the restart ended all leases, which an exclusive engine does
/// because their holders are gone.
pub(super) async fn restart(harness: &dyn Harness, log: Log) -> (Log, bool) {
    // If the old handle is still alive, the engine was not really restarted.
    let before = Arc::downgrade(&log);
    let log = harness.reopen(log).await;
    let is_over = log.is_exclusive() && before.upgrade().is_none();
    (log, is_over)
}

pub(super) async fn head(log: &Log, key: &SessionKey) -> SessionHead {
    let head = log.head(key).await.expect("a head is read");
    head.expect("the session exists")
}

/// Reads all frames of a session, in pages of `max_bytes`.
pub(super) async fn read_all(log: &Log, key: &SessionKey, max_bytes: usize) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    loop {
        let after = frames.last().map_or(Revision::ZERO, Frame::last);
        let page = log
            .frames_of(key, after, max_bytes)
            .await
            .expect("a page is read");
        if page.is_empty() {
            return frames;
        }
        let size: usize = page.iter().map(|frame| frame.bytes.len()).sum();
        // Only a single frame may exceed the limit.
        assert!(page.len() == 1 || size <= max_bytes, "a page is too large");
        for frame in page {
            let joins = frames.last().map_or(Revision::ZERO, Frame::last).plus(1);
            assert_eq!(frame.first, joins, "frames join");
            frames.push(frame);
        }
    }
}

/// Deletes a session and removes its tombstone when the engine has removed all records. Returns false
/// if no session existed.
pub(super) async fn erase(log: &Log, key: &SessionKey) -> bool {
    if !log.delete_of(key, time(7)).await.expect("deletes") {
        return false;
    }
    let tombstone = log.tombstone(key).await.expect("reads");
    forget(log, &tombstone.expect("a deletion leaves one")).await;
    true
}

pub(super) async fn forget(log: &Log, tombstone: &Tombstone) {
    for _ in 0..10_000 {
        // Only the holder of a live lease may remove the tombstone, so the loop acts as the holder.
        let lease = log.tombstone(&tombstone.key).await.expect("reads");
        let lease = lease.and_then(|found| found.lease);
        let owner = lease.map_or_else(String::new, |lease| lease.owner);
        let forgotten = log.forget(&tombstone.key, tombstone.incarnation, &owner);
        let forgotten = forgotten.await;
        if forgotten.expect("forgets") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the records of a deleted session remain after ten seconds");
}
