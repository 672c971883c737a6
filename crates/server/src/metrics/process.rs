//! What the process and its runtime take, read when somebody looks.
//!
//! Read from `/proc` by hand: `prometheus`'s own collector for it feeds another registry, of which OTLP would know
//! nothing, and four numbers need no crate. Where there is no `/proc` they are left out.

use std::fs;

use opentelemetry::metrics::Meter;
use tokio::runtime::RuntimeMetrics;

use super::make::{Observation, number, size, watch, watch_one};
use super::names;

/// The kernel's clock ticks a second; fixed for programs, whatever the kernel's own rate is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Tells of the process.
pub(super) fn watch_process(meter: &Meter) {
    let page = number(rustix::param::page_size() as u64);
    watch(meter, &names::PROCESS_CPU, || some(cpu_seconds()));
    watch(meter, &names::PROCESS_MEMORY, move || {
        some(resident_pages().map(|pages| pages * page))
    });
    watch(meter, &names::PROCESS_FDS, || some(open_files()));
    watch(meter, &names::PROCESS_MAX_FDS, || some(max_files()));
    let started = started();
    watch(meter, &names::PROCESS_START, move || some(started));
}

/// Tells of the runtime that calls run on.
pub(super) fn watch_runtime(meter: &Meter, runtime: RuntimeMetrics) {
    let workers = runtime.num_workers();
    watch_one(meter, &names::RUNTIME_WORKERS, move || size(workers));
    let of = runtime.clone();
    watch_one(meter, &names::RUNTIME_TASKS, move || {
        size(of.num_alive_tasks())
    });
    let of = runtime.clone();
    watch_one(meter, &names::RUNTIME_QUEUE, move || {
        size(of.global_queue_depth())
    });
    watch_one(meter, &names::RUNTIME_BUSY, move || {
        let busy = |worker| runtime.worker_total_busy_duration(worker).as_secs_f64();
        (0..workers).map(busy).sum()
    });
}

fn some(value: Option<f64>) -> Vec<Observation> {
    value.map(|value| (value, Vec::new())).into_iter().collect()
}

/// The fields after the name of the program, which may hold blanks itself.
fn stat() -> Option<Vec<String>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn cpu_seconds() -> Option<f64> {
    let fields = stat()?;
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // utime and stime are the fields 14 and 15; the first after the name is the third.
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

fn started() -> Option<f64> {
    let ticks: f64 = stat()?.get(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + ticks / TICKS_PER_SECOND)
}

fn resident_pages() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn open_files() -> Option<f64> {
    // The folder itself is open while it is read.
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
