//! Checks of the work queue: due times, leases and their interaction.

use futures::future::join_all;
use palimpsest_core::ids::{Revision, Timestamp};

use crate::harness::{Harness, Log, batch, batch_due, bytes, head, key, lease, restart, time};
use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{
    DueChange, DueQuery, DueSession, LONGEST_LEASE_MS, LONGEST_WAIT_MS, MAX_OWNER_BYTES, StoreError,
};

pub(super) async fn run(harness: &dyn Harness) {
    due_in_order(harness).await;
    leases(harness).await;
    a_release_keeps_the_due_time_of_an_append(&harness.fresh().await).await;
    sessions_are_reserved_for_their_previous_worker(&harness.fresh().await).await;
    a_wrong_clock_does_not_delay_other_workers(&harness.fresh().await).await;
    concurrent_claims_have_one_winner(&harness.fresh().await).await;
    too_long_owner_names_are_rejected(&harness.fresh().await).await;
}

async fn append(log: &Log, name: &str, due: DueChange) {
    let key = key(name);
    let current = log.head(&key).await.expect("head");
    let revision = current.map_or(0, |head| head.revision.get());
    let appended = log.append_to(&key, batch_due(revision, due)).await;
    appended.expect("appends");
}

async fn due_names(log: &Log, now: i64, limit: usize) -> Vec<String> {
    let due = log.due(DueQuery::ALL, time(now), limit).await.expect("due");
    due.iter().map(|due| due.key.session.to_string()).collect()
}

async fn due_in_order(harness: &dyn Harness) {
    let log = harness.fresh().await;
    for (name, at) in [
        ("p/c", 30),
        ("p/a", 10),
        ("q/b", 20),
        ("p/d", -5),
        ("a/e", 30),
    ] {
        append(&log, name, DueChange::At(time(at))).await;
    }
    append(&log, "p/never", DueChange::Keep).await;
    let log = harness.reopen(log).await;
    assert_eq!(due_names(&log, -6, 9).await, [""; 0]);
    assert_eq!(due_names(&log, -5, 9).await, ["d"]);
    assert_eq!(due_names(&log, 29, 9).await, ["d", "a", "b"]);
    // `e` and `c` are due at the same time, so the key decides: `a/e` is before `p/c`.
    assert_eq!(due_names(&log, 30, 9).await, ["d", "a", "b", "e", "c"]);
    assert_eq!(due_names(&log, 30, 2).await, ["d", "a"]);
    assert_eq!(due_names(&log, 30, 0).await, [""; 0]);
    let due_names_of = async |limit: usize, max_per_project: usize| {
        let asks = DueQuery {
            owner: "x",
            max_per_project,
            others_ready_before: time(i64::MAX),
        };
        let due = log.due(asks, time(30), limit).await.expect("due");
        due.iter()
            .map(|due| due.key.to_string())
            .collect::<Vec<_>>()
    };
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| key(name).to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        due_names_of(9, 1).await,
        names(&["p/d", "q/b", "a/e"]),
        "none hides another"
    );
    assert_eq!(due_names_of(2, 1).await, names(&["p/d", "q/b"]));
    assert_eq!(
        due_names_of(9, 2).await,
        names(&["p/d", "p/a", "q/b", "a/e"])
    );
    // A later time must not postpone a waiting session, and an earlier one must take effect.
    append(&log, "p/d", DueChange::At(time(25))).await;
    append(&log, "p/c", DueChange::At(time(25))).await;
    append(&log, "p/a", DueChange::Clear).await;
    append(&log, "q/b", DueChange::Keep).await;
    let due = log
        .due(DueQuery::ALL, time(i64::MAX), 9)
        .await
        .expect("due");
    let entry = |name: &str, at: i64, revision: u64| DueSession {
        key: key(name),
        at: time(at),
        revision: Revision::new(revision),
    };
    let expected = [
        entry("p/d", -5, 2),
        entry("q/b", 20, 2),
        entry("p/c", 25, 2),
        entry("a/e", 30, 1),
    ];
    assert_eq!(due, expected);
    assert_eq!(head(&log, &key("p/a")).await.due, None);
    let waits = head(&log, &key("p/d")).await.due;
    assert_eq!(waits, Some(time(-5)), "the due time must be the first one");
}

async fn leases(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    assert!(
        !log.claim(&a, lease("x", 50), time(0))
            .await
            .expect("no session")
    );
    append(&log, "p/a", DueChange::At(time(10))).await;
    assert!(
        !log.claim(&a, lease("x", 50), time(9))
            .await
            .expect("not due yet")
    );
    assert!(
        log.claim(&a, lease("x", 50), time(10))
            .await
            .expect("claims")
    );
    let (log, is_over) = restart(harness, log).await;
    if is_over {
        assert_eq!(head(&log, &a).await.lease, None);
        assert_eq!(due_names(&log, 10, 9).await, ["a"], "it waits again");
        let claimed = log.claim(&a, lease("x", 50), time(10)).await;
        assert!(claimed.expect("claims"));
    }
    assert!(
        // A valid lease excludes other workers, and only its holder can renew it.
        !log.claim(&a, lease("y", 90), time(49))
            .await
            .expect("is leased")
    );
    assert_eq!(due_names(&log, 49, 9).await, [""; 0]);
    assert!(
        log.claim(&a, lease("x", 70), time(49))
            .await
            .expect("renews")
    );
    assert_eq!(due_names(&log, 69, 9).await, [""; 0]);
    assert!(
        !log.release(&a, "y", DueChange::Clear)
            .await
            .expect("not its lease")
    );
    let due = log.due(DueQuery::ALL, time(70), 9).await.expect("due");
    assert_eq!(due.len(), 1, "an expired lease must not hide a session");
    assert_eq!(due[0].at, time(10));
    assert!(
        log.claim(&a, lease("y", 99), time(70))
            .await
            .expect("takes over")
    );
    assert!(
        !log.release(&a, "x", DueChange::Clear)
            .await
            .expect("lost it")
    );
    assert_eq!(head(&log, &a).await.lease, Some(lease("y", 99)));
    assert!(
        log.release(&a, "y", DueChange::At(time(200)))
            .await
            .expect("releases")
    );
    let after = head(&log, &a).await;
    assert_eq!((after.due, after.lease), (Some(time(200)), None));
    assert!(!log.release(&a, "y", DueChange::Clear).await.expect("twice"));
    assert!(
        log.claim(&a, lease("y", 300), time(200))
            .await
            .expect("claims")
    );
    assert!(
        log.release(&a, "y", DueChange::Keep)
            .await
            .expect("releases")
    );
    assert_eq!(due_names(&log, 200, 9).await, ["a"], "as it was");
    assert!(
        log.claim(&a, lease("y", 300), time(200))
            .await
            .expect("claims")
    );
    assert!(
        log.release(&a, "y", DueChange::Clear)
            .await
            .expect("releases")
    );
    assert_eq!(due_names(&log, i64::MAX, 9).await, [""; 0]);
    assert!(
        !log.claim(&a, lease("y", 400), time(300))
            .await
            .expect("not due")
    );
}

async fn a_release_keeps_the_due_time_of_an_append(log: &Log) {
    let a = key("p/a");
    let claim = async |now: i64| {
        let claimed = log.claim(&a, lease("x", now + 100), time(now)).await;
        assert!(claimed.expect("claims"));
    };
    let release = async |next: DueChange| {
        assert!(log.release(&a, "x", next).await.expect("releases"));
        head(log, &a).await.due.map(Timestamp::as_millis)
    };
    append(log, "p/a", DueChange::At(time(10))).await;
    claim(10).await;
    append(log, "p/a", DueChange::At(time(20))).await;
    assert_eq!(due_names(log, 109, 9).await, [""; 0], "still leased");
    assert_eq!(
        release(DueChange::Clear).await,
        Some(20),
        "the due time of the append"
    );
    claim(20).await;
    append(log, "p/a", DueChange::At(time(20))).await;
    assert_eq!(
        release(DueChange::Clear).await,
        Some(20),
        "the same due time, set again"
    );
    claim(20).await;
    append(log, "p/a", DueChange::Keep).await;
    // Only appends that change the due time override the release.
    assert_eq!(
        release(DueChange::Clear).await,
        None,
        "the append did not change the due time"
    );
    append(log, "p/a", DueChange::At(time(30))).await;
    claim(30).await;
    append(log, "p/a", DueChange::Clear).await;
    assert!(
        log.claim(&a, lease("x", 500), time(40))
            .await
            .expect("renews")
    );
    assert_eq!(
        release(DueChange::At(time(90))).await,
        None,
        "the due time of the append"
    );
    append(log, "p/a", DueChange::At(time(50))).await;
    claim(50).await;
    append(log, "p/a", DueChange::At(time(60))).await;
    assert!(
        log.claim(&a, lease("x", 500), time(70))
            .await
            .expect("renews")
    );
    assert_eq!(
        release(DueChange::Clear).await,
        Some(60),
        "a renewal has not seen it"
    );
    claim(200).await;
    assert_eq!(release(DueChange::Clear).await, None, "a new claim has");
}

async fn sessions_are_reserved_for_their_previous_worker(log: &Log) {
    let a = key("p/a");
    let offered = async |owner: &str, now: i64, others_before: i64| {
        let asks = DueQuery {
            owner,
            max_per_project: 9,
            others_ready_before: time(others_before),
        };
        let due = log.due(asks, time(now), 9).await.expect("due");
        due.iter().any(|due| due.key == a)
    };
    append(log, "p/a", DueChange::At(time(10))).await;
    assert!(offered("x", 10, 0).await && offered("y", 10, 0).await);
    assert!(
        log.claim(&a, lease("x", 50), time(10))
            .await
            .expect("claims")
    );
    assert!(!offered("x", 20, 0).await && !offered("y", 20, 20).await);
    let next = DueChange::At(time(60));
    assert!(log.release(&a, "x", next).await.expect("releases"));
    assert!(offered("x", 60, 0).await);
    // In a shared store, a session is reserved for its previous worker for a while.
    assert_eq!(offered("y", 60, 60).await, log.is_exclusive());
    append(log, "p/a", DueChange::At(time(70))).await;
    assert_eq!(offered("y", 70, 60).await, log.is_exclusive());
    assert!(offered("y", 70, 61).await, "it is not taken up");
    assert!(
        log.claim(&a, lease("x", 90), time(70))
            .await
            .expect("claims")
    );
    assert!(offered("y", 90, 0).await, "it was never given back");
    assert!(
        log.claim(&a, lease("y", 120), time(90))
            .await
            .expect("claims")
    );
    assert!(log.release(&a, "y", next).await.expect("releases"));
    assert!(offered("y", 100, 0).await);
    assert_eq!(offered("x", 100, 60).await, log.is_exclusive());
    assert!(
        log.claim(&a, lease("x", 130), time(100))
            .await
            .expect("who asks is given it")
    );
}

/// Due times and leases from a process with a clock that is ahead must not delay other workers.
async fn a_wrong_clock_does_not_delay_other_workers(log: &Log) {
    const NOW: i64 = 1_000;
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;
    let claim = async |name: &str, owner: &str, until: i64, now: i64| {
        let claimed = log.claim(&key(name), lease(owner, until), time(now)).await;
        claimed.expect("answers")
    };
    append(log, "p/far", DueChange::At(time(NOW + YEAR))).await;
    append(log, "p/soon", DueChange::At(time(NOW + LONGEST_WAIT_MS))).await;
    append(log, "p/now", DueChange::At(time(NOW))).await;
    // A due time further ahead than the longest wait counts as reached. `soon` is exactly at this limit and waits.
    assert_eq!(due_names(log, NOW, 9).await, ["now", "far"]);
    assert_eq!(due_names(log, NOW, 1).await, ["now"]);
    assert!(
        !claim("p/soon", "x", NOW + 50, NOW).await,
        "the session is not due"
    );
    assert!(claim("p/far", "x", NOW + 50, NOW).await);
    assert_eq!(due_names(log, NOW, 9).await, ["now"]);
    let next = DueChange::At(time(NOW + YEAR));
    let released = log.release(&key("p/far"), "x", next).await;
    assert!(released.expect("releases"));
    assert_eq!(due_names(log, NOW, 9).await, ["now", "far"]);
    // The previous worker may never return.
    let asks = DueQuery {
        owner: "y",
        max_per_project: 9,
        others_ready_before: time(NOW),
    };
    let offered = log.due(asks, time(NOW), 9).await.expect("due");
    assert!(offered.iter().any(|due| due.key == key("p/far")));

    // One lease from a clock that is ahead, and one of the maximum length.
    assert!(claim("p/now", "astray", NOW + YEAR, NOW).await);
    assert!(claim("p/far", "long", NOW + LONGEST_LEASE_MS, NOW).await);
    // A lease that is longer than the maximum is ignored, so `now` is still due. The lease on `far` is valid.
    assert_eq!(due_names(log, NOW, 9).await, ["now"]);
    assert!(!claim("p/far", "y", NOW + 50, NOW).await, "it is leased");
    assert!(claim("p/now", "astray", NOW + YEAR, NOW).await, "renewed");
    assert!(claim("p/now", "y", NOW + 50, NOW).await);
    assert!(!claim("p/now", "astray", NOW + YEAR, NOW).await, "lost it");
}

async fn concurrent_claims_have_one_winner(log: &Log) {
    let a = key("p/a");
    append(log, "p/a", DueChange::At(time(0))).await;
    for round in 0..20_i64 {
        let now = round * 100;
        let tasks = (0..12).map(|worker| {
            let (log, a) = (log.clone(), a.clone());
            tokio::spawn(async move {
                let lease = lease(&format!("{round}-{worker}"), now + 100);
                log.claim(&a, lease, time(now)).await.expect("answers")
            })
        });
        let won = join_all(tasks).await.into_iter();
        let won = won.filter(|won| *won.as_ref().expect("a worker ends"));
        assert_eq!(won.count(), 1, "exactly one worker must get the lease");
        let busy = head(log, &a).await.revision.get();
        let frame = batch(busy, 1, bytes(busy, 10));
        log.append_to(&a, frame)
            .await
            .expect("a lease must not block appends");
    }
}

async fn too_long_owner_names_are_rejected(log: &Log) {
    append(log, "p/a", DueChange::At(time(0))).await;
    let owner = "x".repeat(MAX_OWNER_BYTES + 1);
    let claimed = log.claim(&key("p/a"), lease(&owner, 9), time(1)).await;
    assert!(matches!(claimed, Err(StoreError::TooLarge { .. })));
    let owner = "x".repeat(MAX_OWNER_BYTES);
    let claimed = log.claim(&key("p/a"), lease(&owner, 9), time(1)).await;
    assert!(claimed.expect("claims"));
}
