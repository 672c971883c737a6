//! Tests of a killed process: no acknowledged append may be missing or duplicated.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

mod writer;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use writer::{Acknowledged, Plan, Random};

#[test]
#[ignore = "the process that the other test kills"]
fn writer_child_process() {
    writer::run();
}

/// 1,000 writers append to 50 sessions, so 20 writers race for each revision.
#[test]
fn no_acknowledged_append_is_lost_when_killed_at_random_moments() {
    let (seed, mut random) = Random::new();
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let mut acknowledged = Acknowledged::default();
    for round in 0..12 {
        let plan = Plan {
            round,
            seed: random.next(),
            sessions: 50,
            writers: 1000,
            appends: 1 << 20,
            large: false,
            ends_after: 0,
        };
        let mut child = writer::command(plan, &dir, &[])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Every fourth kill may happen while the store opens. The others wait for appends, so that a slow machine does
        // as many as a fast one.
        let wait = if round % 4 == 0 {
            0
        } else {
            120 + random.below(300)
        };
        let pause = Duration::from_millis(random.below(if wait == 0 { 300 } else { 20 }));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = acknowledged.len() as u64 + wait;
        while (acknowledged.len() as u64) < enough {
            let line = lines
                .next()
                .expect("a writer ends only when killed")
                .unwrap();
            acknowledged.hear(&line);
        }
        thread::sleep(pause);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest: Vec<_> = lines.map_while(Result::ok).collect();
        // The last line may be incomplete. Its append was not acknowledged to anyone.
        if rest.last().is_some_and(|last| last.split(' ').count() < 5) {
            rest.pop();
        }
        for line in &rest {
            acknowledged.hear(line);
        }
        if let Err(failure) = acknowledged.check(&dir) {
            panic!(
                "round {round}, killed {pause:?} after {wait} appends, PALIMPSEST_SEED={seed}: {failure}"
            );
        }
    }
    let n = acknowledged.len();
    println!("{n} appends acknowledged in 12 rounds, seed {seed}");
    assert!(n > 1000, "too few appends for a meaningful test: {n}");
}
