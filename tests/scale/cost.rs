//! What a turn costs a server and its database: the figures that docs/capacity.md is made of, on the machine that this
//! runs on.
//!
//! ```text
//! cargo build --release
//! PALIMPSEST_TEST_BINARY=$PWD/target/release/palimpsest \
//!     cargo test -p palimpsest-tests --test scale cost -- --ignored --nocapture
//! ```

use std::fs;
use std::time::{Duration, Instant};

use futures::future::join_all;
use palimpsest_test_servers::Cluster;
use palimpsest_tests::say::{assistant_call, noise, prepare, result, user};
use palimpsest_tests::{Array, Server, name};

use crate::house::at;

const RUN: Duration = Duration::from_secs(20);
const AGENTS: usize = 32;
/// What a tool returns in a turn: it hardly compresses.
const BYTES: usize = 4_000;

/// Processor time of a process, and of all that it has waited for.
fn processor(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(4);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Of all processes of PostgreSQL on this machine.
fn database() -> f64 {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let its = all.filter(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        name.trim() == "postgres"
    });
    let parents = its.map(|entry| processor(entry.file_name().to_str().unwrap()));
    parents.sum()
}

fn figure(cluster: &Cluster, query: &str) -> f64 {
    cluster.psql(query).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of half a minute"]
async fn cost_of_a_turn() {
    let cluster = Cluster::start();
    let folder = tempfile::tempdir_in(".").unwrap();
    let url = format!("store.postgres.url={}", at(&[&cluster]));
    let blobs = format!(
        "blobs.url=file://{}",
        fs::canonicalize(&folder).unwrap().join("blobs").display()
    );
    let settings = [
        "--set",
        &url,
        "--set",
        &blobs,
        "--set",
        "sessions.cache_bytes=2000000000",
    ];
    let server = Server::start(&folder.path().join("data"), &settings);
    let look = || {
        (
            processor(&server.pid().to_string()),
            database(),
            figure(&cluster, "SELECT wal_bytes FROM pg_stat_wal"),
            figure(
                &cluster,
                "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'",
            ),
            figure(&cluster, "SELECT pg_database_size('postgres')"),
        )
    };
    let before = look();
    let began = Instant::now();
    let agents = (0..AGENTS).map(|agent| {
        let server = &server;
        async move {
            let mut client = server.context().await;
            let (mut array, mut turn, mut took) = (Array::default(), 0_u64, Vec::new());
            while began.elapsed() < RUN {
                // A session is begun anew now and then, as agents do.
                let session = name(&format!("cost-{agent}-{}", turn / 100));
                if turn % 100 == 0 {
                    array = Array::default();
                }
                let call = format!("call_{turn}");
                let text = noise(turn * 1_000 + agent as u64, BYTES);
                let messages = vec![user("go on"), assistant_call(&call), result(&call, &text)];
                let mut request = prepare(&session, messages);
                request.known_etag = array.etag.clone();
                let asked = Instant::now();
                let reply = client.prepare_context(request).await.unwrap();
                took.push(asked.elapsed());
                array.take(reply.get_ref());
                turn += 1;
            }
            took
        }
    });
    let mut all: Vec<_> = join_all(agents).await.concat();
    let seconds = began.elapsed().as_secs_f64();
    let after = look();
    all.sort();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let turns = all.len() as f64;
    println!(
        "{AGENTS} agents: {:.0} turns a second, median {:.1?}, p99 {:.1?}\n\
         a turn: {:.0} µs of the server's processor, {:.0} µs of the database's, {:.1} KB of WAL, {:.1} KB kept, \
         {:.1} transactions",
        turns / seconds,
        all[all.len() / 2],
        all[all.len() * 99 / 100],
        (after.0 - before.0) * 1e6 / turns,
        (after.1 - before.1) * 1e6 / turns,
        (after.2 - before.2) / 1e3 / turns,
        (after.4 - before.4) / 1e3 / turns,
        (after.3 - before.3) / turns,
    );
    server.stop();
}
