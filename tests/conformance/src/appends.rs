//! Checks of appends and reads: compare-and-set, order, pages, sizes and concurrency.

use std::collections::HashSet;

use bytes::Bytes;
use futures::future::join_all;
use palimpsest_core::ids::Revision;

use crate::harness::{Harness, Log, batch, bytes, conflict_at, head, key, read_all, time};
use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{Batch, Frame, MAX_FRAME_BYTES, MAX_LIST_ROW_BYTES, StoreError};

pub(super) async fn run(harness: &dyn Harness) {
    compare_and_set(&harness.fresh().await).await;
    races_have_one_winner(&harness.fresh().await).await;
    pages(&harness.fresh().await).await;
    frames_of_sizes_around_every_limit_are_read_back(harness).await;
    too_large_frames_and_summaries_are_rejected(&harness.fresh().await).await;
    similar_names_are_separate_sessions(&harness.fresh().await).await;
    a_thousand_concurrent_appends_succeed(harness).await;
    canary(&harness.fresh().await).await;
    closed(&harness.fresh().await).await;
}

async fn compare_and_set(log: &Log) {
    let a = key("p/a");
    assert_eq!(log.head(&a).await.expect("head"), None);
    let none = log.frames_of(&a, Revision::ZERO, 100).await.expect("read");
    assert_eq!(none, []);
    // The conflict reports revision zero, because the session does not exist.
    let early = log.append_to(&a, batch(3, 1, bytes(0, 10))).await;
    assert_eq!(conflict_at(early), 0);
    let first = log.append_to(&a, batch(0, 2, bytes(1, 10))).await;
    assert_eq!(first.expect("creates"), Revision::new(2));
    let again = log.append_to(&a, batch(0, 2, bytes(2, 10))).await;
    assert_eq!(conflict_at(again), 2);
    // A frame is atomic, so a revision inside it is not a valid position.
    let inside = log.append_to(&a, batch(1, 1, bytes(2, 10))).await;
    assert_eq!(conflict_at(inside), 2);
    let summary = Bytes::from_static(b"another");
    let second = Batch {
        list_row: summary.clone(),
        ..batch(2, 3, bytes(3, 20))
    };
    let second = log.append_to(&a, second).await;
    assert_eq!(second.expect("appends"), Revision::new(5));
    let head = head(log, &a).await;
    assert_eq!((head.revision, head.list_row), (Revision::new(5), summary));
    // Without a snapshot, all frames belong to the tail.
    assert_eq!((head.log_bytes, head.tail_bytes), (30, 30));
    let frames = read_all(log, &a, 1 << 20).await;
    assert_eq!(
        frames,
        [
            Frame {
                first: Revision::new(1),
                events: 2,
                bytes: bytes(1, 10)
            },
            Frame {
                first: Revision::new(3),
                events: 3,
                bytes: bytes(3, 20)
            },
        ]
    );
}

async fn races_have_one_winner(log: &Log) {
    let a = key("p/race");
    for round in 0..20_u64 {
        // All writers of a round expect the same revision, so exactly one of them may succeed.
        let tasks = (0..16_u64).map(|writer| {
            let (log, a) = (log.clone(), a.clone());
            tokio::spawn(async move {
                let frame = bytes(round * 100 + writer, 50);
                (writer, log.append_to(&a, batch(round, 1, frame)).await)
            })
        });
        let mut winners = Vec::new();
        for task in join_all(tasks).await {
            match task.expect("a writer ends") {
                (writer, Ok(revision)) => {
                    assert_eq!(revision.get(), round + 1);
                    winners.push(writer);
                }
                (_, lost) => assert_eq!(conflict_at(lost), round + 1),
            }
        }
        assert_eq!(winners.len(), 1, "one of the writers wins");
        let last = log
            .frames_of(&a, Revision::new(round), 1)
            .await
            .expect("read");
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].bytes, bytes(round * 100 + winners[0], 50));
    }
}

async fn pages(log: &Log) {
    let a = key("p/pages");
    let mut expected = 0;
    for i in 0..30_u32 {
        let events = i % 4 + 1;
        let frame = bytes(u64::from(i), 1000);
        let appended = log.append_to(&a, batch(expected, events, frame)).await;
        expected = appended.expect("appends").get();
    }
    let all = read_all(log, &a, usize::MAX).await;
    assert_eq!(all.len(), 30);
    // Every page has at least one frame, or a limit below the frame size would stop readers.
    for max_bytes in [0, 1, 999, 1000, 1001, 2000, 4999, 30_000] {
        assert_eq!(read_all(log, &a, max_bytes).await, all);
        let page = log
            .frames_of(&a, Revision::ZERO, max_bytes)
            .await
            .expect("read");
        assert_eq!(page.len(), (max_bytes / 1000).max(1), "a page is full");
    }
    for after in 0..expected {
        let page = log
            .frames_of(&a, Revision::new(after), 1)
            .await
            .expect("read");
        assert_eq!(page.len(), 1);
        let range = page[0].first.get()..=page[0].last().get();
        assert!(range.contains(&(after + 1)), "the frame of the revision");
        assert!(all.contains(&page[0]));
    }
    for past in [expected, expected + 1, u64::MAX] {
        let page = log
            .frames_of(&a, Revision::new(past), 1)
            .await
            .expect("read");
        assert_eq!(page, []);
    }
}

/// Tests the frame sizes at which the sled engine changes its behavior, and 20 MB.
async fn frames_of_sizes_around_every_limit_are_read_back(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/sizes");
    let mut sizes = vec![0, 1, 300_000, 20_000_000, 5, 9_999_999];
    for limit in [
        4080_usize,
        4096,
        8176,
        2 * 4096,
        1 << 20,
        (1 << 20) - 20_000,
    ] {
        sizes.extend([limit - 1, limit, limit + 1]);
    }
    for (revision, size) in (0..).zip(&sizes) {
        let appended = log
            .append_to(&a, batch(revision, 1, bytes(revision, *size)))
            .await;
        appended.expect("appends");
    }
    let log = harness.reopen(log).await;
    let frames = read_all(&log, &a, 1 << 20).await;
    assert_eq!(frames.len(), sizes.len());
    for (i, (frame, size)) in (0..).zip(frames.iter().zip(&sizes)) {
        assert!(frame.bytes == bytes(i, *size), "a frame of {size} bytes");
    }
    let total: usize = sizes.iter().sum();
    assert_eq!(head(&log, &a).await.log_bytes, total as u64);
}

async fn too_large_frames_and_summaries_are_rejected(log: &Log) {
    let a = key("p/large");
    let frame = Bytes::from(vec![0; MAX_FRAME_BYTES + 1]);
    let refused = log.append_to(&a, batch(0, 1, frame)).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    let talkative = Batch {
        list_row: vec![0; MAX_LIST_ROW_BYTES + 1].into(),
        ..batch(0, 1, Bytes::new())
    };
    let refused = log.append_to(&a, talkative).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    assert_eq!(log.head(&a).await.expect("head"), None);
    let longest = Batch {
        list_row: vec![7; MAX_LIST_ROW_BYTES].into(),
        ..batch(0, 1, Bytes::new())
    };
    log.append_to(&a, longest).await.expect("appends");
}

async fn similar_names_are_separate_sessions(log: &Log) {
    // Names that an engine could confuse if it joined project and session carelessly.
    let names = [
        "p/a", "p/a.b", "p/a-b", "p/a_b", "p/ab", "p/A", "p.a/b", "p-a/b", "pa/b", "p/b", "P/a",
        "a/p",
    ];
    for (seed, name) in (0..).zip(names) {
        let appended = log
            .append_to(&key(name), batch(0, 1, bytes(seed, 64)))
            .await;
        appended.expect("appends");
    }
    for (seed, name) in (0..).zip(names) {
        let frames = read_all(log, &key(name), 1 << 20).await;
        assert_eq!(frames.len(), 1, "{name}");
        assert_eq!(frames[0].bytes, bytes(seed, 64), "{name}");
    }
    assert!(log.delete_of(&key("p/a"), time(1)).await.expect("deletes"));
    for name in &names[1..] {
        assert_eq!(read_all(log, &key(name), 1 << 20).await.len(), 1, "{name}");
    }
    let incarnations = join_all(names[1..].iter().map(async |name| {
        let key = key(name);
        head(log, &key).await.incarnation
    }));
    let distinct: HashSet<u64> = incarnations.await.into_iter().collect();
    assert_eq!(distinct.len(), names.len() - 1);
}

/// Appends 20 times to each of 50 sessions, by concurrent writers without coordination.
async fn a_thousand_concurrent_appends_succeed(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let tasks = (0..1000_u64).map(|writer| {
        let log = log.clone();
        tokio::spawn(async move {
            let key = key(&format!("p/s{}", writer % 50));
            let mut expected = 0;
            loop {
                let frame = bytes(writer, 100 + 7 * usize::try_from(writer).expect("small"));
                match log.append_to(&key, batch(expected, 1, frame)).await {
                    Ok(revision) => return (writer, revision),
                    lost => expected = conflict_at(lost),
                }
            }
        })
    });
    let done = join_all(tasks).await;
    // Compare after a restart, so that only durable data counts.
    let log = harness.reopen(log).await;
    let mut sessions = Vec::new();
    for session in 0..50 {
        sessions.push(read_all(&log, &key(&format!("p/s{session}")), 1 << 20).await);
    }
    for task in done {
        let (writer, revision) = task.expect("a writer ends");
        let session = &sessions[usize::try_from(writer % 50).expect("small")];
        // Each frame has one event, so the revision is the number of the frame.
        let frame = &session[usize::try_from(revision.get() - 1).expect("small")];
        let len = 100 + 7 * usize::try_from(writer).expect("small");
        assert_eq!(
            frame.bytes,
            bytes(writer, len),
            "what was acknowledged there"
        );
    }
    assert!(sessions.iter().all(|frames| frames.len() == 20));
}

async fn canary(log: &Log) {
    log.check().await.expect("the store must accept writes");
    let all = log.list(None, None, 10).await.expect("lists");
    assert_eq!(all, [], "the canary is not a session");
}

async fn closed(log: &Log) {
    let a = key("p/a");
    log.append_to(&a, batch(0, 1, bytes(1, 10)))
        .await
        .expect("appends");
    log.close().await.expect("closes");
    let late = log.append_to(&a, batch(1, 1, bytes(1, 10))).await;
    assert!(matches!(late, Err(StoreError::Closed)));
    assert!(matches!(log.check().await, Err(StoreError::Closed)));
    assert!(matches!(log.head(&a).await, Err(StoreError::Closed)));
    log.close().await.expect("a second close must succeed");
}
