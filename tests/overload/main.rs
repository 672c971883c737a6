//! Measures callers when a server receives twice the load that it can serve.
//!
//! The real server runs as a separate process. Clients send at a fixed rate, whether or not they are answered. One run
//! measures the duration of a call without load and the capacity in calls per second. It then sends twice that rate for
//! some seconds and measures the time until calls are fast again. Every figure is a ratio, printed with its limit.
//!
//! The server has one core and the clients have another. The clients therefore take nothing from the server, and do not
//! measure their own queue. The utilization of the clients is printed: near 1, the run measures the clients. The caches
//! are small, so that they are full before memory is measured.
//!
//! `cargo bench -p palimpsest-tests --bench overload -- 60` runs the overload for a minute. A second number sets the
//! bytes of a tool result. A call is one turn of an agent: it appends a response and a tool result and returns the
//! delta.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    reason = "a bench prints, measures time, and stops where it cannot go on"
)]

mod client;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_tests::Server;
use palimpsest_tests::cores::{Cores, busy};

use client::{Callers, Outcome};

/// Duration of each phase without overload.
const PHASE: Duration = Duration::from_secs(4);
/// Calls per second that are no load for the server.
const CALM: f64 = 200.0;

/// Returns the resident memory, in megabytes.
fn memory_mb(server: &Server) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kb.unwrap() / 1_024.0
}

fn row(what: &str, value: impl Display, limit: &str) {
    println!("{what:<44} {value:>18}   {limit}");
}

/// The results of a run.
struct Shown {
    unloaded: Outcome,
    capacity: Outcome,
    overload: Outcome,
    memory: [f64; 3],
    client: [f64; 2],
    recovery: Duration,
}

async fn run(server: &Server, callers: &Arc<Callers>, time: Duration) -> Shown {
    // Creates the sessions and fills the caches before the duration without load is measured.
    callers.open(CALM, PHASE).await;
    callers.closed(32, PHASE * 2).await;
    callers.open(CALM, PHASE).await;
    let unloaded = callers.open(CALM, PHASE).await;
    let mut capacity = Outcome::default();
    let mut client = [0.0; 2];
    for number in [8, 16, 32, 64] {
        let before = busy();
        let outcome = callers.closed(number, PHASE).await;
        if capacity.done.is_empty() || outcome.rate() > capacity.rate() {
            client[0] = busy().saturating_sub(before).as_secs_f64() / outcome.took.as_secs_f64();
            capacity = outcome;
        }
    }
    let offered = capacity.rate() * 2.0;
    let before = busy();
    let mut memory = [memory_mb(server), 0.0, 0.0];
    let half_way = async {
        tokio::time::sleep(time / 2).await;
        memory_mb(server)
    };
    let overload;
    (overload, memory[1]) = tokio::join!(callers.open(offered, time), half_way);
    memory[2] = memory_mb(server);
    client[1] = busy().saturating_sub(before).as_secs_f64() / overload.took.as_secs_f64();

    let ended = Instant::now();
    let slow = unloaded.quantile_ms(0.99) * 1.5;
    let probe = Duration::from_millis(250);
    let recovery = loop {
        let outcome = callers.open(CALM, probe).await;
        if outcome.shed == 0 && outcome.quantile_ms(0.9) <= slow {
            break ended.elapsed().saturating_sub(probe);
        }
        if ended.elapsed() > Duration::from_secs(20) {
            break ended.elapsed();
        }
    };
    Shown {
        unloaded,
        capacity,
        overload,
        memory,
        client,
        recovery,
    }
}

fn print(shown: &Shown) {
    let Shown {
        unloaded,
        capacity,
        overload,
        ..
    } = shown;
    let quantiles = |outcome: &Outcome| {
        let (half, most) = (outcome.quantile_ms(0.5), outcome.quantile_ms(0.99));
        format!("{half:.1}, {most:.1}")
    };
    row("without load, 200/s: p50, p99 ms", quantiles(unloaded), "");
    row("capacity, calls/s", format!("{:.0}", capacity.rate()), "");
    row("  p50, p99 ms", quantiles(capacity), "");
    let offered = (overload.done.len() as u64 + overload.shed + overload.failed) as f64;
    let seconds = overload.took.as_secs_f64();
    row(
        "offered, calls/s",
        format!("{:.0}", offered / seconds),
        &format!("for {seconds:.0} s"),
    );
    row(
        "clients busy at capacity, under overload",
        format!("{:.2}, {:.2}", shown.client[0], shown.client[1]),
        "< 0.9",
    );
    let goodput = overload.rate() / capacity.rate();
    row("goodput, of capacity", format!("{goodput:.2}"), ">= 0.90");
    let slower = overload.quantile_ms(0.99) / unloaded.quantile_ms(0.99);
    row(
        "p99 of accepted, of that without load",
        format!("{slower:.2}"),
        "<= 3",
    );
    row("  p50, p99 ms", quantiles(overload), "");
    row(
        "accepted, shed, failed otherwise",
        format!(
            "{}, {}, {}",
            overload.done.len(),
            overload.shed,
            overload.failed
        ),
        "failed: 0",
    );
    let [before, during, after] = shown.memory;
    row(
        "memory before, half way, after, MB",
        format!("{before:.0}, {during:.0}, {after:.0}"),
        "flat",
    );
    let recovery = shown.recovery.as_secs_f64();
    row("recovery, s", format!("{recovery:.2}"), "< 2");
}

fn main() {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<u64>().ok());
    let time = Duration::from_secs(numbers.next().unwrap_or(10));
    let bytes = numbers.next().unwrap_or(8_000) as usize;
    palimpsest_tests::binary();
    let folder = tempfile::tempdir().unwrap();
    let cores = Cores::of_this_thread();
    let server = cores.on(0, || {
        Server::start(
            folder.path(),
            &[
                "--set",
                "worker.enabled=false",
                "--set",
                "sessions.cache_bytes=134217728",
                "--set",
                "store.cache_bytes=16777216",
            ],
        )
    });
    if !cores.pin(1) {
        println!("Server and clients share a core: what is printed tells of both.");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let shown = runtime.unwrap().block_on(async {
        let callers = Callers::of(&server, bytes).await;
        run(&server, &callers, time).await
    });
    print(&shown);
}
