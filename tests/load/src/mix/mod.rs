//! Simulated agents: turns of several calls, each of which needs the reply of the previous one.
//!
//! ghz cannot do this, because it repeats one call and ignores replies. A turn forwards the etag of the last view, the
//! replacement of a stored result and the ids of messages. Without them the service would do different work: complete
//! views instead of deltas, and results that belong to no call. The callers are therefore our own. Each one has a
//! connection, a session and one call in flight.

mod agent;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use self::agent::Agent;
pub(crate) use self::agent::Done;
use crate::report::{Mix, MixCall};
use palimpsest_load::figures::{Latencies, rate};
use palimpsest_load::test_server::{PATIENT, TestServer};

/// Agents that measure the capacity in turns.
const FEW: usize = 16;
/// Agents of the open loop.
const MANY: usize = 200;
/// The rate of the open loop, in percent of the capacity.
const OFFERED_PERCENT: f64 = 50.0;
/// Minimum rate of the open loop, so that each agent has work even if a short measurement finds a very low capacity.
const LEAST: f64 = 2.0;

/// Measures the maximum rate of turns, then runs half that rate with many more agents on a server with default
/// settings.
pub(crate) async fn run(
    patient: &TestServer,
    by_default: &TestServer,
    (look, time): (Duration, Duration),
) -> Result<Vec<Mix>> {
    let (done, took) = turns(patient, ("closed", FEW), None, look).await?;
    let turns_a_second = rate(done.turns.len() as u64, took);
    let closed = mix("closed", patient, FEW, None, (done, took));
    let offered = (turns_a_second * OFFERED_PERCENT / 100.0).max(LEAST);
    let worked = turns(by_default, ("open", MANY), Some(offered), time).await?;
    let open = mix("open", by_default, MANY, Some(offered), worked);
    Ok(vec![closed, open])
}

/// Runs some turns that are not measured. A new server is slower, and adaptive limiting has no latency without load
/// yet.
pub(crate) async fn warm_up(site: &TestServer, time: Duration) -> Result<()> {
    turns(site, ("warm-up", 2), None, time).await.map(drop)
}

fn mix(
    pace: &'static str,
    site: &TestServer,
    agents: usize,
    offered: Option<f64>,
    (done, took): (Done, Duration),
) -> Mix {
    let turns = Latencies::new(done.turns);
    let calls = done.calls.into_iter().map(|(rpc, took_each)| {
        let calls = took_each.len() as u64;
        let latencies = Latencies::new(took_each);
        MixCall {
            rpc,
            calls,
            rate: rate(calls, took),
            p50_ms: latencies.ms(0.5),
            p99_ms: latencies.ms(0.99),
        }
    });
    Mix {
        pace,
        server: site.name,
        agents,
        offered,
        turns: turns.len() as u64,
        rate: rate(turns.len() as u64, took),
        p50_ms: turns.ms(0.5),
        p99_ms: turns.ms(0.99),
        shed: done.shed,
        errors: done.errors,
        calls: calls.collect(),
    }
}

/// Runs agents for `time` and returns their results. With a rate, turns start at this rate regardless of the duration
/// of others.
async fn turns(
    site: &TestServer,
    (run, agents): (&'static str, usize),
    rate: Option<f64>,
    time: Duration,
) -> Result<(Done, Duration)> {
    let mut working = Vec::new();
    for number in 0..agents {
        working.push(Agent::new(&site.server, run, number).await);
    }
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, mut agent) in working.into_iter().enumerate() {
        tasks.spawn(async move {
            for turn in 0_u32.. {
                let due = rate.map(|rate| {
                    // Turns are assigned to the agents in rotation.
                    let before = f64::from(turn) * count(agents) + count(number);
                    began + Duration::from_secs_f64(before / rate)
                });
                let due = due.unwrap_or_else(Instant::now);
                if due.duration_since(began) >= time {
                    break;
                }
                // A late turn starts at once, and its latency still counts from its due time.
                tokio::time::sleep_until(due.into()).await;
                agent.turn(due).await;
            }
            agent.done
        });
    }
    let mut all = Done::default();
    while let Some(done) = tasks.join_next().await {
        all.add(done?);
    }
    Ok((all, began.elapsed()))
}

#[expect(clippy::cast_precision_loss, reason = "a number of agents")]
fn count(agents: usize) -> f64 {
    agents as f64
}

/// Returns the explanation of the mix for the report.
pub(crate) fn about() -> String {
    format!(
        "A turn is a question with the view for it, the model's call, its result handed in and appended with the \
         view that follows, and the answer; now and then the summary is read, a message snipped or a stored result \
         read back. The closed loop has {FEW} agents that never rest, on a server with {PATIENT}. The open loop \
         has {MANY} agents with a connection each and offers {OFFERED_PERCENT:.0}\u{a0}% of what the closed one did, on \
         a server as it comes. A turn's latency counts from when it was due."
    )
}

/// Durations of calls, by method.
pub(crate) type Calls = BTreeMap<&'static str, Vec<Duration>>;
