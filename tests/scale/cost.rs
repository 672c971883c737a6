//! Measures the cost of a turn for servers and their database, and the additional cost if calls reach any server.
//! docs/capacity.md contains these figures. They depend on the machine.
//!
//! ```text
//! cargo build --release
//! PALIMPSEST_TEST_BINARY=$PWD/target/release/palimpsest \
//!   cargo test -p palimpsest-tests --test scale cost -- --ignored --nocapture --test-threads 1
//! ```

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use futures::future::join_all;
use palimpsest_test_servers::Cluster;
use palimpsest_tests::say::{assistant_call, noise, prepare, result, user};
use palimpsest_tests::{Array, chance, name};
use tokio::time::sleep;

use crate::deployment::{Deployment, at};

const RUN: Duration = Duration::from_secs(20);
const AGENTS: usize = 32;
/// Bytes of a tool result in a turn. The content hardly compresses.
const BYTES: usize = 4_000;
/// Turns per session. Then another session begins.
const TURNS: usize = 100;

/// The resources that all processes have used so far.
struct Taken {
    servers: f64,
    workers: f64,
    database: f64,
    wal: f64,
    kept: f64,
    transactions: f64,
    summaries: f64,
}

impl Taken {
    fn now(cluster: &Cluster, deployment: &Deployment) -> Self {
        let figure = |query: &str| cluster.psql(query).parse::<f64>().unwrap();
        Self {
            servers: processors(&deployment.pids()[..deployment.servers()]),
            workers: processors(&deployment.pids()[deployment.servers()..]),
            database: database(),
            wal: figure("SELECT wal_bytes FROM pg_stat_wal"),
            kept: figure("SELECT pg_database_size('postgres')"),
            transactions: figure(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'",
            ),
            summaries: (0..deployment.processes())
                .map(|number| deployment.metric(number, "palimpsest_session_memory_updates_total"))
                .sum(),
        }
    }
}

fn processors(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| processor(&pid.to_string())).sum()
}

/// Returns the processor time of a process and of its reaped children.
fn processor(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the process is in parentheses and can contain spaces, so the fields begin after the last parenthesis.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    // The fields 14 to 17 are the user and system time of the process and of its children.
    let ticks = fields.split(' ').skip(11).take(4);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    // The kernel reports ticks of 10 ms.
    ticks / 100.0
}

/// Returns the processor time of all PostgreSQL processes on this machine.
fn database() -> f64 {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let its = all.filter(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        name.trim() == "postgres"
    });
    its.map(|entry| processor(entry.file_name().to_str().unwrap()))
        .sum()
}

/// Returns the memory of all processes of a deployment, in megabytes.
fn memory(deployment: &Deployment) -> f64 {
    let of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        kib.unwrap_or_default() / 1_024.0
    };
    deployment.pids().iter().map(of).sum()
}

/// The cost per turn.
struct Cost {
    each_second: f64,
    median: Duration,
    p99: Duration,
    servers_us: f64,
    workers_us: f64,
    database_us: f64,
    wal_kb: f64,
    kept_kb: f64,
    transactions: f64,
    summaries: f64,
    memory_mb: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} turns a second, median {:.1?}, p99 {:.1?}; a turn: {:.0} µs of servers' processors, {:.0} µs of \
             workers', {:.0} µs of the database's, {:.1} KB of WAL, {:.1} KB kept, {:.1} transactions, {:.2} summaries; their memory: \
             {:.0} MB",
            self.each_second,
            self.median,
            self.p99,
            self.servers_us,
            self.workers_us,
            self.database_us,
            self.wal_kb,
            self.kept_kb,
            self.transactions,
            self.summaries,
            self.memory_mb
        )
    }
}

/// The work of the agents.
#[derive(Clone, Copy)]
struct Work {
    /// Sessions that each agent uses in rotation.
    sessions: usize,
    /// Minimum duration of each turn.
    pace: Duration,
    /// True if all calls of a session reach one server. False if each call reaches any server.
    is_routed: bool,
}

/// Runs the agents and returns the cost.
async fn measure(cluster: &Cluster, deployment: &Deployment, work: Work) -> Cost {
    let sessions = work.sessions;
    let before = Taken::now(cluster, deployment);
    let began = Instant::now();
    let agents = (0..AGENTS).map(async |agent| {
        let mut random = agent as u64 + 1;
        let mut arrays: Vec<_> = (0..sessions).map(|_| Array::default()).collect();
        let (mut turn, mut took) = (0, Vec::new());
        while began.elapsed() < RUN {
            let (round, own) = (turn / sessions, turn % sessions);
            if round % TURNS == 0 {
                arrays[own] = Array::default();
            }
            let session = name(&format!("cost-{agent}-{own}-{}", round / TURNS));
            let call = format!("call_{round}");
            let text = noise((turn * 1_000 + agent) as u64, BYTES);
            let messages = vec![user("go on"), assistant_call(&call), result(&call, &text)];
            let mut request = prepare(&session, messages);
            request.known_etag = arrays[own].etag.clone();
            let any = usize::try_from(chance::next(&mut random) >> 40).unwrap();
            let place = if work.is_routed {
                agent * sessions + own
            } else {
                any
            };
            let mut client = deployment.context(place % deployment.servers());
            let asked = Instant::now();
            let reply = client.prepare_context(request).await.unwrap();
            took.push(asked.elapsed());
            arrays[own].take(reply.get_ref());
            turn += 1;
            sleep(work.pace.saturating_sub(asked.elapsed())).await;
        }
        took
    });
    let mut took: Vec<_> = join_all(agents).await.concat();
    let seconds = began.elapsed().as_secs_f64();
    let after = Taken::now(cluster, deployment);
    took.sort();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let turns = took.len() as f64;
    Cost {
        each_second: turns / seconds,
        median: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        servers_us: (after.servers - before.servers) * 1e6 / turns,
        workers_us: (after.workers - before.workers) * 1e6 / turns,
        database_us: (after.database - before.database) * 1e6 / turns,
        wal_kb: (after.wal - before.wal) / 1e3 / turns,
        kept_kb: (after.kept - before.kept) / 1e3 / turns,
        transactions: (after.transactions - before.transactions) / turns,
        summaries: (after.summaries - before.summaries) / turns,
        memory_mb: memory(deployment),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of half a minute"]
async fn measure_turn_cost_of_one_process() {
    let cluster = Cluster::start();
    let room = ["sessions.cache_bytes=2000000000"];
    let deployment = Deployment::start(&at(&[&cluster]), None, (1, 0), &room);
    let work = Work {
        sessions: 1,
        pace: Duration::ZERO,
        is_routed: true,
    };
    let cost = measure(&cluster, &deployment, work).await;
    println!("{AGENTS} agents of a session each, one process: {cost}");
    deployment.stop();
}

/// Measures the same turns on a half-idle machine, which is the recommended load, and on a saturated one. In the
/// saturated runs, the cache first holds all sessions of one server, and then a part of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of three minutes"]
async fn measure_turn_cost_with_and_without_session_routing() {
    const ALL: u64 = 2_000_000_000;
    const PART: u64 = 32 << 20;
    let half = Duration::from_millis(64);
    let runs = [(ALL, half), (ALL, Duration::ZERO), (PART, Duration::ZERO)];
    let cluster = Cluster::start();
    for (number, (bytes, pace)) in runs.into_iter().enumerate() {
        for is_routed in [true, false] {
            let settings = [
                format!("sessions.cache_bytes={bytes}"),
                format!("store.postgres.schema=s{number}_{is_routed}"),
                // Disables adaptive limiting, because saturated servers would otherwise reject calls.
                "grpc.max_slowdown_percent=10000".to_owned(),
            ];
            let settings: Vec<_> = settings.iter().map(String::as_str).collect();
            let deployment = Deployment::start(&at(&[&cluster]), None, (3, 2), &settings);
            let work = Work {
                sessions: 32,
                pace,
                is_routed,
            };
            let cost = measure(&cluster, &deployment, work).await;
            let how = if is_routed { "by session" } else { "at random" };
            println!(
                "{AGENTS} agents of {} sessions, a turn every {pace:?}, 3 servers, 2 workers, room for {bytes} bytes, \
                 {how}: {cost}",
                work.sessions
            );
            deployment.stop();
        }
    }
}
