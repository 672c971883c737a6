//! Checks of leader tasks.

use futures::future::join_all;

use crate::harness::{Harness, Log, lease, time};

pub(super) async fn run(harness: &dyn Harness) {
    let log = harness.fresh().await;
    one_process_at_a_time_holds_a_leader_task(&log).await;
    concurrent_claims_have_one_winner(&log).await;
}

async fn claim(log: &Log, duty: &'static str, (owner, until): (&str, i64), now: i64) -> bool {
    let claimed = log
        .claim_leader_task(duty, lease(owner, until), time(now))
        .await;
    claimed.expect("claims")
}

async fn one_process_at_a_time_holds_a_leader_task(log: &Log) {
    assert!(claim(log, "sweep", ("one", 10), 0).await);
    assert!(
        !claim(log, "sweep", ("other", 15), 9).await,
        "another process holds the lease"
    );
    assert!(
        claim(log, "retain", ("other", 10), 0).await,
        "each task has its own lease"
    );
    assert!(claim(log, "sweep", ("one", 20), 9).await, "renewed");
    assert!(!claim(log, "sweep", ("other", 30), 19).await, "renewed");
    assert!(
        claim(log, "sweep", ("other", 30), 20).await,
        "the lease has expired"
    );
    assert!(
        !claim(log, "sweep", ("one", 40), 21).await,
        "another process holds the lease"
    );
    // A claim from a wrong clock counts only for requests of at least half its length.
    assert!(claim(log, "sweep", ("astray", 9_000), 30).await);
    assert!(
        !claim(log, "sweep", ("one", 5_000), 40).await,
        "another process holds the lease"
    );
    assert!(claim(log, "sweep", ("one", 50), 40).await, "a wrong clock");
}

async fn concurrent_claims_have_one_winner(log: &Log) {
    for round in 0..20_i64 {
        let now = round * 100;
        let tasks = (0..12).map(|process| {
            let log = log.clone();
            tokio::spawn(async move {
                let owner = format!("{round}-{process}");
                claim(&log, "race", (&owner, now + 100), now).await
            })
        });
        // All claims use the same time, so exactly one may win.
        let won = join_all(tasks).await.into_iter();
        let won = won.filter(|won| *won.as_ref().expect("a process ends"));
        assert_eq!(won.count(), 1, "exactly one process must get the lease");
    }
}
