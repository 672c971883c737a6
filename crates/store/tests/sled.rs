//! Tests of the sled engine's folder: locks, corruption, format versions and compaction.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use palimpsest_conformance::LatestIncarnation as _;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_store::sled::{SledLog, SledOptions, compact_store};
use palimpsest_store::{
    ArrayIndex as _, Batch, DueChange, DueQuery, Lease, Position, SessionLog, SessionTips,
    Store as _, StoreError, StoredSnapshot, WorkQueue as _,
};

fn key(number: u64) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/s{number}")).unwrap()
}

fn batch(expected: u64, frame: Vec<u8>) -> Batch {
    Batch {
        expected: Position {
            revision: Revision::new(expected),
            ..Position::START
        },
        events: NonZeroU32::MIN,
        frame: frame.into(),
        list_row: Bytes::from_static(b"s"),
        parent: None,
        due: DueChange::At(Timestamp::from_millis(7)),
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

fn open(dir: &Path) -> Result<SledLog, StoreError> {
    SledLog::open(&SledOptions::new(dir))
}

/// Creates a closed store with 20 sessions.
async fn filled(dir: &Path) {
    let log = open(dir).unwrap();
    for session in 0..20 {
        for revision in 0..5 {
            let frame = vec![u8::try_from(session).unwrap(); 3000];
            log.append_to(&key(session), batch(revision, frame))
                .await
                .unwrap();
        }
    }
    log.close().await.unwrap();
}

fn kept_as(result: Result<SledLog, StoreError>) -> PathBuf {
    match result {
        Err(StoreError::Corrupt { kept, .. }) => kept,
        Err(other) => panic!("expected corruption, got {other}"),
        Ok(_) => panic!("a corrupt store was opened"),
    }
}

/// Checks that a damaged store is kept and never replaced by an empty one. An operator allows an empty
/// start by creating an empty folder.
async fn is_quarantined(harm: impl Fn(&Path)) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    filled(&dir).await;
    harm(&dir);
    let before = fs::metadata(dir.join("mark")).unwrap().len();
    let kept = kept_as(open(&dir));
    assert_eq!(kept, root.path().join("store.quarantined-1"));
    assert_eq!(fs::metadata(kept.join("mark")).unwrap().len(), before);
    assert!(!dir.exists());
    // A supervisor may restart the process many times. None of the starts may create an empty store.
    assert_eq!(kept_as(open(&dir)), kept, "a restart does not start empty");
    assert!(!dir.exists());
    fs::create_dir(&dir).unwrap();
    let log = open(&dir).unwrap();
    assert_eq!(log.head(&key(0)).await.unwrap(), None);
    assert!(kept.exists());
}

fn flip(path: &Path, at: SeekFrom) {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    let at = file.seek(at).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[byte[0] ^ 0xFF]).unwrap();
}

fn snapshot_file(dir: &Path) -> PathBuf {
    let mut files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("snap.")
        })
        .unwrap()
}

async fn id_of(dir: &Path) -> palimpsest_store::StoreId {
    open(dir).unwrap().store_id().await.unwrap()
}

#[tokio::test]
async fn a_store_with_a_torn_sled_snapshot_is_quarantined() {
    is_quarantined(|dir| {
        // sled writes its snapshot file when a store is opened.
        drop(open(dir).unwrap());
        flip(&snapshot_file(dir), SeekFrom::End(-3));
    })
    .await;
}

#[tokio::test]
async fn a_store_without_its_log_is_quarantined() {
    is_quarantined(|dir| fs::remove_file(dir.join("db")).unwrap()).await;
}

/// sled truncates its log silently at the first unreadable record.
#[tokio::test]
async fn a_store_with_a_flipped_bit_is_quarantined() {
    // Flip a bit in every copy of one session's data. Some of the copies are live.
    is_quarantined(|dir| {
        let path = dir.join("db");
        let bytes = fs::read(&path).unwrap();
        // Every frame of session 13 consists of this byte.
        let said = [13; 512];
        let places = (0..bytes.len()).step_by(said.len());
        for at in places.filter(|at| bytes[*at..].starts_with(&said)) {
            flip(&path, SeekFrom::Start(at as u64));
        }
    })
    .await;
}

#[tokio::test]
async fn files_left_by_an_interrupted_open_are_ignored() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    filled(&dir).await;
    fs::write(dir.join("snap.FFFFFFFFFFFFFFFF.generating"), b"half a snap").unwrap();
    fs::write(dir.join("conf"), b"segment_size: 52").unwrap();
    let log = open(&dir).unwrap();
    let sessions = log.list(None, None, 100).await.unwrap();
    assert_eq!(sessions.len(), 20);
}

#[tokio::test]
async fn a_store_is_locked_until_its_process_closes_it() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let log = open(&dir).unwrap();
    assert!(matches!(open(&dir), Err(StoreError::Locked { .. })));
    log.append_to(&key(0), batch(0, vec![1])).await.unwrap();
    // A waiting process gets the lock when the other one ends.
    let waiting = {
        let dir = dir.clone();
        std::thread::spawn(move || open(&dir))
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(log);
    let log = waiting.join().unwrap().unwrap();
    assert!(log.head(&key(0)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_newer_format_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    filled(&dir).await;
    // The failpoint of the store ends an opening that wrote a snapshot.
    let db = sled::open(&dir).or_else(|_| sled::open(&dir)).unwrap();
    // Simulate a store of a later release.
    db.insert(b"\0format", &4_u64.to_be_bytes()).unwrap();
    db.flush().unwrap();
    drop(db);
    let refused = open(&dir);
    assert!(matches!(
        refused,
        Err(StoreError::Newer {
            found: 4,
            supported: 3
        })
    ));
    assert!(dir.exists());
}

#[tokio::test]
async fn a_foreign_sled_database_is_quarantined() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let db = sled::open(&dir).unwrap();
    db.insert(b"theirs", b"1").unwrap();
    drop(db);
    kept_as(open(&dir));
}

#[tokio::test]
async fn a_compacted_copy_is_complete_and_smaller() {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let log = open(&from).unwrap();
    for session in 0..12 {
        for revision in 0..6 {
            let byte = u8::try_from(session * 6 + revision).unwrap();
            let with_tip = Batch {
                tips: Some(SessionTips {
                    scope: Digest::default(),
                    digests: vec![Digest::from_bytes([byte; 16])],
                }),
                ..batch(revision, vec![byte; 150_000])
            };
            log.append_to(&key(session), with_tip).await.unwrap();
        }
        let snapshot = StoredSnapshot {
            at: Revision::new(4),
            bytes: vec![5; 50_000].into(),
        };
        log.put_snapshot_of(&key(session), snapshot).await.unwrap();
    }
    for session in 3..12 {
        log.delete_of(&key(session), Timestamp::default())
            .await
            .unwrap();
    }
    let lease = Lease {
        owner: "w".into(),
        until: Timestamp::from_millis(99),
    };
    assert!(
        log.claim(&key(1), lease, Timestamp::from_millis(8))
            .await
            .unwrap()
    );
    let old = root.path().join("old");
    let open_still = compact_store(&from, &to, &old);
    assert!(matches!(open_still, Err(StoreError::Locked { .. })));
    drop(log);
    // The lease ends with its process, both in the store and in its copy.
    let log = open(&from).unwrap();
    let before = dump(&log).await;
    drop(log);
    let id = id_of(&from).await;
    let copied = compact_store(&from, &to, &old).unwrap();
    assert_eq!(copied.sessions, 3);
    assert!(copied.bytes > 3 * 6 * 150_000);
    assert!(
        copied.to_disk_bytes < copied.from_disk_bytes / 2,
        "{copied:?}"
    );
    assert!(
        compact_store(&from, &old, &root.path().join("x")).is_err(),
        "an occupied folder is not overwritten"
    );
    let none = root.path().join("none");
    assert!(compact_store(&none, &root.path().join("x"), &root.path().join("y")).is_err());
    assert!(!to.exists(), "the copy is in its place");
    assert_eq!((id_of(&from).await, id_of(&old).await), (id, id));
    let log = open(&from).unwrap();
    assert_eq!(dump(&log).await, before);
    // Only the last tip of each session is in the index, and those of deleted sessions are not.
    for (tip, session) in [(5, Some(0)), (11, Some(1)), (10, None), (23, None)] {
        let tips = [Digest::from_bytes([tip; 16])];
        let project = key(1).project;
        let found = log.find_by_tip(&project, Digest::default(), &tips);
        assert_eq!(found.await.unwrap(), session.map(key), "{tip}");
    }
    log.append_to(&key(1), batch(6, vec![1])).await.unwrap();
    let created = log.append_to(&key(50), batch(0, vec![1])).await;
    created.unwrap();
    let incarnation = log.head(&key(50)).await.unwrap().unwrap().incarnation;
    // The copy must not reuse incarnations of deleted sessions.
    assert_eq!(incarnation, 13, "counters go on");
    drop(log);
    assert_eq!(
        dump(&open(&old).unwrap()).await,
        before,
        "the former store was changed"
    );
}

async fn dump(log: &SledLog) -> String {
    let mut out = String::new();
    for (key, head) in log.list(None, None, 1000).await.unwrap() {
        let frames = log
            .frames_of(&key, Revision::ZERO, usize::MAX)
            .await
            .unwrap();
        let snapshot = log.snapshot_of(&key).await.unwrap();
        let lens: Vec<_> = frames
            .iter()
            .map(|f| (f.first, f.bytes.len(), f.bytes[0]))
            .collect();
        let shot = snapshot.map(|s| (s.at, s.bytes.len()));
        writeln!(out, "{key} {head:?} {lens:?} {shot:?}").unwrap();
    }
    out + &format!(
        "{:?}",
        log.due(DueQuery::ALL, Timestamp::from_millis(1000), 100)
            .await
            .unwrap()
    )
}

#[tokio::test]
async fn engine_statistics_count_commits_groups_and_bytes() {
    let root = tempfile::tempdir().unwrap();
    let log = std::sync::Arc::new(open(&root.path().join("store")).unwrap());
    let tasks: Vec<_> = (0..200)
        .map(|session| {
            let log = log.clone();
            tokio::spawn(async move { log.append_to(&key(session), batch(0, vec![1; 500])).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let stats = log.stats();
    assert_eq!((stats.commits, stats.queue_depth), (200, 0));
    assert!(stats.groups < 200, "appends share syncs: {stats:?}");
    assert!(stats.largest_group > 1 && stats.bytes > 100_000 && stats.last_sync_micros > 0);
}
