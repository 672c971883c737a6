//! Tests of a power loss: only synced data survives for certain, and a random part of the rest.
//!
//! A writer runs under `strace`. Its trace is replayed to rebuild the folder as a drive would contain
//! it at the time of an acknowledgement. The store must open there with every acknowledged append.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

mod disk;
mod trace;
#[path = "../writer/mod.rs"]
mod writer;

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use disk::{Disk, Fate};
use trace::Call;
use writer::{Acknowledged, Plan, Random};

const CALLS: &str = "trace=open,openat,creat,close,dup,dup2,dup3,lseek,write,writev,pwrite64,pwritev,\
     ftruncate,truncate,fallocate,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,\
     linkat,unlink,unlinkat,mkdir,mkdirat";

/// The number of tested times. Each is tested once without unsynced data and twice with a random part.
const MOMENTS: u64 = 20;

#[test]
#[ignore = "the process that the other test runs under strace"]
fn writer_child_process() {
    writer::run();
}

/// Runs a writer under `strace` and returns its system calls.
fn traced(plan: Plan, root: &Path) -> Vec<Call> {
    let trace = root.join(format!("trace-{}", plan.round));
    let out = trace.display().to_string();
    let strace = [
        "strace", "-f", "-qq", "--seccomp-bpf", "-xx", "-s", "4000000", "-e", CALLS, "-o", &out,
    ];
    let status = writer::command(plan, &root.join("disk/store"), &strace)
        .stdout(Stdio::null())
        .status()
        .expect("this test needs strace: apt-get install -y strace");
    assert!(status.success(), "the writer failed under strace: {status}");
    trace::read(File::open(&trace).unwrap())
}

/// The maximum number of runs if traces are unreadable.
const ATTEMPTS: usize = 5;

#[test]
fn every_acknowledged_append_survives() {
    let done = (0..ATTEMPTS).any(|_| attempt().is_some());
    assert!(done, "strace left {ATTEMPTS} traces that cannot be read");
}

/// Runs the test once. Returns `None` if the trace is unreadable.
fn attempt() -> Option<()> {
    let (seed, mut random) = Random::new();
    // The seed does not determine the order of the threads, so only the traces explain a failure. They are removed after
    // a success.
    let root = tempfile::tempdir().unwrap().keep();
    let store = root.join("disk");
    fs::create_dir(&store).unwrap();
    let mut heard = 0;
    let mut disk = Disk::new(&store);
    // The first two processes are killed. The next one opens their store, and sled then writes snapshot
    // files that may be based on unsynced data.
    for round in 0..3 {
        let plan = Plan {
            round,
            seed: random.next(),
            sessions: 7,
            writers: 7,
            appends: 17,
            large: true,
            ends_after: if round < 2 { 70 + random.below(40) } else { 0 },
        };
        disk.next_process();
        let calls = traced(plan, &root);
        // sled must call `fdatasync` instead, or it overwrites data that is not durable.
        let wrong = calls.iter().find(|call| call.name == "sync_file_range");
        assert!(wrong.is_none(), "a write of sled is not synced");
        // An unreadable trace proves nothing about the store, so the run is repeated.
        if calls.iter().any(Call::is_garbled) || trace::has_overlapping_resizes(&calls) {
            fs::remove_dir_all(root).unwrap();
            return None;
        }
        for call in calls {
            disk.take(&call);
        }
        // A process that exits in the middle of a write leaves effects that its trace lacks.
        disk.compare(plan.ends_after > 0);
    }
    let moments = disk.acknowledgements();
    assert!(moments.len() > 200, "only {} appends", moments.len());
    let openings = disk.openings();
    assert!(openings.len() > 20, "only {} changes", openings.len());
    for n in 0..MOMENTS {
        // Test the very first acknowledgement, random other ones, and equally many times during the opening.
        let of = if n % 2 == 0 { &moments } else { &openings };
        let index = if n == 0 {
            0
        } else {
            random.below(of.len() as u64)
        };
        let moment = of[usize::try_from(index).unwrap()];
        let mut acknowledged = Acknowledged::default();
        for line in disk.said_until(moment) {
            acknowledged.hear(line);
        }
        heard = heard.max(acknowledged.len());
        for fate in [
            // Losing everything is the strictest case. Random parts find errors of ordering.
            Fate::Lost,
            Fate::Torn(random.next()),
            Fate::Torn(random.next()),
        ] {
            let left = tempfile::tempdir_in(&root).unwrap();
            disk.rebuild(moment, fate, left.path());
            if let Err(failure) = acknowledged.check(&left.path().join("store")) {
                panic!(
                    "after {} acknowledgements of {}, at {moment}, while opening: {}, unsynced data \
                     {fate:?}, PALIMPSEST_SEED={seed}, traces in {}: {failure}",
                    acknowledged.len(),
                    moments.len(),
                    n % 2 == 1,
                    root.display()
                );
            }
        }
    }
    assert!(heard > 0, "no moment had an append");
    fs::remove_dir_all(root).unwrap();
    Some(())
}
