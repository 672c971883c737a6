//! Checks of snapshots, lists, storage usage and deletion.

use palimpsest_core::ids::{ProjectId, Revision, SessionKey};

use crate::harness::{
    Harness, Log, batch, batch_due, bytes, conflict_at, erase, head, key, read_all, time,
};
use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{
    Batch, DueChange, DueQuery, MAX_LIST, Position, SnapshotMark, StoreError, StoredSnapshot,
};

pub(super) async fn run(harness: &dyn Harness) {
    snapshots(harness).await;
    large_snapshots(harness).await;
    lists(&harness.fresh().await).await;
    deletes(harness).await;
    usage(harness).await;
    deletes_under_readers(&harness.fresh().await).await;
    incarnations_of_one_name_are_separate(&harness.fresh().await).await;
}

fn snapshot(at: u64, seed: u64, len: usize) -> StoredSnapshot {
    StoredSnapshot {
        at: Revision::new(at),
        bytes: bytes(seed, len),
    }
}

/// Storage usage must follow every change and survive a restart.
async fn usage(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let [p, q] = ["p", "q"].map(|name| ProjectId::new(name).expect("a legal project"));
    let held = async |log: &Log, project: Option<&ProjectId>| {
        let usage = log.usage(project).await.expect("is counted");
        (usage.sessions, usage.bytes)
    };
    assert_eq!(held(&log, None).await, (0, 0));
    let with_blobs = Batch {
        blob_bytes: 5_000,
        completed_intents: Vec::new(),
        ..batch(0, 1, bytes(1, 100))
    };
    log.append_to(&key("p/a"), with_blobs)
        .await
        .expect("appends");
    for (revision, session) in [(0, "p/b"), (1, "p/b"), (0, "q/a")] {
        let appended = log
            .append_to(&key(session), batch(revision, 1, bytes(2, 1_000)))
            .await;
        appended.expect("appends");
    }
    // 5,000 bytes of blobs and frames of 100 and twice 1,000 bytes.
    assert_eq!(held(&log, Some(&p)).await, (2, 7_100));
    assert_eq!(held(&log, Some(&q)).await, (1, 1_000));
    // A rejected append must not change the usage.
    conflict_at(log.append_to(&key("p/b"), batch(0, 1, bytes(3, 9))).await);
    for (seed, len) in [(4, 300), (5, 200)] {
        let put = log
            .put_snapshot_of(&key("p/b"), snapshot(2, seed, len))
            .await;
        put.expect("puts");
    }
    assert_eq!(
        held(&log, Some(&p)).await,
        // The second snapshot of 200 bytes replaces the first one of 300.
        (2, 7_300),
        "one snapshot counts"
    );
    let log = harness.reopen(log).await;
    assert_eq!(held(&log, None).await, (3, 8_300));
    assert_eq!(head(&log, &key("p/a")).await.blob_bytes, 5_000);
    assert!(erase(&log, &key("p/a")).await);
    assert_eq!(held(&log, Some(&p)).await, (1, 2_200));
    assert_eq!(held(&log, None).await, (2, 3_200));
}

async fn snapshots(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    let missing = log.put_snapshot_of(&a, snapshot(0, 1, 1)).await;
    assert!(matches!(missing, Err(StoreError::NotFound(_))));
    for (revision, len) in [(0, 100), (2, 200), (4, 400), (6, 800)] {
        let appended = log
            .append_to(&a, batch(revision, 2, bytes(revision, len)))
            .await;
        appended.expect("appends");
    }
    assert_eq!(log.snapshot_of(&a).await.expect("reads"), None);
    let ahead = log.put_snapshot_of(&a, snapshot(9, 1, 10)).await;
    assert!(matches!(ahead, Err(StoreError::SnapshotAhead { at, head })
        if (at.get(), head.get()) == (9, 8)));
    // Positions: at the end of a frame, in the middle of one, the same again, and at the head.
    for (at, seed, len, tail) in [
        (4, 1, 50, 1200),
        // Revision 5 is inside of the third frame, so the whole frame stays in the tail.
        (5, 2, 9000, 1200),
        (5, 3, 7, 1200),
        (8, 4, 0, 0),
    ] {
        log.put_snapshot_of(&a, snapshot(at, seed, len))
            .await
            .expect("replaces");
        let current = log.snapshot_of(&a).await.expect("reads");
        assert_eq!(current, Some(snapshot(at, seed, len)));
        let head = head(&log, &a).await;
        let mark = SnapshotMark {
            at: Revision::new(at),
            bytes: len as u64,
        };
        assert_eq!(head.snapshot, Some(mark));
        assert_eq!((head.tail_bytes, head.log_bytes), (tail, 1500));
    }
    log.put_snapshot_of(&a, snapshot(5, 5, 50))
        .await
        .expect("is ignored");
    let log = harness.reopen(log).await;
    let current = log.snapshot_of(&a).await.expect("reads");
    assert_eq!(current, Some(snapshot(8, 4, 0)));
    log.append_to(&a, batch(8, 1, bytes(9, 33)))
        .await
        .expect("appends");
    assert_eq!(head(&log, &a).await.tail_bytes, 33);
    assert_eq!(read_all(&log, &a, 1).await.len(), 5, "the log stays whole");
}

async fn large_snapshots(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    for revision in 0..4 {
        let appended = log
            .append_to(&a, batch(revision, 1, bytes(revision, 10)))
            .await;
        appended.expect("appends");
        // Each snapshot is smaller than the one before. Leftover parts of the larger one must not be read.
        let len = 3_000_000 - 900_000 * usize::try_from(revision).expect("small");
        let put = log
            .put_snapshot_of(&a, snapshot(revision + 1, revision, len))
            .await;
        put.expect("replaces");
        let current = log.snapshot_of(&a).await.expect("reads");
        assert!(current == Some(snapshot(revision + 1, revision, len)));
    }
    let log = harness.reopen(log).await;
    let current = log.snapshot_of(&a).await.expect("reads");
    assert!(current == Some(snapshot(4, 3, 300_000)));
}

/// Returns all names of a list, read page by page.
async fn names(log: &Log, project: Option<&ProjectId>, limit: usize) -> Vec<SessionKey> {
    let mut names: Vec<SessionKey> = Vec::new();
    loop {
        let page = log.list(project, names.last(), limit).await.expect("lists");
        assert!(page.len() <= limit.min(MAX_LIST));
        if page.is_empty() {
            return names;
        }
        names.extend(page.into_iter().map(|(key, _)| key));
    }
}

async fn lists(log: &Log) {
    let mut all = Vec::new();
    // `-` and `.` sort before `/`. An engine that sorts joined names would list `a-b/x` before `a/x`.
    for project in ["a", "a-b", "a.b", "ab", "b", "A"] {
        for session in ["x", "x.y", "x-y", "xy", "X", "0"] {
            all.push(key(&format!("{project}/{session}")));
        }
    }
    for key in all.iter().rev() {
        log.append_to(key, batch(0, 3, bytes(0, 10)))
            .await
            .expect("appends");
    }
    all.sort();
    for limit in [1, 2, 5, 36, 37, usize::MAX] {
        assert_eq!(names(log, None, limit).await, all);
        for project in ["a", "a-b", "a.b", "ab", "b", "A", "c"] {
            let project = ProjectId::new(project).expect("legal");
            let own = all.iter().filter(|key| key.project == project);
            let own: Vec<_> = own.cloned().collect();
            assert_eq!(names(log, Some(&project), limit).await, own);
        }
    }
    assert_eq!(log.list(None, None, 0).await.expect("lists"), []);
    // A page may start after a name that does not exist or belongs to another project.
    let project = ProjectId::new("a-b").expect("legal");
    let from_other = log.list(Some(&project), Some(&key("a/x")), 9).await;
    assert_eq!(from_other.expect("lists").len(), 6);
    let past = log.list(Some(&project), Some(&key("b/x")), 9).await;
    assert_eq!(past.expect("lists"), []);
    let gone = log.list(None, Some(&key("a/x0")), 1).await.expect("lists");
    assert_eq!(gone[0].0, key("a/xy"));
    assert_eq!(gone[0].1, head(log, &key("a/xy")).await);
}

async fn deletes(harness: &dyn Harness) {
    let mut log = harness.fresh().await;
    let a = key("p/a");
    assert!(!log.delete_of(&a, time(1)).await.expect("nothing to delete"));
    let mut incarnations = Vec::new();
    // Three sessions with the same name follow each other. Data of an earlier one must never reappear.
    for round in 0..3_u64 {
        for revision in 0..3 {
            let frame = bytes(round * 10 + revision, 1_500_000);
            log.append_to(&a, batch(revision, 1, frame))
                .await
                .expect("appends");
        }
        let due = batch_due(3, DueChange::At(time(5)));
        log.append_to(&a, due).await.expect("appends");
        log.put_snapshot_of(&a, snapshot(2, round, 5000))
            .await
            .expect("puts");
        incarnations.push(head(&log, &a).await.incarnation);
        assert_eq!(
            log.due(DueQuery::ALL, time(9), 9).await.expect("due").len(),
            1
        );
        assert!(erase(&log, &a).await);
        if round == 1 {
            log = harness.reopen(log).await;
        }
        assert_eq!(log.head(&a).await.expect("head"), None);
        assert_eq!(log.snapshot_of(&a).await.expect("snapshot"), None);
        assert_eq!(log.due(DueQuery::ALL, time(9), 9).await.expect("due"), []);
        assert_eq!(log.list(None, None, 9).await.expect("lists"), []);
        let frames = log.frames_of(&a, Revision::ZERO, 1).await.expect("reads");
        assert_eq!(frames, []);
        assert_eq!(
            conflict_at(log.append_to(&a, batch(4, 1, bytes(0, 1))).await),
            0
        );
        assert!(!log.delete_of(&a, time(1)).await.expect("nothing to delete"));
    }
    incarnations.dedup();
    assert_eq!(
        incarnations.len(),
        3,
        "each incarnation must have its own number"
    );
    log.append_to(&a, batch(0, 1, bytes(99, 10)))
        .await
        .expect("appends");
    let log = harness.reopen(log).await;
    let frames = read_all(&log, &a, 1 << 20).await;
    assert_eq!(
        frames.len(),
        1,
        "frames of an earlier incarnation must not be returned"
    );
    assert_eq!(frames[0].bytes, bytes(99, 10));
    assert_eq!(log.snapshot_of(&a).await.expect("snapshot"), None);
    assert_eq!(head(&log, &a).await.due, None);
}

/// A position of a deleted session must never match a later session of the same name, even at the same
/// revision.
async fn incarnations_of_one_name_are_separate(log: &Log) {
    let a = key("p/a");
    let make = async |seed: u64| {
        let first = log.append(&a, batch(0, 1, bytes(seed, 100))).await;
        let first = first.expect("creates");
        let second = Batch {
            expected: first,
            ..batch(1, 1, bytes(seed + 1, 100))
        };
        let second = log.append(&a, second).await.expect("appends");
        assert_eq!(second.incarnation, first.incarnation);
        let put = log.put_snapshot(&a, second, snapshot(2, seed, 50).bytes);
        put.await.expect("puts");
        second
    };
    let before = make(1).await;
    assert!(erase(log, &a).await);
    let now = make(10).await;
    // Equal revisions make the incarnation the only difference.
    assert_eq!(now.revision, before.revision);
    assert_ne!(now.incarnation, before.incarnation);
    let late = Batch {
        expected: before,
        ..batch(2, 1, bytes(3, 100))
    };
    assert_eq!(conflict_at(log.append(&a, late).await), 2);
    let frames = log.read(&a, before.at(Revision::ZERO), 1 << 20);
    assert_eq!(frames.await.expect("reads"), []);
    let kept = log.snapshot(&a, before.incarnation).await.expect("reads");
    assert_eq!(kept, None);
    let conflict = log.delete(&a, before, time(9)).await;
    assert_eq!(conflict_at(conflict), 2);
    let earlier = Position {
        revision: Revision::new(1),
        ..now
    };
    assert_eq!(conflict_at(log.delete(&a, earlier, time(9)).await), 2);
    assert_eq!(
        conflict_at(log.delete(&key("p/none"), now, time(9)).await),
        0
    );
    let put = log.put_snapshot(&a, before, snapshot(2, 77, 50).bytes);
    assert!(matches!(put.await, Err(StoreError::NotFound(_))));
    let frames = log.read(&a, now.at(Revision::ZERO), 1 << 20);
    let frames: Vec<_> = frames
        .await
        .expect("reads")
        .into_iter()
        .map(|it| it.bytes)
        .collect();
    assert_eq!(frames, [bytes(10, 100), bytes(11, 100)]);
    let kept = log.snapshot(&a, now.incarnation).await.expect("reads");
    assert_eq!(kept, Some(snapshot(2, 10, 50)));
    assert_eq!(head(log, &a).await.position(), now);
}

/// A reader must see one incarnation of a session, or none. A mixture of incarnations or an error is a
/// failure.
async fn deletes_under_readers(log: &Log) {
    let a = key("p/a");
    let writer = {
        let (log, a) = (log.clone(), a.clone());
        tokio::spawn(async move {
            for life in 0..30_u64 {
                for revision in 0..3 {
                    let frame = bytes(life * 3 + revision, 30_000);
                    log.append_to(&a, batch(revision, 1, frame))
                        .await
                        .expect("appends");
                    let shot = snapshot(revision + 1, life * 3 + revision, 20_000);
                    log.put_snapshot_of(&a, shot).await.expect("puts");
                }
                assert!(erase(&log, &a).await);
            }
        })
    };
    while !writer.is_finished() {
        let frames = log
            .frames_of(&a, Revision::ZERO, usize::MAX)
            .await
            .expect("reads");
        if let Some(first) = frames.first() {
            // The content of the first frame identifies its incarnation. All other frames must belong to it.
            let life = (0..30).find(|life| first.bytes == bytes(life * 3, 30_000));
            let life = life.expect("a first frame");
            for (revision, frame) in (0..).zip(&frames) {
                assert_eq!(frame.bytes, bytes(life * 3 + revision, 30_000));
            }
        }
        if let Some(shot) = log.snapshot_of(&a).await.expect("reads") {
            let known = (0..90).any(|seed| shot == snapshot(seed % 3 + 1, seed, 20_000));
            assert!(known, "a whole snapshot");
        }
    }
    writer.await.expect("the writer ends");
}
