//! Tests that acknowledged writes survive a crash of the database with any settings, and that writes
//! are rejected where they could be lost.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_store::postgres::{PostgresLog, PostgresOptions};
use palimpsest_store::{
    Batch, DueChange, DueQuery, Leadership as _, Lease, Position, SessionLog, Store as _,
    StoreError, Tombstones as _, WorkQueue as _,
};
use palimpsest_test_servers::{Cluster, Options};
use tokio::task::JoinHandle;

/// Flushes the WAL so rarely that only commits which wait for it are durable.
const LAZY: &str = "wal_writer_delay = 10s";

fn key(name: &str) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
}

fn batch(expected: Position, due: DueChange) -> Batch {
    Batch {
        expected,
        events: NonZeroU32::MIN,
        frame: Bytes::from_static(b"frame"),
        list_row: Bytes::from_static(b"s"),
        parent: None,
        due,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

fn options(url: String) -> PostgresOptions {
    PostgresOptions {
        wait: Duration::from_mins(1),
        retry: Duration::from_mins(1),
        ..PostgresOptions::new(url)
    }
}

fn lazy() -> Cluster {
    Cluster::with(&Options {
        settings: vec![LAZY.to_owned()],
        ..Options::default()
    })
}

async fn append(log: &PostgresLog, of: &SessionKey, at: Position) -> Result<Position, StoreError> {
    log.append(of, batch(at, DueChange::Keep)).await
}

/// Appends `by` times and returns the last position.
async fn grow(log: &PostgresLog, of: &SessionKey, mut at: Position, by: u32) -> Position {
    for _ in 0..by {
        at = append(log, of, at).await.unwrap();
    }
    at
}

async fn position(log: &PostgresLog, of: &SessionKey) -> Position {
    log.head(of).await.unwrap().unwrap().position()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_after_commits_become_asynchronous() {
    let mut cluster = lazy();
    let log = PostgresLog::open(&options(cluster.url())).await.unwrap();
    let of = key("s");
    let mut at = grow(&log, &of, Position::START, 7).await;
    for weaker in ["off", "local"] {
        cluster.psql(&format!("ALTER SYSTEM SET synchronous_commit = {weaker}"));
        cluster.psql(&format!(
            "ALTER ROLE palimpsest SET synchronous_commit = {weaker}"
        ));
        cluster.reload();
        at = grow(&log, &of, at, 16).await;
        // Also test connections that are opened after the change.
        cluster.end_connections();
        at = grow(&log, &of, at, 4).await;
        cluster.stop("immediate");
        cluster.start_again();
        assert_eq!(position(&log, &of).await, at);
    }
    // Other acknowledged changes must be durable too.
    let gone = key("gone");
    let there = grow(&log, &gone, Position::START, 1).await;
    let deleted = log.delete(&gone, there, Timestamp::from_millis(7)).await;
    deleted.unwrap();
    cluster.stop("immediate");
    cluster.start_again();
    assert!(log.tombstone(&gone).await.unwrap().is_some());
    let snapshot = log.put_snapshot(&of, at, Bytes::from_static(b"all")).await;
    snapshot.unwrap();
    cluster.stop("immediate");
    cluster.start_again();
    let kept = log.snapshot(&of, at.incarnation).await.unwrap();
    assert_eq!(kept.unwrap().at, at.revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_created_under_asynchronous_commit_keeps_acknowledged_writes() {
    let mut cluster = lazy();
    cluster.psql("ALTER ROLE palimpsest SET synchronous_commit = off");
    let log = PostgresLog::open(&options(cluster.url())).await.unwrap();
    let of = key("s");
    let at = grow(&log, &of, Position::START, 5).await;
    cluster.stop("immediate");
    cluster.start_again();
    assert_eq!(position(&log, &of).await, at);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_wait_for_a_synchronous_standby_despite_local_commit() {
    let primary = Cluster::start();
    primary.psql("ALTER SYSTEM SET synchronous_commit = local");
    primary.reload();
    primary.until("SELECT current_setting('synchronous_commit') = 'local'");
    let log = PostgresLog::open(&options(primary.url())).await.unwrap();
    let of = key("s");
    let at = grow(&log, &of, Position::START, 1).await;
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    primary.reload();
    // PostgreSQL applies a reload with a delay, so the first appends may not wait yet.
    let seen = Arc::new(AtomicBool::new(false));
    let waiting = tokio::spawn({
        let seen = Arc::clone(&seen);
        async move {
            let (mut at, mut appends) = (at, 0);
            while !seen.load(Ordering::Relaxed) {
                at = append(&log, &of, at).await.unwrap();
                appends += 1;
            }
            (at.revision.get(), appends)
        }
    });
    // The standby does not exist yet, so a commit that waits for it can be observed.
    primary.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    assert!(!waiting.is_finished());
    seen.store(true, Ordering::Relaxed);
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = ''");
    primary.reload();
    let (revision, appends) = waiting.await.unwrap();
    assert_eq!(revision, 1 + appends);
}

/// Waits until some connections wait for the standby. Fails if the call ends before.
fn waits_for_the_standby<T>(primary: &Cluster, connections: u32, call: &JoinHandle<T>) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while primary.psql(waiting).parse::<u32>().unwrap() < connections {
        assert!(!call.is_finished(), "the call did not wait for the standby");
    }
}

/// A commit that waited for the standby when the primary crashed is visible after the restart, although the standby does
/// not have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_no_standby_has_is_neither_acknowledged_nor_read() {
    let mut primary = Cluster::start();
    let mut standby = primary.replica("standby");
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    primary.reload();
    let own = format!("127.0.0.1:{}", primary.port());
    let both = format!("{own},127.0.0.1:{}", standby.port());
    let url = primary.url().replace(&own, &both);
    let log = Arc::new(PostgresLog::open(&options(url.clone())).await.unwrap());
    let other = Arc::new(PostgresLog::open(&options(url)).await.unwrap());
    let of = key("s");
    let first = grow(&log, &of, Position::START, 1).await;
    assert_eq!(position(&other, &of).await, first);

    standby.stop("fast");
    let write = tokio::spawn({
        let (log, of) = (Arc::clone(&log), of.clone());
        async move { append(&log, &of, first).await }
    });
    waits_for_the_standby(&primary, 1, &write);
    primary.stop("immediate");
    primary.start_again();
    let stored = "SELECT revision = 2 FROM palimpsest.sessions";
    assert_eq!(primary.psql(stored), "t");

    let read = tokio::spawn({
        let (other, of) = (Arc::clone(&other), of.clone());
        async move { position(&other, &of).await }
    });
    waits_for_the_standby(&primary, 2, &read);
    assert!(!write.is_finished());
    standby.start_again();
    let at = write.await.unwrap().unwrap();
    assert_eq!(read.await.unwrap(), at);
    primary.stop("immediate");
    standby.promote();
    assert_eq!(position(&log, &of).await, at);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_without_the_standby_fails_and_leaves_nothing_behind() {
    let primary = Cluster::start();
    drop(PostgresLog::open(&options(primary.url())).await.unwrap());
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'missing'");
    primary.reload();
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let options = PostgresOptions {
        retry: Duration::ZERO,
        ..options(primary.url())
    };
    // PostgreSQL applies a reload with a delay, so the first connections may not wait yet.
    let refused = loop {
        if let Err(refused) = PostgresLog::open(&options).await {
            break refused.to_string();
        }
    };
    assert!(refused.contains("synchronous standby"), "{refused}");
    primary.until(&waits.replace('>', "="));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_keeps_acknowledged_writes_and_rejects_unsafe_ones() {
    let mut primary = lazy();
    let mut standby = primary.replica("standby");
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    primary.reload();
    standby.stop("fast");
    standby.append_to(
        "postgresql.conf",
        "synchronous_commit = off\nsynchronous_standby_names = ''\n",
    );
    standby.start_again();
    let own = format!("127.0.0.1:{}", primary.port());
    let both = format!("{own},127.0.0.1:{}", standby.port());
    let log = PostgresLog::open(&options(primary.url().replace(&own, &both)))
        .await
        .unwrap();
    let of = key("s");
    let at = grow(&log, &of, Position::START, 3).await;
    primary.stop("immediate");
    standby.promote();
    // Settings in the standby's `postgresql.conf` count only after the copied `ALTER SYSTEM` settings are
    // reset.
    standby.psql("ALTER SYSTEM RESET ALL");
    standby.reload();
    let at = grow(&log, &of, at, 20).await;
    standby.stop("immediate");
    standby.start_again();
    assert_eq!(position(&log, &of).await, at);

    for setting in ["fsync", "full_page_writes"] {
        standby.psql(&format!("ALTER SYSTEM SET {setting} = off"));
        standby.reload();
        standby.until(&format!(
            "SELECT setting = 'off' FROM pg_settings WHERE name = '{setting}'"
        ));
        // The next canary or the next connection detects the setting.
        let canary = log.check().await.unwrap_err().to_string();
        assert!(canary.contains(setting), "{canary}");
        let refused = append(&log, &of, at).await.unwrap_err().to_string();
        assert!(refused.contains(setting), "{refused}");
        assert_eq!(position(&log, &of).await, at, "reads go on");
        let other = PostgresLog::open(&options(standby.url())).await;
        let other = other.unwrap_err().to_string();
        assert!(other.contains(setting), "{other}");
        standby.psql(&format!("ALTER SYSTEM RESET {setting}"));
        standby.reload();
        standby.until(&format!(
            "SELECT setting = 'on' FROM pg_settings WHERE name = '{setting}'"
        ));
        log.check().await.unwrap();
    }
    assert_eq!(grow(&log, &of, at, 1).await.revision, at.revision.plus(1));
}

/// With a single connection and other waiting calls, a rejected append cannot take the connection again
/// to learn the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_losing_append_learns_the_conflict_on_its_own_connection() {
    let cluster = Cluster::start();
    let options = PostgresOptions {
        connections: 1,
        wait: Duration::from_secs(10),
        ..options(cluster.url())
    };
    let log = Arc::new(PostgresLog::open(&options).await.unwrap());
    let (of, other) = (key("s"), key("other"));
    let at = grow(&log, &of, Position::START, 1).await;
    let at_other = grow(&log, &other, Position::START, 1).await;
    let wins = cluster.holding(
        "UPDATE palimpsest.sessions SET revision = revision + 1, token = 5 WHERE key = 'p!s'",
    );
    let holds =
        cluster.holding("SELECT 1 FROM palimpsest.sessions WHERE key = 'p!other' FOR UPDATE");
    let append_to = |of: SessionKey, at: Position| {
        let log = Arc::clone(&log);
        tokio::spawn(async move { append(&log, &of, at).await })
    };
    let loses = append_to(of, at);
    cluster.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    let waits = append_to(other, at_other);
    while log.pool_status().waiting == 0 {
        tokio::task::yield_now().await;
    }
    wins.commit();
    let lost = loses.await.unwrap();
    assert!(
        matches!(&lost, Err(StoreError::Conflict { current }) if current.get() == 2),
        "{lost:?}"
    );
    holds.commit();
    // The outcome of the waiting append does not matter here.
    drop(waits.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the database's own clock counts")]
async fn a_process_with_a_wrong_clock_takes_no_lease_of_others() {
    const HOUR: u64 = 60 * 60 * 1000;
    let cluster = Cluster::start();
    let log = PostgresLog::open(&options(cluster.url())).await.unwrap();
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = Timestamp::from_millis(i64::try_from(since_1970.unwrap().as_millis()).unwrap());
    let ahead = now.plus_millis(12 * HOUR);
    // A clock that is this far behind makes every valid lease and every due time look like one of a wrong clock.
    let behind = Timestamp::from_millis(now.as_millis() - 12 * HOUR.cast_signed());
    let lease = |owner: &str, from: Timestamp| Lease {
        owner: owner.into(),
        until: from.plus_millis(HOUR / 2),
    };
    let of = key("s");
    let due = batch(Position::START, DueChange::At(now));
    let at = log.append(&of, due).await.unwrap();
    assert!(log.claim(&of, lease("right", now), now).await.unwrap());
    assert!(
        log.claim_leader_task("sweep", lease("right", now), now)
            .await
            .unwrap()
    );

    let wrong = [("ahead", ahead), ("behind", behind)];
    for (owner, at) in wrong {
        assert_eq!(log.due(DueQuery::ALL, at, 9).await.unwrap(), [], "{owner}");
        let claimed = log.claim(&of, lease(owner, at), at).await;
        assert!(!claimed.unwrap(), "{owner}");
        let leads = log.claim_leader_task("sweep", lease(owner, at), at).await;
        assert!(!leads.unwrap(), "{owner}");
    }
    log.delete(&of, at, now).await.unwrap();
    for (owner, time) in wrong {
        let removal = log.claim_removal(&of, at.incarnation, lease(owner, time), time);
        // The worker with the lease may still write its file.
        assert!(!removal.await.unwrap(), "{owner}");
    }

    // A session that is not due yet stays so for them.
    let soon = key("soon");
    let due = batch(Position::START, DueChange::At(now.plus_millis(HOUR / 30)));
    log.append(&soon, due).await.unwrap();
    for (owner, at) in wrong {
        assert_eq!(log.due(DueQuery::ALL, at, 9).await.unwrap(), [], "{owner}");
        let claimed = log.claim(&soon, lease(owner, at), at).await;
        assert!(!claimed.unwrap(), "{owner}");
    }

    // Their own leases end by the database's clock.
    for (owner, at) in wrong {
        let other = key(owner);
        let due = batch(Position::START, DueChange::At(now));
        log.append(&other, due).await.unwrap();
        let claimed = log.claim(&other, lease(owner, at), at).await;
        assert!(claimed.unwrap(), "{owner}");
        let head = log.head(&other).await.unwrap().unwrap();
        let own = head.lease.unwrap();
        assert!(own.until < now.plus_millis(HOUR), "{:?}", own.until);
        let later = own.until.plus_millis(1);
        assert!(own.is_valid(now) && !own.is_valid(later), "{owner}");
        assert_eq!(head.revision, Revision::new(1));
    }
}
