//! Checks of tombstones, from the deletion of a session until its data is removed.

use palimpsest_core::ids::SessionKey;

use crate::harness::{
    Harness, Log, batch, batch_due, bytes, erase, forget, key, lease, restart, time,
};
use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{DueChange, DueQuery, LONGEST_LEASE_MS, StoreError, Tombstone};

pub(super) async fn run(harness: &dyn Harness) {
    a_name_is_blocked_until_its_data_is_removed(harness).await;
    a_lease_survives_the_deletion_of_its_session(harness).await;
    one_process_at_a_time_removes_a_session(harness).await;
    lists(harness).await;
}

async fn create(log: &Log, key: &SessionKey) {
    let created = log.append_to(key, batch(0, 1, bytes(1, 100))).await;
    created.expect("appends");
}

async fn found(log: &Log, key: &SessionKey) -> Option<Tombstone> {
    log.tombstone(key).await.expect("reads")
}

async fn a_name_is_blocked_until_its_data_is_removed(harness: &dyn Harness) {
    let mut log = harness.fresh().await;
    let (a, b) = (key("p/a"), key("p/b"));
    create(&log, &a).await;
    create(&log, &b).await;
    assert_eq!(found(&log, &a).await, None);
    let incarnation = crate::harness::head(&log, &a).await.incarnation;
    assert!(log.delete_of(&a, time(42)).await.expect("deletes"));
    for again in [false, true] {
        if again {
            log = harness.reopen(log).await;
        }
        let tombstone = found(&log, &a)
            .await
            .expect("a deletion must leave a tombstone");
        let expected = Tombstone {
            key: a.clone(),
            incarnation,
            at: time(42),
            lease: None,
        };
        assert_eq!(tombstone, expected);
        let refused = log.append_to(&a, batch(0, 1, bytes(2, 10))).await;
        assert!(matches!(refused, Err(StoreError::Deleting(key)) if key == a));
        // Another incarnation's tombstone counts as removed, but this one must remain.
        let other = log.forget(&a, incarnation + 1, "x").await;
        assert!(
            other.expect("is no failure"),
            "a tombstone of another incarnation counts as removed"
        );
        assert!(found(&log, &a).await.is_some());
    }
    forget(
        &log,
        &found(&log, &a).await.expect("the tombstone must exist"),
    )
    .await;
    assert_eq!(found(&log, &a).await, None);
    let log = harness.reopen(log).await;
    assert_eq!(
        found(&log, &a).await,
        None,
        "a removed tombstone must not return"
    );
    create(&log, &a).await;
    assert!(
        log.forget(&a, incarnation, "x")
            .await
            .expect("is no failure")
    );
    assert_ne!(
        crate::harness::head(&log, &a).await.incarnation,
        incarnation
    );
    assert!(erase(&log, &a).await);
    assert_eq!(crate::harness::read_all(&log, &b, 1 << 20).await.len(), 1);
}

async fn a_lease_survives_the_deletion_of_its_session(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    let due = batch_due(0, DueChange::At(time(5)));
    log.append_to(&a, due).await.expect("appends");
    let claimed = log.claim(&a, lease("w", 90), time(6)).await;
    assert!(claimed.expect("claims"));
    assert!(log.delete_of(&a, time(42)).await.expect("deletes"));
    // The lease has moved to the tombstone, where only a removal can be claimed.
    let renewed = log.claim(&a, lease("w", 190), time(50)).await;
    assert!(!renewed.expect("there is nothing to claim"));
    let (log, is_over) = restart(harness, log).await;
    let tombstone = found(&log, &a)
        .await
        .expect("a deletion must leave a tombstone");
    if is_over {
        assert_eq!(tombstone.lease, None);
        return;
    }
    assert_eq!(tombstone.lease, Some(lease("w", 90)));
    let foreign = log.release(&a, "v", DueChange::Keep).await;
    assert!(!foreign.expect("is not the holder"));
    let given = log.release(&a, "w", DueChange::At(time(60))).await;
    assert!(given.expect("is the holder"));
    assert_eq!(
        found(&log, &a)
            .await
            .expect("the tombstone must exist")
            .lease,
        None
    );
    assert_eq!(log.due(DueQuery::ALL, time(99), 9).await.expect("due"), []);
}

async fn one_process_at_a_time_removes_a_session(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    let claim = async |log: &Log, incarnation: u64, owner: &str, until: i64, now: i64| {
        let claim = log.claim_removal(&a, incarnation, lease(owner, until), time(now));
        claim.await.expect("answers")
    };
    create(&log, &a).await;
    let incarnation = crate::harness::head(&log, &a).await.incarnation;
    assert!(
        !claim(&log, incarnation, "x", 50, 0).await,
        "the session is not deleted"
    );
    let due = batch_due(1, DueChange::At(time(5)));
    log.append_to(&a, due).await.expect("appends");
    // The worker's lease moves to the tombstone, because the worker may still write `summary.md`.
    let worked = log.claim(&a, lease("w", 90), time(6)).await;
    assert!(worked.expect("claims"));
    assert!(log.delete_of(&a, time(42)).await.expect("deletes"));
    assert!(
        !claim(&log, incarnation, "x", 150, 89).await,
        "a worker holds the lease"
    );
    assert!(!claim(&log, incarnation + 1, "x", 150, 90).await, "another");
    assert!(claim(&log, incarnation, "x", 150, 90).await);
    let (log, is_over) = restart(harness, log).await;
    assert!(!is_over || claim(&log, incarnation, "x", 150, 90).await);
    assert!(!claim(&log, incarnation, "y", 200, 149).await, "is held");
    assert!(claim(&log, incarnation, "x", 160, 149).await, "renews");
    let held = found(&log, &a)
        .await
        .expect("the tombstone must exist")
        .lease;
    assert_eq!(held, Some(lease("x", 160)));
    let given = log.release(&a, "x", DueChange::Keep).await;
    assert!(given.expect("is the holder"));
    assert!(claim(&log, incarnation, "y", 200, 150).await);
    let far = 200 + 2 * LONGEST_LEASE_MS;
    assert!(claim(&log, incarnation, "y", far, 150).await, "renews");
    assert!(
        claim(&log, incarnation, "x", 200, 150).await,
        "a wrong clock"
    );
    let other = log.forget(&a, incarnation, "y").await;
    assert!(
        !other.expect("is no failure"),
        "another process holds the claim"
    );
    assert!(found(&log, &a).await.is_some());
    forget(
        &log,
        &found(&log, &a).await.expect("the tombstone must exist"),
    )
    .await;
    assert!(
        !claim(&log, incarnation, "y", 300, 151).await,
        "a removed tombstone cannot be claimed"
    );
}

async fn lists(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let mut names: Vec<_> = ["a/x", "a/x.y", "a-b/x", "b/0", "A/x"].map(key).into();
    for key in &names {
        create(&log, key).await;
        assert!(log.delete_of(key, time(1)).await.expect("deletes"));
    }
    create(&log, &key("a/y")).await;
    names.sort();
    for limit in [1, 2, 5, 9] {
        let mut listed: Vec<SessionKey> = Vec::new();
        loop {
            let page = log.tombstones(listed.last(), limit).await.expect("lists");
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            listed.extend(page.into_iter().map(|tombstone| tombstone.key));
        }
        assert_eq!(listed, names);
    }
}
