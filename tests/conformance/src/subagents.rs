//! Checks of the index of subagents.

use palimpsest_core::ids::SessionKey;

use crate::harness::{Harness, Log, batch, bytes, conflict_at, erase, key};
use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{Batch, MAX_LOOKUP_PARENTS, StoreError};

pub(super) async fn run(harness: &dyn Harness) {
    subagents_are_found_after_a_restart(harness).await;
    similar_names_are_separate(&harness.fresh().await).await;
    pages_of_several_parents_are_complete(&harness.fresh().await).await;
    a_deleted_subagent_is_not_found(harness).await;
    a_rejected_creation_leaves_no_subagent(&harness.fresh().await).await;
    a_later_append_adds_a_missing_parent(harness).await;
    parents_are_limited(&harness.fresh().await).await;
}

fn with_parent(expected: u64, parent: &str) -> Batch {
    Batch {
        parent: Some(key(parent)),
        ..batch(expected, 1, bytes(expected, 50))
    }
}

async fn add(log: &Log, session: &str, batch: Batch) {
    let appended = log.append_to(&key(session), batch).await;
    appended.expect("appends");
}

async fn page(
    log: &Log,
    parents: &[&str],
    after: Option<&SessionKey>,
    limit: usize,
) -> Vec<SessionKey> {
    let parents: Vec<_> = parents.iter().map(|name| key(name)).collect();
    let found = log.subagents(&parents, after, limit).await;
    found.expect("looks up")
}

async fn found(log: &Log, parent: &str) -> Vec<SessionKey> {
    page(log, &[parent], None, 100).await
}

async fn subagents_are_found_after_a_restart(harness: &dyn Harness) {
    let log = harness.fresh().await;
    assert!(found(&log, "p/a").await.is_empty());
    add(&log, "p/a", batch(0, 1, bytes(1, 50))).await;
    // Subagents with large first appends, which an engine may store in several steps.
    for (session, len) in [("p/c", 10), ("p/b", 3_000_000)] {
        let large = Batch {
            frame: bytes(7, len),
            ..with_parent(0, "p/a")
        };
        add(&log, session, large).await;
    }
    add(&log, "p/d", with_parent(0, "p/b")).await;
    add(&log, "p/c", with_parent(1, "p/a")).await;
    let log = harness.reopen(log).await;
    assert_eq!(found(&log, "p/a").await, ["p/b", "p/c"].map(key));
    assert_eq!(found(&log, "p/b").await, ["p/d"].map(key));
    assert!(found(&log, "p/c").await.is_empty());
    assert!(page(&log, &[], None, 100).await.is_empty());
}

async fn similar_names_are_separate(log: &Log) {
    for (session, parent) in [
        ("p/1", "p/a"),
        ("p/2", "p/ab"),
        ("p/3", "p/a-"),
        ("p/4", "p/a.b"),
        ("p-/1", "p-/a"),
        ("q/1", "q/a"),
        // A session that is its own parent.
        ("p/s", "p/s"),
    ] {
        add(log, session, with_parent(0, parent)).await;
    }
    for (parent, session) in [
        ("p/a", "p/1"),
        ("p/ab", "p/2"),
        ("p/a-", "p/3"),
        ("p/a.b", "p/4"),
        ("p-/a", "p-/1"),
        ("q/a", "q/1"),
        ("p/s", "p/s"),
    ] {
        assert_eq!(found(log, parent).await, [key(session)], "{parent}");
    }
}

async fn pages_of_several_parents_are_complete(log: &Log) {
    let mut all = Vec::new();
    for number in 0..40 {
        // 17 and 40 have no common divisor, so each number occurs once, out of order.
        let session = format!("p/{}", (number * 17) % 40);
        let parent = ["p/x", "p/y", "p/z"][number % 3];
        add(log, &session, with_parent(0, parent)).await;
        if parent != "p/z" {
            all.push(key(&session));
        }
    }
    all.sort();
    // 27 sessions belong to the two parents. A page of 27 is full, and the next one is empty.
    for limit in [1, 7, 26, 27, 100] {
        let mut listed: Vec<SessionKey> = Vec::new();
        loop {
            let next = page(log, &["p/x", "p/y", "p/none"], listed.last(), limit).await;
            let is_last = next.len() < limit;
            assert!(next.len() <= limit);
            listed.extend(next);
            if is_last {
                break;
            }
        }
        assert_eq!(listed, all, "pages of {limit}");
    }
}

async fn a_deleted_subagent_is_not_found(harness: &dyn Harness) {
    let log = harness.fresh().await;
    for session in ["p/b", "p/c", "p/d"] {
        add(&log, session, with_parent(0, "p/a")).await;
    }
    assert!(
        log.delete_of(&key("p/b"), crate::harness::time(7))
            .await
            .expect("deletes")
    );
    assert_eq!(found(&log, "p/a").await, ["p/c", "p/d"].map(key));
    // New sessions of the same names have another parent, or none.
    assert!(erase(&log, &key("p/c")).await && erase(&log, &key("p/d")).await);
    add(&log, "p/c", with_parent(0, "p/e")).await;
    add(&log, "p/d", batch(0, 1, bytes(1, 50))).await;
    let log = harness.reopen(log).await;
    assert!(found(&log, "p/a").await.is_empty());
    assert_eq!(found(&log, "p/e").await, [key("p/c")]);
}

async fn a_rejected_creation_leaves_no_subagent(log: &Log) {
    add(log, "p/b", batch(0, 1, bytes(1, 50))).await;
    conflict_at(log.append_to(&key("p/b"), with_parent(0, "p/a")).await);
    assert!(found(log, "p/a").await.is_empty());
}

/// A session whose creation did not name its parent.
async fn a_later_append_adds_a_missing_parent(harness: &dyn Harness) {
    let log = harness.fresh().await;
    add(&log, "p/b", batch(0, 1, bytes(1, 50))).await;
    add(&log, "p/b", with_parent(1, "p/a")).await;
    let log = harness.reopen(log).await;
    assert_eq!(found(&log, "p/a").await, [key("p/b")]);
    assert!(erase(&log, &key("p/b")).await);
    assert!(found(&log, "p/a").await.is_empty());
}

async fn parents_are_limited(log: &Log) {
    let names = |count: usize| {
        (0..count)
            .map(|n| key(&format!("p/{n}")))
            .collect::<Vec<_>>()
    };
    let most = log.subagents(&names(MAX_LOOKUP_PARENTS), None, 1).await;
    most.expect("a lookup of the maximum number of parents");
    let more = log.subagents(&names(MAX_LOOKUP_PARENTS + 1), None, 1).await;
    assert!(matches!(more, Err(StoreError::TooLarge { .. })));
}
