//! Tests that need access to internals: interrupted work, disk failures, and the visibility of changes.

use std::fs::File;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::session::SessionInfo;

use super::files::DurableFiles;
use super::group::{Sequences, WriteGroup};
use super::shared::Shared;
use super::{SledLog, SledOptions, garbage, keys, open, read};
use crate::encoding::encode_list_row;
use crate::{
    Batch, DueChange, DueQuery, FileIntents as _, Position, SessionLog, Store as _, StoreError,
    StoreId, SubagentIndex as _, Tombstones as _, WorkQueue as _,
};

fn key(name: &str) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
}

fn batch(expected: u64, frame: &[u8]) -> Batch {
    Batch {
        // The first session of a store has incarnation 1.
        expected: Position {
            incarnation: u64::from(expected > 0),
            revision: Revision::new(expected),
            token: 0,
        },
        events: NonZeroU32::MIN,
        frame: Bytes::copy_from_slice(frame),
        list_row: Bytes::new(),
        parent: None,
        due: DueChange::Keep,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

/// Returns an open store without its commit thread.
fn shared(options: &SledOptions) -> (Shared, Sequences, DurableFiles) {
    let (opened, lock) = open::open(options).unwrap();
    let counts = Sequences {
        sequence: opened.sequence,
        incarnation: opened.incarnation,
    };
    (Shared::new(opened.db, lock), counts, opened.files)
}

fn options(root: &tempfile::TempDir) -> SledOptions {
    SledOptions::new(root.path().join("store"))
}

#[test]
fn changes_are_visible_only_after_they_are_durable() {
    let root = tempfile::tempdir().unwrap();
    let (shared, mut counts, _files) = shared(&options(&root));
    let db = shared.db().unwrap();
    let (a, b) = (key("a"), key("b"));
    let head = |key| {
        read::head(&shared, key)
            .unwrap()
            .map(|head| head.revision.get())
    };
    let mut group = WriteGroup::new(&shared, &db, &mut counts);
    group.append(&a, &batch(0, b"one")).ok().unwrap();
    group.apply().unwrap();
    shared.publish_group();
    assert_eq!((head(&a), head(&b)), (Some(1), None));
    let mut group = WriteGroup::new(&shared, &db, &mut counts);
    group.append(&a, &batch(1, b"two")).ok().unwrap();
    group.append(&a, &batch(2, b"three")).ok().unwrap();
    group.append(&b, &batch(0, b"other")).ok().unwrap();
    group.apply().unwrap();
    assert_eq!(
        (head(&a), head(&b)),
        (Some(1), None),
        "applied, not durable"
    );
    // The frames of the group are in the tree already, so a read must stop at the visible head.
    let beginning = Position {
        incarnation: 1,
        ..Position::START
    };
    let frames = || read::frames(&shared, &a, beginning, 100).unwrap().len();
    assert_eq!(frames(), 1);
    assert_eq!(read::rows(&shared, None, None, 9).unwrap().rows.len(), 1);
    shared.publish_group();
    assert_eq!((head(&a), head(&b)), (Some(3), Some(1)));
    assert_eq!(frames(), 3);
    let mut group = WriteGroup::new(&shared, &db, &mut counts);
    let stands = batch(3, b"").expected;
    group.delete(&a, stands, Timestamp::default()).ok().unwrap();
    group.apply().unwrap();
    assert_eq!((head(&a), frames()), (Some(3), 3));
    shared.publish_group();
    assert_eq!((head(&a), frames()), (None, 0));
}

/// A crash during a staged append leaves its first batches. A shorter append at the same revision must
/// contain none of them.
#[tokio::test]
async fn an_append_contains_no_chunks_of_a_crashed_staged_append() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&root);
    {
        let log = SledLog::open(&options).unwrap();
        log.append(&key("a"), batch(0, b"first")).await.unwrap();
        let incarnation = log.head(&key("a")).await.unwrap().unwrap().incarnation;
        let object = keys::frame(incarnation, 2);
        // Write what a staged append leaves if the process dies after its first batches.
        let mut staged = ::sled::Batch::default();
        staged.insert(keys::garbage(&object), &[]);
        let header = keys::ObjectHeader {
            events: 9,
            len: 3_000_000,
            offset: 5,
        };
        let first = [&header.encode()[..], &[0xAA; 4000]].concat();
        staged.insert(keys::chunk(&object, 0), first);
        for index in 1..300 {
            staged.insert(keys::chunk(&object, index), vec![0xAA; keys::MAX_VALUE]);
        }
        log.shared.db().unwrap().apply_batch(staged).unwrap();
    }
    let log = SledLog::open(&options).unwrap();
    assert_eq!(
        log.shared
            .db()
            .unwrap()
            .scan_prefix(keys::GARBAGE_PREFIX)
            .count(),
        0
    );
    let head = log.head(&key("a")).await.unwrap().unwrap();
    assert_eq!(head.revision, Revision::new(1));
    let next = vec![0xBB; 10_000];
    log.append(&key("a"), batch(1, &next)).await.unwrap();
    log.append(&key("a"), batch(2, b"third")).await.unwrap();
    let start = Position {
        incarnation: head.incarnation,
        ..Position::START
    };
    let frames = log.read(&key("a"), start, 1 << 20).await.unwrap();
    let bytes: Vec<_> = frames.iter().map(|frame| &frame.bytes[..]).collect();
    assert_eq!(bytes, [&b"first"[..], &next, b"third"]);
    let chunks = log
        .shared
        .db()
        .unwrap()
        .scan_prefix(keys::frame(head.incarnation, 2));
    assert_eq!(chunks.count(), 3, "unexpected number of chunks");
}

/// After a crash, the garbage of a deletion is found in the journal and removed.
#[tokio::test]
async fn a_deletion_is_completed_after_a_crash() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&root);
    {
        let (shared, mut counts, _files) = shared(&options);
        let db = shared.db().unwrap();
        let mut group = WriteGroup::new(&shared, &db, &mut counts);
        for revision in 0..4 {
            let frame = vec![7; 2_000_000];
            group
                .append(&key("a"), &batch(revision, &frame))
                .ok()
                .unwrap();
        }
        group.apply().unwrap();
        let mut group = WriteGroup::new(&shared, &db, &mut counts);
        let stands = batch(4, b"").expected;
        group
            .delete(&key("a"), stands, Timestamp::default())
            .ok()
            .unwrap();
        group.apply().unwrap();
        assert!(db.len() > 1900);
        assert_eq!(garbage::journal(&db).unwrap().len(), 2);
    }
    let log = SledLog::open(&options).unwrap();
    assert_eq!(log.head(&key("a")).await.unwrap(), None);
    // The commit thread collects garbage when its queue is empty.
    for _ in 0..200 {
        if garbage::journal(&log.shared.db().unwrap())
            .unwrap()
            .is_empty()
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        log.shared.db().unwrap().len() < 10,
        "only counters are left"
    );
}

#[tokio::test]
async fn a_failed_sync_closes_the_store_permanently() {
    let root = tempfile::tempdir().unwrap();
    let (shared, counts, mut files) = shared(&options(&root));
    let counts = (counts, StoreId::from_bytes([0; 16]));
    // A pipe cannot be synced.
    let (reader, _writer) = std::io::pipe().unwrap();
    files.replace_db(File::from(OwnedFd::from(reader)));
    let log = SledLog::start(shared, counts, files, options(&root)).unwrap();
    let failed = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Failed(_)));
    assert!(failed(
        log.append(&key("a"), batch(0, b"x")).await.map(drop)
    ));
    assert!(
        failed(log.check().await),
        "a store with a failed sync recovered"
    );
    assert!(failed(log.head(&key("a")).await.map(drop)));
    assert!(failed(
        log.append(&key("b"), batch(0, b"x")).await.map(drop)
    ));
    assert!(failed(log.close().await));
}

/// A side file cannot be opened because file handles are exhausted. Nothing is acknowledged, the engine
/// continues, and the waiting change becomes visible after a successful sync.
#[cfg(unix)]
#[tokio::test]
async fn a_sync_without_file_handles_is_retried() {
    let root = tempfile::tempdir().unwrap();
    let (shared, counts, mut files) = shared(&options(&root));
    let counts = (counts, StoreId::from_bytes([0; 16]));
    files.be_short(2);
    let log = SledLog::start(shared, counts, files, options(&root)).unwrap();
    let short =
        |result: Result<(), StoreError>| matches!(result, Err(StoreError::OutOfResources(_)));
    assert!(short(log.append(&key("a"), batch(0, b"x")).await.map(drop)));
    assert_eq!(
        log.head(&key("a")).await.unwrap(),
        None,
        "the append is visible before it is durable"
    );
    assert!(short(log.append(&key("b"), batch(0, b"x")).await.map(drop)));
    log.append(&key("c"), batch(0, b"x")).await.unwrap();
    let revision = async |name| {
        let head = log.head(&key(name)).await.unwrap();
        head.map(|head| head.revision.get())
    };
    assert_eq!(revision("a").await, Some(1), "its outcome was unknown");
    assert_eq!(revision("b").await, None, "the append was recorded");
    assert_eq!(revision("c").await, Some(1));
    log.close().await.unwrap();
}

/// The sync of a deletion is cut short. The deleted data is removed after the sync was repeated.
#[cfg(unix)]
#[tokio::test]
async fn garbage_of_a_repeated_sync_is_collected() {
    let root = tempfile::tempdir().unwrap();
    {
        let log = SledLog::open(&options(&root)).unwrap();
        log.append(&key("a"), batch(0, b"frame")).await.unwrap();
        log.close().await.unwrap();
    }
    let (shared, counts, mut files) = shared(&options(&root));
    let counts = (counts, StoreId::from_bytes([0; 16]));
    files.be_short(1);
    let log = SledLog::start(shared, counts, files, options(&root)).unwrap();
    let db = log.shared.db().unwrap();
    let at = log.head(&key("a")).await.unwrap().unwrap().position();
    let deleted = log.delete(&key("a"), at, Timestamp::from_millis(7)).await;
    assert!(
        matches!(deleted, Err(StoreError::OutOfResources(_))),
        "{deleted:?}"
    );
    assert!(!garbage::journal(&db).unwrap().is_empty());
    let collected = async {
        // Each canary is a group, and the first one repeats the sync. Garbage is collected between groups.
        while !garbage::journal(&db).unwrap().is_empty() {
            log.check().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(2), collected)
        .await
        .unwrap();
    log.close().await.unwrap();
}

/// Opens a store of the release before usage rows existed.
#[tokio::test]
async fn usage_of_a_store_from_an_earlier_release_is_counted_on_open() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&root);
    {
        let log = SledLog::open(&options).unwrap();
        log.append(&key("a"), batch(0, b"first")).await.unwrap();
        log.append(&key("b"), batch(0, b"second")).await.unwrap();
        let db = log.shared.db().unwrap();
        db.insert(keys::FORMAT_KEY, &1_u64.to_be_bytes()).unwrap();
        db.remove(keys::USAGE_KEY).unwrap();
        // Simulates an interrupted count.
        let project = key("a").project;
        db.insert(keys::usage(&project), &[9; 16]).unwrap();
    }
    for _ in 0..2 {
        let log = SledLog::open(&options).unwrap();
        let project = key("a").project;
        for of in [None, Some(&project)] {
            let usage = log.usage(of).await.unwrap();
            assert_eq!((usage.sessions, usage.bytes), (2, 11));
        }
    }
}

/// Opens a store of the release before the index of subagents existed.
#[tokio::test]
async fn subagents_of_a_store_from_an_earlier_release_are_indexed_on_open() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&root);
    let parent = key("parent");
    let row = encode_list_row(&SessionInfo {
        parent: Some(parent.clone()),
        ..SessionInfo::default()
    });
    {
        let log = SledLog::open(&options).unwrap();
        for (name, list_row) in [("a", row.clone()), ("b", Bytes::new()), ("c", row)] {
            let batch = Batch {
                list_row,
                ..batch(0, b"first")
            };
            log.append(&key(name), batch).await.unwrap();
        }
        let db = log.shared.db().unwrap();
        db.insert(keys::FORMAT_KEY, &2_u64.to_be_bytes()).unwrap();
        let found = log.subagents(std::slice::from_ref(&parent), None, 9).await;
        assert_eq!(found.unwrap(), []);
    }
    for _ in 0..2 {
        let log = SledLog::open(&options).unwrap();
        let found = log.subagents(std::slice::from_ref(&parent), None, 9).await;
        assert_eq!(found.unwrap(), [key("a"), key("c")]);
    }
    // The head names the parent now, so a deletion removes the subagent from the index.
    let log = SledLog::open(&options).unwrap();
    let position = log.head(&key("a")).await.unwrap().unwrap().position();
    log.delete(&key("a"), position, Timestamp::default())
        .await
        .unwrap();
    let db = log.shared.db().unwrap();
    let left = db.scan_prefix(keys::subagents(&parent));
    assert_eq!(
        left.keys().map(Result::unwrap).collect::<Vec<_>>(),
        [keys::subagent(&parent, &key("c"))]
    );
}

#[test]
fn no_value_exceeds_the_page_size() {
    let root = tempfile::tempdir().unwrap();
    let (shared, mut counts, _files) = shared(&options(&root));
    let db = shared.db().unwrap();
    let mut group = WriteGroup::new(&shared, &db, &mut counts);
    for (revision, len) in [(0, 4079), (1, 4080), (2, 4081), (3, 3_000_000), (4, 0)] {
        let list_row = Bytes::from(vec![1; crate::MAX_LIST_ROW_BYTES]);
        let batch = Batch {
            list_row,
            ..batch(revision, &vec![9; len])
        };
        group.append(&key("a"), &batch).ok().unwrap();
    }
    group.apply().unwrap();
    let largest = db.iter().values().map(|value| value.unwrap().len()).max();
    assert_eq!(largest, Some(keys::MAX_VALUE));
    // Two usage rows exist: one for the project and one for all projects. One more record is the identity
    // of the store.
    assert_eq!(db.len(), 1 + 1 + 2 + 733 + 1 + 4 + 2 + 1);
}

#[tokio::test]
async fn unreadable_records_of_one_session_do_not_hide_other_sessions() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&root);
    {
        let log = SledLog::open(&options).unwrap();
        for name in ["a", "b", "c", "d"] {
            let due = DueChange::At(Timestamp::from_millis(5));
            let batch = Batch {
                due,
                ..batch(0, b"frame")
            };
            log.append(&key(name), batch).await.unwrap();
        }
        for name in ["c", "d"] {
            let at = Timestamp::from_millis(7);
            let head = log.head(&key(name)).await.unwrap().unwrap();
            log.delete(&key(name), head.position(), at).await.unwrap();
        }
        for file in ["f", "g", "h", "i"] {
            let at = Timestamp::from_millis(8);
            let files = vec![file.into()];
            log.declare_intents(&key("b"), files, at).await.unwrap();
        }
        log.close().await.unwrap();
    }
    {
        let (shared, ..) = shared(&options);
        let db = shared.db().unwrap();
        let nameless = [&keys::head(&key("a"))[..], b"\xff"].concat();
        let intent = |file| keys::intent(&key("b"), file);
        let broken = [
            keys::head(&key("a")),
            keys::tombstone(&key("c")),
            nameless,
            intent("f"),
            intent("g"),
            intent("i"),
        ];
        for stored in broken {
            db.insert(stored, b"broken").unwrap();
        }
        db.flush().unwrap();
    }
    let log = SledLog::open(&options).unwrap();
    let listing = log.list_rows(None, None, 9).await.unwrap();
    assert_eq!(listing.nameless, 1);
    let names: Vec<_> = listing.rows.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(names, [key("a"), key("b")]);
    assert!(matches!(
        &listing.rows[0].1,
        Err(StoreError::Damaged { key: of, .. }) if *of == key("a")
    ));
    assert!(listing.rows[1].1.is_ok());
    // `list` must not skip a session, so it fails.
    assert!(log.list(None, None, 9).await.is_err());
    let due = log
        .due(DueQuery::ALL, Timestamp::from_millis(9), 9)
        .await
        .unwrap();
    let due: Vec<_> = due.into_iter().map(|due| due.key).collect();
    assert_eq!(due, [key("b")]);
    let tombstones = log.tombstones(None, 9).await.unwrap();
    let tombstones: Vec<_> = tombstones.into_iter().map(|it| it.key).collect();
    assert_eq!(tombstones, [key("d")]);
    for limit in [1, 9] {
        let page = log.list_intents(None, limit).await.unwrap();
        assert_eq!(page.intents.len(), 1);
        assert_eq!((&*page.intents[0].file, page.unreadable), ("h", 2));
        let rest = log
            .list_intents(Some((&key("b"), "h")), limit)
            .await
            .unwrap();
        assert_eq!((rest.intents.len(), rest.unreadable), (0, 1));
    }
}
