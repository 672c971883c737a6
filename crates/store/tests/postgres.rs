//! Tests of a store on a networked database: lost replies, failover, a store that lost data, and hints.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_store::postgres::{LeaseClock, PostgresLog, PostgresOptions};
use palimpsest_store::{
    Batch, DueChange, DueQuery, FileIntents as _, Lease, Position, SessionLog, Store as _,
    StoreError, Tombstones as _, WorkQueue as _,
};
use palimpsest_test_servers::Cluster;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

fn key(name: &str) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
}

fn batch(expected: Position, frame: impl Into<Bytes>) -> Batch {
    Batch {
        expected,
        events: NonZeroU32::MIN,
        frame: frame.into(),
        list_row: Bytes::from_static(b"s"),
        parent: None,
        due: DueChange::Keep,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

/// Locks the row of the session `held`.
const HELD_ROW: &str = "SELECT 1 FROM palimpsest.sessions WHERE key = 'p!held' FOR UPDATE";

/// A proxy that loses replies. After some replies, each connection forwards one more request, drops its
/// reply and closes.
struct Lossy {
    port: u16,
    lost: Arc<AtomicU64>,
}

impl Lossy {
    async fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        tokio::spawn(async move {
            let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // The first replies belong to the connection setup, so they are never lost.
                let answers = 12 + (seed >> 40) % 40;
                tokio::spawn(pass_on(client, server, answers, Arc::clone(&counted)));
            }
        });
        Self { port, lost }
    }
}

async fn pass_on(client: TcpStream, server: TcpStream, mut answers: u64, lost: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asking = tokio::spawn(async move {
        // The copy fails when the other direction is closed.
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut answer = vec![0; 64 << 10];
    loop {
        match from_server.read(&mut answer).await {
            Ok(len) if len > 0 => {
                if answers == 0 {
                    // The database has executed the request, but the client gets no reply.
                    lost.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                answers -= 1;
                if to_client.write_all(&answer[..len]).await.is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    asking.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_a_lost_response_is_applied_once() {
    let cluster = Cluster::start();
    let lossy = Lossy::before(cluster.port()).await;
    let url = cluster
        .url()
        .replace(&cluster.port().to_string(), &lossy.port.to_string());
    let options = PostgresOptions {
        retry: Duration::from_mins(2),
        wait: Duration::from_mins(2),
        connections: 8,
        ..PostgresOptions::new(url)
    };
    let log = Arc::new(PostgresLog::open(&options).await.unwrap());
    let writers = (0..8).map(|writer| {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            let key = key(&format!("s{writer}"));
            let mut at = Position::START;
            for number in 0..60_u64 {
                let frame = format!("{writer} says {number}");
                at = log.append(&key, batch(at, frame)).await.unwrap();
                assert_eq!(at.revision.get(), number + 1);
            }
            at
        })
    });
    let ends = join_all(writers).await;
    let direct = PostgresLog::open(&PostgresOptions::new(cluster.url()))
        .await
        .unwrap();
    for (writer, end) in ends.into_iter().enumerate() {
        let at = end.unwrap();
        let of = key(&format!("s{writer}"));
        let frames = direct
            .read(&of, at.at(Revision::ZERO), 1 << 20)
            .await
            .unwrap();
        assert_eq!(frames.len(), 60);
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame.bytes, format!("{writer} says {number}"));
        }
    }
    let lost = lossy.lost.load(Ordering::Relaxed);
    assert!(lost > 10, "only {lost} answers were lost");

    // A deletion is retried too, and the retry recognizes its own tombstone.
    let names: Vec<_> = (0..150).map(|number| key(&format!("d{number}"))).collect();
    for of in &names {
        direct
            .append(of, batch(Position::START, "1"))
            .await
            .unwrap();
    }
    for of in &names {
        let at = direct.head(of).await.unwrap().unwrap().position();
        let deleted = log.delete(of, at, Timestamp::from_millis(7)).await;
        deleted.unwrap();
        assert!(direct.tombstone(of).await.unwrap().is_some());
    }
    let lost = lossy.lost.load(Ordering::Relaxed) - lost;
    assert!(lost > 2, "only {lost} answers to deletions were lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_announced_to_other_processes_only() {
    let cluster = Cluster::start();
    let open = || async {
        PostgresLog::open(&PostgresOptions::new(cluster.url()))
            .await
            .unwrap()
    };
    let (one, other) = (open().await, open().await);
    let (mut own, mut heard) = (
        one.subscribe_hints().unwrap(),
        other.subscribe_hints().unwrap(),
    );
    // Hints are lost until both processes listen, so append until one arrives.
    let mut told = false;
    for number in 0..100 {
        let of = key(&format!("hint-{number}"));
        one.append(&of, batch(Position::START, "x")).await.unwrap();
        let news = timeout(Duration::from_millis(300), heard.recv()).await;
        if let Ok(news) = news {
            assert!(news.unwrap().session.as_str().starts_with("hint-"));
            told = true;
            break;
        }
    }
    assert!(told, "no change was announced");
    let silence = timeout(Duration::from_millis(200), own.recv()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_cancelled_appends_are_not_reused_while_blocked() {
    let cluster = Cluster::start();
    let options = PostgresOptions {
        connections: 3,
        wait: Duration::from_millis(500),
        ..PostgresOptions::new(cluster.url())
    };
    let log = Arc::new(PostgresLog::open(&options).await.unwrap());
    let (held, free) = (key("held"), key("free"));
    let at = log.append(&held, batch(Position::START, "1")).await;
    let at = at.unwrap();
    log.append(&free, batch(Position::START, "1"))
        .await
        .unwrap();

    let holder = cluster.holding(HELD_ROW);
    // Open all three connections first, so that the idle count is exact later.
    while log.pool_status().idle < 3 {
        join_all((0..6).map(|_| log.head(&free))).await;
    }
    for _ in 0..2 {
        let waits = log.append(&held, batch(at, "2"));
        let given_up = timeout(Duration::from_secs(1), waits).await;
        given_up.expect_err("the append of a locked row succeeded");
    }
    // Two of three connections still wait for the row and must not be reused.
    assert_eq!(log.pool_status().idle, 1);
    for _ in 0..8 {
        let answer = timeout(Duration::from_mins(2), log.head(&free)).await;
        assert!(answer.expect("a free connection").unwrap().is_some());
    }
    holder.commit();
    // One of the cancelled appends was executed, and all connections are idle again.
    let until = Instant::now() + Duration::from_mins(2);
    while log.pool_status().idle < 3 {
        assert!(Instant::now() < until, "{:?}", log.pool_status());
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(log.head(&held).await.unwrap().unwrap().revision.get(), 2);
    assert_eq!(log.pool_status().open, 3);
}

/// Simulates the promotion of a lagging standby, or a restored backup, while processes have newer data
/// in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_lost_by_the_store_is_rejected() {
    let cluster = Cluster::start();
    let log = PostgresLog::open(&PostgresOptions::new(cluster.url()))
        .await
        .unwrap();
    let of = key("s");
    let first = log.append(&of, batch(Position::START, "1")).await.unwrap();
    let lost = log.append(&of, batch(first, "lost")).await.unwrap();
    cluster.psql(
        "BEGIN; DELETE FROM palimpsest.frames WHERE last = 2;
         UPDATE palimpsest.sessions SET (revision, token, log_bytes) =
             (SELECT last, token, log_bytes FROM palimpsest.frames); COMMIT",
    );
    // The store has lost the second append. Another one now leads to the same revision.
    assert_eq!(log.head(&of).await.unwrap().unwrap().position(), first);
    let there = log.append(&of, batch(first, "there")).await.unwrap();
    assert_eq!(
        (there.revision, there.incarnation),
        (lost.revision, lost.incarnation)
    );
    assert_ne!(there, lost);

    let conflicts = |result: Result<(), StoreError>| {
        assert!(
            matches!(&result, Err(StoreError::Conflict { current }) if *current == there.revision),
            "{result:?}"
        );
    };
    conflicts(log.append(&of, batch(lost, "later")).await.map(drop));
    conflicts(log.delete(&of, lost, Timestamp::from_millis(7)).await);
    let kept = log.put_snapshot(&of, lost, Bytes::from_static(b"lost"));
    kept.await.unwrap();
    assert_eq!(log.snapshot(&of, lost.incarnation).await.unwrap(), None);
    let later = log.append(&of, batch(there, "later")).await.unwrap();
    assert_eq!(log.read(&of, lost, 1 << 20).await.unwrap(), []);
    let frames = log.read(&of, there, 1 << 20).await.unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].bytes, "later");
    let kept = log.put_snapshot(&of, later, Bytes::from_static(b"there"));
    kept.await.unwrap();
    let kept = log.snapshot(&of, later.incarnation).await.unwrap().unwrap();
    assert_eq!((kept.at, &kept.bytes[..]), (later.revision, &b"there"[..]));
}

/// Timeout of a silent host. It is long compared to the work of a test on a busy machine.
const WAIT: Duration = Duration::from_secs(6);

/// A proxy that stops forwarding on request. Connections stay open, but no data passes any more.
struct Silent {
    port: u16,
    quiet: watch::Sender<bool>,
    /// Number of connections that the proxy has accepted.
    accepted: watch::Sender<usize>,
    /// Number of connections that forward data.
    forwarding: watch::Sender<usize>,
}

impl Silent {
    async fn before(upstream: u16) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            quiet: watch::Sender::new(false),
            accepted: watch::Sender::new(0),
            forwarding: watch::Sender::new(0),
        });
        let accepting = Arc::clone(&proxy);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                accepting.accepted.send_modify(|count| *count += 1);
                let server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
                tokio::spawn(Arc::clone(&accepting).forward(client, server));
            }
        });
        proxy
    }

    async fn forward(self: Arc<Self>, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let mut silent = self.quiet.subscribe();
        self.forwarding.send_modify(|count| *count += 1);
        let is_silent = tokio::select! {
            biased;
            _ = silent.wait_for(|silent| *silent) => true,
            _ = async {
                tokio::join!(
                    tokio::io::copy(&mut from_client, &mut to_server),
                    tokio::io::copy(&mut from_server, &mut to_client)
                )
            } => false,
        };
        self.forwarding.send_modify(|count| *count -= 1);
        if is_silent {
            std::future::pending::<()>().await;
        }
    }

    /// Stops forwarding, also on new connections.
    async fn fall_silent(&self) {
        self.quiet.send_replace(true);
        self.forwards_nothing().await;
    }

    /// Waits until no connection forwards data.
    async fn forwards_nothing(&self) {
        let mut forwarding = self.forwarding.subscribe();
        let idle = timeout(
            Duration::from_mins(2),
            forwarding.wait_for(|count| *count == 0),
        )
        .await;
        idle.expect("the proxy still forwards data").unwrap();
    }

    fn accepted(&self) -> usize {
        *self.accepted.borrow()
    }

    /// Returns the database URL with this proxy as first host and the database as second.
    fn url_before(&self, cluster: &Cluster) -> String {
        let own = format!("127.0.0.1:{}", cluster.port());
        let both = format!("127.0.0.1:{},{own}", self.port);
        cluster.url().replace(&own, &both)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unresponsive_host_fails_over_to_the_next_host() {
    let cluster = Cluster::start();
    let silent = Silent::before(cluster.port()).await;
    let options = PostgresOptions {
        connections: 8,
        connect: WAIT,
        statement: WAIT,
        retry: Duration::from_hours(1),
        ..PostgresOptions::new(silent.url_before(&cluster))
    };
    let log = PostgresLog::open(&options).await.unwrap();
    let keys: Vec<_> = (0..8).map(|number| key(&format!("s{number}"))).collect();
    let first = keys
        .iter()
        .map(|of| log.append(of, batch(Position::START, "1")));
    let first = join_all(first).await;
    let idle = log.pool_status().idle;
    assert!(idle > 1, "several connections lead to the first host");

    // The first append after the silence detects it. Later ones must neither use an idle connection to the first host
    // nor connect to it.
    silent.fall_silent().await;
    log.append(&keys[0], batch(*first[0].as_ref().unwrap(), "2"))
        .await
        .unwrap();
    let accepted = silent.accepted();
    assert_eq!(log.pool_status().open, 1, "idle connections were discarded");
    for (of, at) in keys.iter().zip(&first).skip(1) {
        log.append(of, batch(*at.as_ref().unwrap(), "2"))
            .await
            .unwrap();
    }
    assert_eq!(silent.accepted(), accepted);
    log.close().await.unwrap();

    // A new log waits for the first host until its timeout, and then remembers the second.
    let log = PostgresLog::open(&options).await.unwrap();
    assert!(silent.accepted() > accepted);
    let accepted = silent.accepted();
    let heads = join_all(keys.iter().map(|of| log.head(of))).await;
    // Without that memory, every new connection would wait for the silent host.
    assert_eq!(silent.accepted(), accepted);
    for head in heads {
        assert_eq!(head.unwrap().unwrap().revision.get(), 2);
    }
}

/// A caller may have a shorter deadline than the connect timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_connect_moves_the_next_call_to_the_next_host() {
    let cluster = Cluster::start();
    let silent = Silent::before(cluster.port()).await;
    let options = PostgresOptions {
        connect: Duration::from_mins(10),
        // Hints reconnect on their own, so the proxy would not become idle.
        notify: false,
        ..PostgresOptions::new(silent.url_before(&cluster))
    };
    let log = PostgresLog::open(&options).await.unwrap();
    // Close the existing connections, so that the next call must connect.
    cluster.end_connections();
    silent.forwards_nothing().await;
    silent.fall_silent().await;
    let of = key("s");
    let mut accepted = silent.accepted.subscribe();
    tokio::select! {
        answer = log.head(&of) => panic!("the first host answered: {answer:?}"),
        _ = accepted.changed() => {}
    }
    let second = timeout(Duration::from_mins(2), log.head(&of)).await;
    assert_eq!(
        second.expect("the second host was not tried").unwrap(),
        None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_does_not_fail_the_health_check() {
    let cluster = Cluster::start();
    let options = PostgresOptions {
        connections: 1,
        wait: Duration::from_millis(200),
        ..PostgresOptions::new(cluster.url())
    };
    let log = Arc::new(PostgresLog::open(&options).await.unwrap());
    let held = key("held");
    let at = log
        .append(&held, batch(Position::START, "1"))
        .await
        .unwrap();
    let holder = cluster.holding(HELD_ROW);
    let waiting = tokio::spawn({
        let (log, held) = (Arc::clone(&log), held.clone());
        async move { log.append(&held, batch(at, "2")).await }
    });
    while log.pool_status().idle > 0 {
        sleep(Duration::from_millis(5)).await;
    }
    let told = log.head(&held).await.unwrap_err().to_string();
    assert!(told.contains("all 1 connections are in use"), "{told}");
    log.check().await.unwrap();
    holder.commit();
    assert_eq!(waiting.await.unwrap().unwrap().revision.get(), 2);
    log.check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_usage_count_returns_the_previous_count() {
    let cluster = Cluster::start();
    let options = PostgresOptions {
        connections: 4,
        usage_age: Duration::ZERO,
        usage_max_wait: Duration::from_millis(200),
        ..PostgresOptions::new(cluster.url())
    };
    let log = Arc::new(PostgresLog::open(&options).await.unwrap());
    log.append(&key("one"), batch(Position::START, "1"))
        .await
        .unwrap();
    assert_eq!(log.usage(None).await.unwrap().sessions, 1);
    log.append(&key("two"), batch(Position::START, "1"))
        .await
        .unwrap();
    let lock = "LOCK TABLE palimpsest.sessions IN ACCESS EXCLUSIVE MODE";
    let holder = cluster.holding(lock);
    // Concurrent calls share one count, so that connections remain for other calls.
    for usage in join_all((0..20).map(|_| log.usage(None))).await {
        assert_eq!(
            usage.unwrap().sessions,
            1,
            "the previous count was not returned"
        );
    }
    let of_project = key("one").project;
    let first = tokio::spawn({
        let log = Arc::clone(&log);
        async move { log.usage(Some(&of_project)).await }
    });
    log.check().await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert!(!first.is_finished(), "the first count finished too early");
    holder.commit();
    assert_eq!(first.await.unwrap().unwrap().sessions, 2);
    let until = Instant::now() + Duration::from_mins(2);
    while log.usage(None).await.unwrap().sessions < 2 {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(20)).await;
    }
    // A failed count keeps the previous result. Without a previous result, the error is returned.
    cluster.psql("ALTER TABLE palimpsest.sessions RENAME COLUMN blob_bytes TO elsewhere");
    assert_eq!(log.usage(None).await.unwrap().sessions, 2);
    let none = key("one").project;
    let other = PostgresLog::open(&options).await.unwrap();
    assert!(other.usage(Some(&none)).await.is_err());
    cluster.psql("ALTER TABLE palimpsest.sessions RENAME COLUMN elsewhere TO blob_bytes");
    let until = Instant::now() + Duration::from_mins(2);
    while other.usage(Some(&none)).await.is_err() {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(50)).await;
    }
}

/// More sessions are due than one list contains, so the query per project is used, including its filter
/// by worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_project_with_many_due_sessions_does_not_hide_other_projects() {
    const MANY: usize = 1_100;
    let cluster = Cluster::start();
    let options = PostgresOptions {
        // All appends run at the same time and share the pool.
        wait: Duration::from_mins(1),
        clock: LeaseClock::Caller,
        ..PostgresOptions::new(cluster.url())
    };
    let log = Arc::new(PostgresLog::open(&options).await.unwrap());
    let due = |name: String, at: i64| {
        let log = Arc::clone(&log);
        async move {
            let of = SessionKey::parse(&name).unwrap();
            let due = DueChange::At(Timestamp::from_millis(at));
            let due = Batch {
                due,
                ..batch(Position::START, "x")
            };
            log.append(&of, due).await.unwrap();
            of
        }
    };
    let many = (0..MANY).map(|number| due(format!("projects/many/sessions/s{number:04}"), 10));
    let many = join_all(many).await;
    let few = due("projects/few/sessions/one".into(), 20).await;
    // The first sessions were last held by worker `x`.
    let lease = |owner: &str| Lease {
        owner: owner.into(),
        until: Timestamp::from_millis(100),
    };
    let now = Timestamp::from_millis(30);
    for of in &many[..3] {
        assert!(log.claim(of, lease("x"), now).await.unwrap());
        assert!(log.release(of, "x", DueChange::Keep).await.unwrap());
    }
    let offered = async |owner: &str, others_before: i64| {
        let asks = DueQuery {
            owner,
            max_per_project: 4,
            others_ready_before: Timestamp::from_millis(others_before),
        };
        let due = log.due(asks, now, 9).await.unwrap();
        due.into_iter().map(|due| due.key).collect::<Vec<_>>()
    };
    let with_few = |of: &[SessionKey]| [of, std::slice::from_ref(&few)].concat();
    assert_eq!(offered("x", 0).await, with_few(&many[..4]));
    assert_eq!(offered("y", 0).await, with_few(&many[3..7]));
    assert_eq!(offered("y", 11).await, with_few(&many[..4]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_row_does_not_hide_other_rows() {
    let cluster = Cluster::start();
    let log = PostgresLog::open(&PostgresOptions::new(cluster.url()))
        .await
        .unwrap();
    for name in ["a", "b", "c"] {
        let due = DueChange::At(Timestamp::from_millis(5));
        // Damage the rows behind the engine's back: one value out of range and one illegal name.
        let batch = Batch {
            due,
            ..batch(Position::START, "x")
        };
        log.append(&key(name), batch).await.unwrap();
    }
    cluster.psql(
        "UPDATE palimpsest.sessions SET revision = -1 WHERE key = 'p!a';
         UPDATE palimpsest.sessions SET key = 'p!no name' WHERE key = 'p!b'",
    );
    for file in ["f", "g", "h", "i"] {
        let at = Timestamp::from_millis(8);
        log.declare_intents(&key("c"), vec![file.into()], at)
            .await
            .unwrap();
    }
    cluster.psql(
        "UPDATE palimpsest.intents SET key = 'p!a name' WHERE file IN ('f', 'g');
         UPDATE palimpsest.intents SET key = 'p!the name' WHERE file = 'i'",
    );
    for limit in [1, 2, 9] {
        let page = log.list_intents(None, limit).await.unwrap();
        assert_eq!(page.intents.len(), 1);
        assert_eq!((&*page.intents[0].file, page.unreadable), ("h", 2));
        let rest = log
            .list_intents(Some((&key("c"), "h")), limit)
            .await
            .unwrap();
        assert_eq!((rest.intents.len(), rest.unreadable), (0, 1));
    }
    for limit in [1, 2, 9] {
        let mut found = Vec::new();
        let mut nameless = 0;
        let mut from: Option<SessionKey> = None;
        loop {
            let listing = log.list_rows(None, from.as_ref(), limit).await.unwrap();
            nameless += listing.nameless;
            let is_last = listing.rows.len() < limit;
            for (key, head) in listing.rows {
                found.push((key.session.to_string(), head.is_ok()));
                from = Some(key);
            }
            if is_last {
                break;
            }
        }
        assert_eq!(found, [("a".to_owned(), false), ("c".to_owned(), true)]);
        assert_eq!(nameless, 1);
    }
    assert!(log.list(None, None, 9).await.is_err(), "one is missing");
    let due = log
        .due(DueQuery::ALL, Timestamp::from_millis(9), 9)
        .await
        .unwrap();
    let due: Vec<_> = due.into_iter().map(|due| due.key).collect();
    assert_eq!(due, [key("c")]);
}
