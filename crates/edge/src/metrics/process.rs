//! Metrics of the process and the tokio runtime, read at collection time.
//!
//! The values come from `/proc` directly. The collector of the `prometheus` crate uses another registry, which OTLP
//! could not export, and four numbers need no crate. Without `/proc` the metrics are omitted.

use std::fs;

use opentelemetry::metrics::Meter;
use tokio::runtime::RuntimeMetrics;

use super::instruments::{number, observable_option, observable_value, size};
use super::names;

/// The clock ticks per second in `/proc`. Linux always reports 100 to programs, independent of the kernel's own rate.
const TICKS_PER_SECOND: f64 = 100.0;

/// Registers the metrics of the process.
pub(super) fn observe_process(meter: &Meter) {
    let page = number(rustix::param::page_size() as u64);
    observable_option(meter, &names::PROCESS_CPU, cpu_seconds);
    observable_option(meter, &names::PROCESS_MEMORY, move || {
        resident_pages().map(|pages| pages * page)
    });
    observable_option(meter, &names::PROCESS_FDS, open_files);
    observable_option(meter, &names::PROCESS_MAX_FDS, max_files);
    // The start time is constant, so it is read once.
    let started = started();
    observable_option(meter, &names::PROCESS_START, move || started);
}

/// Registers the metrics of the runtime that runs the calls.
pub(super) fn observe_runtime(meter: &Meter, runtime: RuntimeMetrics) {
    let workers = runtime.num_workers();
    observable_value(meter, &names::RUNTIME_WORKERS, move || size(workers));
    let of = runtime.clone();
    observable_value(meter, &names::RUNTIME_TASKS, move || {
        size(of.num_alive_tasks())
    });
    let of = runtime.clone();
    observable_value(meter, &names::RUNTIME_QUEUE, move || {
        size(of.global_queue_depth())
    });
    observable_value(meter, &names::RUNTIME_BUSY, move || {
        let busy = |worker| runtime.worker_total_busy_duration(worker).as_secs_f64();
        (0..workers).map(busy).sum()
    });
}

/// Returns the fields of `/proc/self/stat` after the program name, which itself may contain spaces.
fn stat() -> Option<Vec<String>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn cpu_seconds() -> Option<f64> {
    let fields = stat()?;
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // `utime` and `stime` are fields 14 and 15, and the first field after the program name is field 3.
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

fn started() -> Option<f64> {
    // `starttime` is field 22, in clock ticks since the machine booted. `btime` is the time of the boot.
    let ticks: f64 = stat()?.get(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + ticks / TICKS_PER_SECOND)
}

fn resident_pages() -> Option<f64> {
    // The second field of `statm` is the resident set, in pages.
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn open_files() -> Option<f64> {
    // The directory of file handles is itself open during the count.
    Some(size(
        fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1),
    ))
}

fn max_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
