//! Tests of several servers and workers on one PostgreSQL database: they behave like one server, also under failures.
//!
//! `make scale` runs `no_acknowledged_write_is_lost_under_faults_and_failovers` on a release build for
//! `SCALE_MINUTES`. The normal test run lasts seconds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(clippy::disallowed_methods, reason = "a run takes real time")]

mod agent;
mod cost;
mod deployment;
mod faults;
mod lost_history;
mod migrate;
mod refusals;
mod replicas;
mod rows;
mod sharded;
mod verifying;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use palimpsest_test_servers::{Bucket, Cluster};
use palimpsest_tests::chance;

use crate::agent::{Agent, Counts};
use crate::deployment::{Deployment, at};
use crate::faults::Faults;

/// Default duration. `SCALE_MINUTES` overrides it.
const SHORT: Duration = Duration::from_secs(20);
const SERVERS: usize = 3;
const WORKERS: usize = 2;
const AGENTS: u64 = 24;
/// Number of checks, made while no load runs.
const CHECKS: u32 = 3;

fn duration() -> Duration {
    let said = std::env::var("SCALE_MINUTES").ok();
    let minutes = said.and_then(|text| text.parse().ok());
    minutes.map_or(SHORT, |minutes: u64| Duration::from_secs(minutes * 60))
}

/// Settings with early session memory and frequent compactions.
const SETTINGS: [&str; 6] = [
    "policy.autocompact.min_input_tokens=1000",
    "policy.session_memory.start_tokens=4000",
    "policy.session_memory.update_tokens=4000",
    "store.postgres.connections=8",
    "sessions.cache_bytes=33554432",
    "worker.lease_ms=3000",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_under_faults_and_failovers() {
    let seed = chance::seed();
    eprintln!("PALIMPSEST_TEST_SEED={seed}");
    let mut primary = Cluster::start();
    let standby = primary.replica("standby");
    // The standby confirms each commit, so that the failover loses none.
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    primary.reload();
    let database = at(&[&primary, &standby]);
    let deployment = Deployment::start(
        &database,
        Some(Bucket::start()),
        (SERVERS, WORKERS),
        &SETTINGS,
    );
    let deployment = Arc::new(deployment);
    let mut agents: Vec<_> = (0..AGENTS)
        .map(|it| Agent::new(&deployment, it, seed))
        .collect();
    let mut mishaps = Faults::new(seed, duration());
    let mut worked = Duration::ZERO;
    for number in 1..=CHECKS {
        let until = duration() * number / CHECKS;
        let began = Instant::now();
        // The schedule counts the time under load, without the checks.
        let happen = |now: Duration| {
            mishaps.happen(worked + now, &deployment, &mut primary, &standby);
            worked + now < until
        };
        agents = run(agents, happen).await;
        worked += began.elapsed();
        mishaps.mend(&deployment);
        for agent in &mut agents {
            agent.check().await;
        }
        let mut counts = Counts::default();
        for agent in &agents {
            counts += agent.counts;
        }
        eprintln!("{:>4} s: {counts:?} {mishaps:?}", worked.as_secs());
    }
    for agent in &agents {
        let told = agent.summary().await;
        assert!(told.iter().all(|memory| *memory == told[0]), "{told:#?}");
    }
    let log = deployment.log().join("\n");
    assert!(!log.contains("panicked"), "{log}");
    let acknowledged: u64 = agents.iter().map(|agent| agent.counts.acknowledged).sum();
    assert!(
        acknowledged > 20,
        "too few acknowledged calls: {acknowledged}"
    );
    assert!(mishaps.happened(), "{mishaps:?}");
    assert!(
        deployment.has_results(),
        "no result was stored in the bucket"
    );
    deployment.stop();
}

/// Runs the agents. Calls `happen` with the elapsed time to cause failures, until it returns false.
async fn run(agents: Vec<Agent>, mut happen: impl FnMut(Duration) -> bool) -> Vec<Agent> {
    let stop = Arc::new(AtomicBool::new(false));
    let working: Vec<_> = agents
        .into_iter()
        .map(|mut agent| {
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    agent.act().await;
                }
                agent
            })
        })
        .collect();
    let began = Instant::now();
    // A failure blocks this thread, and the agents run on the other one.
    while tokio::task::block_in_place(|| happen(began.elapsed())) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut agents = Vec::new();
    for agent in working {
        agents.push(agent.await.unwrap());
    }
    agents
}
