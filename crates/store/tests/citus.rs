//! Tests of a store on a Citus database, which no package of CI has. They need a cluster with at least two nodes that have
//! shards, and these variables:
//!
//! - `PALIMPSEST_TEST_CITUS`: the URL of the coordinator.
//! - `PALIMPSEST_TEST_CITUS_NODE`: a command that kills or starts a node. It gets `kill` or `start`, and the port.
//!
//! The tests of one run share a schema, and later runs use others.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::postgres::{self, Distribution, PostgresLog, PostgresOptions};
use palimpsest_store::{
    Batch, DueChange, DueQuery, Lease, Position, SessionLog as _, Store as _, StoreError,
    WorkQueue as _,
};
use palimpsest_test_servers::binary;
use tokio::time::{Instant, sleep};

const SESSIONS: usize = 40;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Runs statements with `psql` at a URL. Returns the rows and the messages.
fn psql(url: &str, statements: &[&str]) -> (String, String) {
    let mut psql = Command::new(binary("psql"));
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
        .args(["--set", "ON_ERROR_STOP=1", "--dbname", url]);
    for statement in statements {
        psql.args(["--command", statement]);
    }
    let done = psql.output().unwrap();
    let messages = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{statements:?}: {messages}");
    let rows = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    (rows, messages)
}

fn key(number: usize) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/s{number}")).unwrap()
}

fn batch(expected: Position, frame: String) -> Batch {
    Batch {
        expected,
        events: NonZeroU32::MIN,
        frame: frame.into(),
        list_row: Bytes::from_static(b"s"),
        parent: None,
        due: DueChange::At(Timestamp::from_millis(5)),
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

struct Cluster {
    url: String,
    options: PostgresOptions,
}

impl Cluster {
    /// Creates a schema with distributed tables.
    async fn with(name: &str) -> Self {
        let url = variable("PALIMPSEST_TEST_CITUS");
        let options = PostgresOptions {
            schema: format!("{name}_{}", std::process::id()),
            retry: Duration::from_secs(3),
            connect: Duration::from_secs(2),
            ..PostgresOptions::new(url.clone())
        };
        postgres::apply(&options, Some(Distribution::Citus))
            .await
            .unwrap();
        Self { url, options }
    }

    async fn open(&self) -> PostgresLog {
        PostgresLog::open(&self.options).await.unwrap()
    }

    /// Returns the port of the node with a session.
    fn port(&self, number: usize) -> u16 {
        let schema = &self.options.schema;
        let (port, _) = psql(
            &self.url,
            &[&format!(
                "SELECT nodeport FROM citus_shards WHERE shardid =
                 get_shard_id_for_distribution_column('{schema}.sessions', 'p!s{number}')"
            )],
        );
        port.parse().unwrap()
    }

    /// Returns the URL of another node.
    fn at(&self, port: u16) -> String {
        let (before, after) = self.url.rsplit_once(':').unwrap();
        let rest = after.find('/').map_or("", |from| &after[from..]);
        format!("{before}:{port}{rest}")
    }
}

fn node(command: &str, port: u16) {
    let program = variable("PALIMPSEST_TEST_CITUS_NODE");
    let mut words = program.split(' ');
    let mut run = Command::new(words.next().unwrap());
    run.args(words).args([command, &port.to_string()]);
    assert!(run.status().unwrap().success());
}

/// A write is one local transaction on the node of its session: no command goes to another node, and none is prepared. From
/// another node, it is one command.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Citus cluster"]
async fn a_write_is_one_local_transaction() {
    let cluster = Cluster::with("local").await;
    let schema = &cluster.options.schema;
    let calls = [
        "declare_intents('KEY', '{f,g}', 5)",
        "append_events('KEY', 7, 0, 0, 11, 1, 'abc', 0, 's', true, 5, '{f,g}', 'p', 'scope', '{aa,bb}', 'p!c')",
        "append_events('KEY', 7, 1, 11, 12, 1, 'abc', 0, 's', false, NULL, NULL, NULL, NULL, NULL, 'p!c')",
        "put_snapshot('KEY', 7, 2, 12, 'snapshot')",
        "claim('KEY', 'me', NULL, 1000, 3600000, 300000)",
        "release('KEY', 'me', true, 77)",
        "revoke_intent('KEY', 'h', 6)",
        "complete_intent('KEY', 'h')",
        "delete_session('KEY', 7, 2, 12, 99)",
        "claim_removal('KEY', 7, 'me', NULL, 1000, 3600000)",
        "forget('KEY', 7, 'me', 512)",
        "claim_leader_task('KEY', 'me', NULL, 1000)",
    ];
    let logged = [
        "SET citus.log_remote_commands = on",
        "SET client_min_messages = notice",
    ];
    for number in 0..4 {
        let own = cluster.port(number);
        let others: Vec<_> = (0..SESSIONS).map(|other| cluster.port(other)).collect();
        let other = *others.iter().find(|port| **port != own).unwrap();
        for (place, commands) in [(own, 0), (other, 1)] {
            for call in calls {
                let call = call.replace("KEY", &format!("p!s{number}"));
                let call = format!("SELECT {schema}.{call}");
                let (_, messages) = psql(&cluster.at(place), &[logged[0], logged[1], &call]);
                assert_eq!(
                    messages.matches("issuing").count(),
                    commands,
                    "{call}: {messages}"
                );
            }
        }
    }
    let (prepared, _) = psql(&cluster.url, &["SELECT count(*) FROM pg_prepared_xacts"]);
    assert_eq!(prepared, "0");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Citus cluster"]
async fn a_wrong_layout_fails_the_start_and_is_corrected() {
    let cluster = Cluster::with("layout").await;
    let schema = &cluster.options.schema;
    drop(cluster.open().await);
    psql(
        &cluster.url,
        &[
            &format!("SELECT undistribute_table('{schema}.duties')"),
            &format!("SELECT create_reference_table('{schema}.duties')"),
        ],
    );
    let error = PostgresLog::open(&cluster.options).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Setup(_)), "{text}");
    assert!(
        text.contains("`duties`") && text.contains("--distributed citus"),
        "{text}"
    );
    postgres::apply(&cluster.options, Some(Distribution::Citus))
        .await
        .unwrap();
    drop(cluster.open().await);
    // A table in the same group is moved together with the tables of the service.
    psql(
        &cluster.url,
        &[
            &format!("CREATE TABLE {schema}.stranger (key text COLLATE \"C\" PRIMARY KEY)"),
            &format!(
                "SELECT create_distributed_table('{schema}.stranger', 'key', colocate_with => '{schema}.sessions')"
            ),
        ],
    );
    let error = PostgresLog::open(&cluster.options).await.unwrap_err();
    assert!(error.to_string().contains("stranger"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Citus cluster"]
async fn a_killed_node_harms_its_own_sessions_alone() {
    let cluster = Cluster::with("killed").await;
    let log = cluster.open().await;
    let mut positions = Vec::new();
    for number in 0..SESSIONS {
        let first = batch(Position::START, format!("{number}"));
        positions.push(log.append(&key(number), first).await.unwrap());
    }
    let ports: Vec<_> = (0..SESSIONS).map(|number| cluster.port(number)).collect();
    let away = ports[0];
    let gone: HashSet<_> = (0..SESSIONS)
        .filter(|number| ports[*number] == away)
        .collect();
    assert!(gone.len() < SESSIONS, "all sessions are on one node");
    node("kill", away);
    // The first calls find the broken connections.
    let began = Instant::now();
    while log.head(&key(0)).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    let mut slowest = Duration::ZERO;
    for (number, position) in positions.iter_mut().enumerate() {
        let began = Instant::now();
        let at = *position;
        match log
            .append(&key(number), batch(at, format!("{number} again")))
            .await
        {
            Ok(at) => {
                assert!(
                    !gone.contains(&number),
                    "{number} was written to a killed node"
                );
                slowest = slowest.max(began.elapsed());
                *position = at;
            }
            Err(error) => {
                assert!(gone.contains(&number), "{number}: {error}");
                assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
            }
        }
    }
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    log.check().await.unwrap();
    let page = log.list_rows(None, None, 1_000).await.unwrap();
    assert_eq!(
        (page.rows.len(), page.left_out.len()),
        (SESSIONS - gone.len(), 1)
    );
    log.list(None, None, 1_000).await.unwrap_err();
    // The sessions of the other nodes are still worked on.
    let now = Timestamp::from_millis(1_000);
    let due = log.due(DueQuery::ALL, now, 1_000).await.unwrap();
    assert_eq!(due.len(), SESSIONS - gone.len());
    let lease = Lease {
        owner: "worker".into(),
        until: Timestamp::from_millis(61_000),
    };
    assert!(log.claim(&due[0].key, lease, now).await.unwrap());
    // A process that starts meanwhile works too.
    let started = cluster.open().await;
    let alive = (0..SESSIONS).find(|number| !gone.contains(number)).unwrap();
    assert!(started.head(&key(alive)).await.unwrap().is_some());
    started.check().await.unwrap();
    node("start", away);
    let began = Instant::now();
    while log.head(&key(0)).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(100)).await;
    }
    // Nothing that was acknowledged is missing.
    for (number, at) in positions.into_iter().enumerate() {
        let head = log.head(&key(number)).await.unwrap().unwrap();
        if !gone.contains(&number) {
            assert_eq!(head.position(), at, "{number}");
        }
        assert!(head.revision >= at.revision, "{number}");
    }
    let page = log.list_rows(None, None, 1_000).await.unwrap();
    assert_eq!((page.rows.len(), page.left_out.len()), (SESSIONS, 0));
}
