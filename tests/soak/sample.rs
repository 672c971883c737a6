//! Samples of the resource usage of a server, and their growth.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use palimpsest_tests::Server;

/// One sample.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    at: Duration,
    memory: u64,
    handles: u64,
    disk: u64,
    turns: usize,
    median: Duration,
    p99: Duration,
}

/// Allowed growth between the middle and the end of a run: a factor and an absolute amount.
const MEMORY: (f64, f64) = (1.15, 24.0 * MIB);
const HANDLES: (f64, f64) = (1.0, 8.0);
const DISK: (f64, f64) = (1.3, 64.0 * MIB);
const MEDIAN: (f64, f64) = (1.5, 0.000_5);
const P99: (f64, f64) = (2.0, 0.005);

const MIB: f64 = 1024.0 * 1024.0;

impl Sample {
    pub(crate) fn take(
        server: &Server,
        folder: &Path,
        at: Duration,
        latencies: &[Duration],
    ) -> Self {
        let proc = Path::new("/proc").join(server.pid().to_string());
        let status = fs::read_to_string(proc.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        let place = |part: usize| latencies.get(latencies.len() * part / 100).copied();
        Self {
            at,
            memory: kib * 1024,
            handles: fs::read_dir(proc.join("fd")).unwrap().count() as u64,
            disk: bytes_in(folder),
            turns: latencies.len(),
            median: place(50).unwrap_or_default(),
            p99: place(99).unwrap_or_default(),
        }
    }
}

/// Returns the bytes of all files in a folder. Files that are deleted during the walk count as empty.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>6.0} s  {:>7.1} MiB  {:>4} handles  {:>8.1} MiB on disk  {:>6} turns  median {:>6.2} ms  p99 {:>7.2} ms",
            self.at.as_secs_f64(),
            mib(self.memory),
            self.handles,
            mib(self.disk),
            self.turns,
            self.median.as_secs_f64() * 1e3,
            self.p99.as_secs_f64() * 1e3,
        )
    }
}

/// The name of a figure, its field in a sample, and its allowed growth.
type Figure = (&'static str, fn(&Sample) -> f64, (f64, f64));

/// Compares the medians of the last third and the one before. Returns a message for each figure that grew.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn report(samples: &[Sample], turns: u64) -> Vec<String> {
    let third = samples.len() / 3;
    let [.., before, last] = samples.chunks(third).collect::<Vec<_>>()[..] else {
        return vec!["too few samples".to_owned()];
    };
    eprintln!("{turns} turns");
    let median = |of: &[Sample], figure: fn(&Sample) -> f64| {
        let mut figures: Vec<f64> = of.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let figures: [Figure; 5] = [
        ("memory", |one| one.memory as f64, MEMORY),
        ("file handles", |one| one.handles as f64, HANDLES),
        ("disk", |one| one.disk as f64, DISK),
        ("median latency", |one| one.median.as_secs_f64(), MEDIAN),
        ("p99 latency", |one| one.p99.as_secs_f64(), P99),
    ];
    let mut wrong = Vec::new();
    for (what, figure, (factor, amount)) in figures {
        let (from, to) = (median(before, figure), median(last, figure));
        let said = format!(
            "{what}: {:.2} times what it was",
            to / from.max(f64::MIN_POSITIVE)
        );
        eprintln!("{said}");
        if to > from * factor + amount {
            wrong.push(said);
        }
    }
    wrong
}
