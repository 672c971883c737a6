//! Agents at work: turns of several calls each, every one of which needs what the one before answered.
//!
//! ghz cannot do this, not even as several processes side by side: it repeats one call and does not look at
//! replies. A turn hands on the etag of the last view, the replacement of a stored result and the ids of
//! messages, and without them the service would be asked for other work than agents ask it for: whole views
//! instead of deltas, and results that no call belongs to. So the callers are ours, and each has a
//! connection, a session and one call under way at a time.

mod agent;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use self::agent::Agent;
pub(crate) use self::agent::Done;
use crate::report::{Mix, MixCall};
use palimpsest_load::figures::{Latencies, rate};
use palimpsest_load::site::{PATIENT, Site};

/// Agents that find out how many turns there can be.
const FEW: usize = 16;
/// Agents of the open loop.
const MANY: usize = 200;
/// What the open loop offers of that, in percent.
const OFFERED_PERCENT: f64 = 50.0;
/// A rate that gives each agent something to do even when a short look found hardly any.
const LEAST: f64 = 2.0;

/// First as many turns as there can be, then half as many with far more agents on a server as it comes.
pub(crate) async fn run(
    patient: &Site,
    by_default: &Site,
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

/// Some turns that nobody measures: a server that was just started is slower, and does not know yet what calls
/// take without load.
pub(crate) async fn warm_up(site: &Site, time: Duration) -> Result<()> {
    turns(site, ("warm-up", 2), None, time).await.map(drop)
}

fn mix(
    pace: &'static str,
    site: &Site,
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

/// What agents did in that time. With a rate, turns begin at it however long others take.
async fn turns(
    site: &Site,
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
                    // Turns are dealt out to agents one after another.
                    let before = f64::from(turn) * count(agents) + count(number);
                    began + Duration::from_secs_f64(before / rate)
                });
                let due = due.unwrap_or_else(Instant::now);
                if due.duration_since(began) >= time {
                    break;
                }
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

/// What a reader has to know of a mix.
pub(crate) fn about() -> String {
    format!(
        "A turn is a question with the view for it, the model's call, its result handed in and appended with the \
         view that follows, and the answer; now and then the summary is read, a message snipped or a stored result \
         read back. The closed loop has {FEW} agents that never rest, on a server with {PATIENT}. The open loop \
         has {MANY} agents with a connection each and offers {OFFERED_PERCENT:.0}\u{a0}% of what the closed one did, on \
         a server as it comes. A turn's latency counts from when it was due."
    )
}

/// Calls by their method.
pub(crate) type Calls = BTreeMap<&'static str, Vec<Duration>>;
