//! Agents on a Citus database while its nodes are killed. No package of CI has Citus, so the test is ignored. The variables
//! are those of `crates/store/tests/citus.rs`.
//!
//! ```text
//! PALIMPSEST_TEST_CITUS=postgres://palimpsest@coordinator/palimpsest PALIMPSEST_TEST_CITUS_NODE=./node \
//!   cargo test --workspace --test scale sharded -- --ignored --nocapture
//! ```

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_test_servers::{Bucket, binary};
use palimpsest_tests::{chance, palimpsest_with};

use crate::agent::Agent;
use crate::deployment::Deployment;
use crate::{AGENTS, SERVERS, SETTINGS, WORKERS, duration, run};

/// Time between the death of a node and its start, and between its start and the next death.
const PERIOD: Duration = Duration::from_secs(8);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn psql(url: &str, statement: &str) -> String {
    let done = Command::new(binary("psql"))
        .args([
            "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--dbname", url,
        ])
        .args(["--command", statement])
        .output()
        .unwrap();
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn node(command: &str, port: &str) {
    let program = variable("PALIMPSEST_TEST_CITUS_NODE");
    let mut words = program.split(' ');
    let mut run = Command::new(words.next().unwrap());
    run.args(words).args([command, port]);
    assert!(run.status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Citus cluster in PALIMPSEST_TEST_CITUS"]
async fn no_acknowledged_write_is_lost_while_nodes_are_killed() {
    let seed = chance::seed();
    eprintln!("PALIMPSEST_TEST_SEED={seed}");
    let url = variable("PALIMPSEST_TEST_CITUS");
    let schema = format!("store.postgres.schema=scale_{}", std::process::id());
    let database = format!("store.postgres.url={url}");
    let mut arguments = vec!["schema", "apply", "--distributed", "citus"];
    // The command reads all settings, and does not use the blobs.
    for setting in [&database, &schema, "blobs.url=file:///unused"] {
        arguments.extend(["--set", setting]);
    }
    let applied = palimpsest_with(&arguments, &[]);
    let told = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(applied.status.success(), "{told}");
    let settings: Vec<_> = SETTINGS.into_iter().chain([schema.as_str()]).collect();
    let deployment = Deployment::start(&url, Some(Bucket::start()), (SERVERS, WORKERS), &settings);
    let deployment = Arc::new(deployment);
    let agents: Vec<_> = (0..AGENTS)
        .map(|it| Agent::new(&deployment, it, seed))
        .collect();
    let ports = psql(
        &url,
        "SELECT DISTINCT nodeport FROM citus_shards ORDER BY 1",
    );
    let ports: Vec<_> = ports.lines().collect();
    let (mut number, mut away, mut next) = (0, None, PERIOD / 2);
    let length = duration().max(PERIOD * 3);
    let mut agents = run(agents, |now| {
        if now >= next {
            if let Some(port) = away.take() {
                node("start", port);
            } else {
                let port = ports[number % ports.len()];
                number += 1;
                node("kill", port);
                away = Some(port);
            }
            next = now + PERIOD;
        }
        now < length
    })
    .await;
    if let Some(port) = away {
        node("start", port);
    }
    // A node accepts connections some time after its start.
    let began = Instant::now();
    let alive = |port: &&&str| {
        let (before, after) = url.rsplit_once(':').unwrap();
        let rest = after.find('/').map_or("", |from| &after[from..]);
        psql(&format!("{before}:{port}{rest}"), "SELECT 1") == "1"
    };
    while ports.iter().filter(alive).count() < ports.len() {
        assert!(began.elapsed() < Duration::from_mins(1));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for agent in &mut agents {
        agent.check().await;
    }
    let log = deployment.log().join("\n");
    assert!(!log.contains("panicked"), "{log}");
    let acknowledged: u64 = agents.iter().map(|agent| agent.counts.acknowledged).sum();
    let failed: u64 = agents.iter().map(|agent| agent.counts.failed).sum();
    println!("{acknowledged} acknowledged calls, {failed} failed calls, {number} killed nodes");
    assert!(
        acknowledged > 20 && number > 0,
        "{acknowledged} calls, {number} killed nodes"
    );
    deployment.stop();
}
