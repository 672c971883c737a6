//! Checks of the index of arrays.

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::message::Digest;

use crate::harness::{Harness, Log, batch, bytes, conflict_at, erase, key, time};
use crate::latest_incarnation::LatestIncarnation as _;
use crate::memory::MemoryLog;
use palimpsest_store::{Batch, MAX_LOOKUP_DIGESTS, MAX_SESSION_TIPS, SessionTips, StoreError};

pub(super) async fn run(harness: &dyn Harness) {
    sessions_are_found_after_a_restart(harness).await;
    replaced_tips_are_not_found(harness).await;
    scopes_and_projects_are_separate(&harness.fresh().await).await;
    the_first_digest_and_the_latest_session_win(harness).await;
    a_rejected_append_leaves_no_tip(&harness.fresh().await).await;
    tips_vanish_with_their_session(harness).await;
    tips_come_with_large_frames_and_files(harness).await;
    lengths_are_limited(&harness.fresh().await).await;
    random_changes(harness).await;
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 16])
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an append takes an optional value"
)]
fn tips(scope: u8, digests: &[u8]) -> Option<SessionTips> {
    Some(SessionTips {
        scope: digest(scope),
        digests: digests.iter().map(|byte| digest(*byte)).collect(),
    })
}

fn with_tips(expected: u64, scope: u8, digests: &[u8]) -> Batch {
    Batch {
        tips: tips(scope, digests),
        ..batch(expected, 1, bytes(expected, 50))
    }
}

async fn add(log: &Log, session: &str, batch: Batch) {
    let appended = log.append_to(&key(session), batch).await;
    appended.expect("appends");
}

async fn find_in(log: &Log, project: &str, scope: u8, digests: &[u8]) -> Option<SessionKey> {
    let project = ProjectId::new(project).expect("a legal project");
    let digests: Vec<Digest> = digests.iter().map(|byte| digest(*byte)).collect();
    let found = log.find_by_tip(&project, digest(scope), &digests).await;
    found.expect("looks up")
}

async fn find(log: &Log, digests: &[u8]) -> Option<SessionKey> {
    find_in(log, "p", 1, digests).await
}

async fn sessions_are_found_after_a_restart(harness: &dyn Harness) {
    let log = harness.fresh().await;
    assert_eq!(find(&log, &[1, 2]).await, None);
    add(&log, "p/a", with_tips(0, 1, &[1, 2])).await;
    add(&log, "p/b", with_tips(0, 1, &[3])).await;
    // An append without tips keeps them.
    add(&log, "p/a", batch(1, 1, bytes(9, 50))).await;
    let log = harness.reopen(log).await;
    for (digests, session) in [([1], "p/a"), ([2], "p/a"), ([3], "p/b")] {
        assert_eq!(find(&log, &digests).await, Some(key(session)));
    }
    assert_eq!(find(&log, &[4]).await, None);
    assert_eq!(find(&log, &[]).await, None);
}

async fn replaced_tips_are_not_found(harness: &dyn Harness) {
    let log = harness.fresh().await;
    add(&log, "p/a", with_tips(0, 1, &[1, 2, 3])).await;
    add(&log, "p/a", with_tips(1, 1, &[2, 3, 4])).await;
    assert_eq!(find(&log, &[1]).await, None);
    let log = harness.reopen(log).await;
    for known in [2, 3, 4] {
        assert_eq!(find(&log, &[known]).await, Some(key("p/a")));
    }
    add(&log, "p/a", with_tips(2, 1, &[])).await;
    assert_eq!(find(&log, &[1, 2, 3, 4]).await, None);
    add(&log, "p/a", with_tips(3, 1, &[2])).await;
    // Another scope replaces the tips of the first one.
    add(&log, "p/a", with_tips(4, 7, &[2])).await;
    assert_eq!(find(&log, &[2]).await, None);
    assert_eq!(find_in(&log, "p", 7, &[2]).await, Some(key("p/a")));
}

async fn scopes_and_projects_are_separate(log: &Log) {
    for (session, scope) in [("p/a", 1), ("p/b", 2), ("q/a", 1), ("p-a/a", 1)] {
        add(log, session, with_tips(0, scope, &[5])).await;
    }
    for (project, scope, session) in [
        ("p", 1, Some("p/a")),
        ("p", 2, Some("p/b")),
        ("p", 3, None),
        ("q", 1, Some("q/a")),
        ("q", 2, None),
        ("p-a", 1, Some("p-a/a")),
        ("p-", 1, None),
    ] {
        let found = find_in(log, project, scope, &[5]).await;
        assert_eq!(found, session.map(key), "{project} {scope}");
    }
}

async fn the_first_digest_and_the_latest_session_win(harness: &dyn Harness) {
    let log = harness.fresh().await;
    add(&log, "p/b", with_tips(0, 1, &[1, 2])).await;
    add(&log, "p/c", with_tips(0, 1, &[1])).await;
    add(&log, "p/a", with_tips(0, 1, &[1, 3])).await;
    assert_eq!(find(&log, &[2, 1]).await, Some(key("p/b")));
    assert_eq!(find(&log, &[9, 3, 2]).await, Some(key("p/a")));
    assert_eq!(find(&log, &[1]).await, Some(key("p/a")));
    // A session keeps the rank of its tip, and gets a later one if it gets the tip again.
    add(&log, "p/b", with_tips(1, 1, &[1, 2, 4])).await;
    assert_eq!(find(&log, &[1]).await, Some(key("p/a")));
    let log = harness.reopen(log).await;
    add(&log, "p/b", with_tips(2, 1, &[2])).await;
    add(&log, "p/b", with_tips(3, 1, &[1, 2])).await;
    assert_eq!(find(&log, &[1]).await, Some(key("p/b")));
    // The next one follows if the latest leaves.
    assert!(erase(&log, &key("p/b")).await);
    assert_eq!(find(&log, &[1]).await, Some(key("p/a")));
}

async fn a_rejected_append_leaves_no_tip(log: &Log) {
    add(log, "p/a", with_tips(0, 1, &[1])).await;
    let late = log.append_to(&key("p/a"), with_tips(0, 1, &[2])).await;
    assert_eq!(conflict_at(late), 1);
    let lost = Batch {
        completed_intents: vec!["file".into()],
        ..with_tips(1, 1, &[3])
    };
    let lost = log.append_to(&key("p/a"), lost).await;
    assert!(matches!(lost, Err(StoreError::IntentRevoked(_))));
    let missing = log.append_to(&key("p/b"), with_tips(4, 1, &[4])).await;
    assert_eq!(conflict_at(missing), 0);
    assert_eq!(find(log, &[2, 3, 4]).await, None);
    assert_eq!(find(log, &[1]).await, Some(key("p/a")));
}

async fn tips_vanish_with_their_session(harness: &dyn Harness) {
    let log = harness.fresh().await;
    add(&log, "p/a", with_tips(0, 1, &[1, 2])).await;
    assert!(
        log.delete_of(&key("p/a"), time(1)).await.expect("deletes"),
        "the session existed"
    );
    assert_eq!(find(&log, &[1, 2]).await, None, "a tombstone remains");
    let log = harness.reopen(log).await;
    assert_eq!(find(&log, &[1, 2]).await, None);
    let tombstone = log.tombstone(&key("p/a")).await.expect("reads");
    crate::harness::forget(&log, &tombstone.expect("a deletion leaves one")).await;
    // A later session of the same name has its own tips.
    add(&log, "p/a", batch(0, 1, bytes(1, 50))).await;
    assert_eq!(find(&log, &[1, 2]).await, None);
    add(&log, "p/a", with_tips(1, 1, &[2])).await;
    assert_eq!(find(&log, &[1, 2]).await, Some(key("p/a")));
    assert_eq!(find(&log, &[1]).await, None);
}

async fn tips_come_with_large_frames_and_files(harness: &dyn Harness) {
    let log = harness.fresh().await;
    for (revision, session) in [(0, "p/a"), (1, "p/a"), (0, "p/b")] {
        let files = vec![format!("file-{revision}").into_boxed_str()];
        log.declare_intents(&key(session), files.clone(), time(1))
            .await
            .expect("declares");
        let tip = u8::try_from(revision).expect("small") + u8::from(session == "p/b") * 8;
        let large = Batch {
            completed_intents: files,
            tips: tips(1, &[tip]),
            ..batch(revision, 1, bytes(revision, 3_000_000))
        };
        add(&log, session, large).await;
        assert_eq!(find(&log, &[tip]).await, Some(key(session)));
    }
    let log = harness.reopen(log).await;
    assert_eq!(find(&log, &[0]).await, None, "replaced");
    assert_eq!(find(&log, &[1]).await, Some(key("p/a")));
    assert_eq!(find(&log, &[8]).await, Some(key("p/b")));
    let left = log.list_intents(None, 9).await.expect("lists");
    assert!(left.intents.is_empty(), "{left:?}");
}

async fn lengths_are_limited(log: &Log) {
    let most: Vec<u8> = (0..=u8::MAX).take(MAX_SESSION_TIPS + 1).collect();
    let refused = log.append_to(&key("p/a"), with_tips(0, 1, &most)).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    add(log, "p/a", with_tips(0, 1, &most[1..])).await;
    let lookup: Vec<Digest> = (0..=u8::MAX).map(digest).collect();
    let project = ProjectId::new("p").expect("a legal project");
    let find = async |digests| log.find_by_tip(&project, digest(1), digests).await;
    let refused = find(&lookup[..=MAX_LOOKUP_DIGESTS]).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    let found = find(&lookup[..MAX_LOOKUP_DIGESTS]).await;
    assert_eq!(found.expect("looks up"), Some(key("p/a")));
}

/// Compares an engine with the reference implementation after random changes.
async fn random_changes(harness: &dyn Harness) {
    let reference: Log = std::sync::Arc::new(MemoryLog::new());
    let mut log = harness.fresh().await;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % below
    };
    for step in 0..150 {
        let session = ["p/a", "p/b", "p/c", "q/a"][usize::try_from(random(4)).expect("small")];
        if random(12) == 0 {
            assert_eq!(
                erase(&log, &key(session)).await,
                erase(&reference, &key(session)).await
            );
        } else {
            let head = reference.head(&key(session)).await.expect("reads");
            let revision = head.map_or(0, |head| head.revision.get());
            let mut digests: Vec<u8> = Vec::new();
            for _ in 0..random(5) {
                let digest = u8::try_from(random(6)).expect("small");
                if !digests.contains(&digest) {
                    digests.push(digest);
                }
            }
            let scope = u8::from(random(8) == 0);
            for log in [&log, &reference] {
                add(log, session, with_tips(revision, scope, &digests)).await;
            }
        }
        if step % 60 == 59 {
            log = harness.reopen(log).await;
        }
        for (project, scope) in [("p", 0), ("p", 1), ("q", 0)] {
            for digest in 0..6 {
                assert_eq!(
                    find_in(&log, project, scope, &[digest]).await,
                    find_in(&reference, project, scope, &[digest]).await,
                    "step {step}, {project}, scope {scope}, digest {digest}"
                );
            }
        }
    }
}
