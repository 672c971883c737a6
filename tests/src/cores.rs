//! Separate cores for a server and its clients, and their utilization. The clients then take nothing from the server,
//! and do not measure their own queue.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The cores that this process may use.
#[derive(Debug)]
pub struct Cores {
    all: CpuSet,
    each: Vec<usize>,
}

impl Cores {
    /// Reads the cores of this thread. Must be called before a thread is pinned.
    pub fn of_this_thread() -> Self {
        let all = sched_getaffinity(None).unwrap();
        let each = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        Self {
            each: each.collect(),
            all,
        }
    }

    /// Returns true if there are at least two cores, so that the server and its clients need not share one.
    pub fn are_enough(&self) -> bool {
        self.each.len() > 1
    }

    /// Pins this thread, and all threads and processes that it starts later, to one core. Returns false if the core
    /// does not exist.
    pub fn pin(&self, which: usize) -> bool {
        let Some(core) = self.each.get(which) else {
            return false;
        };
        let mut one = CpuSet::new();
        one.set(*core);
        sched_setaffinity(None, &one).unwrap();
        true
    }

    /// Allows this thread, and all that it starts later, to run on any core again.
    pub fn unpin(&self) {
        sched_setaffinity(None, &self.all).unwrap();
    }

    /// Runs `start` pinned to a core. Threads and processes that it starts stay on that core. Then restores the
    /// affinity of this thread.
    pub fn on<T>(&self, which: usize, start: impl FnOnce() -> T) -> T {
        let before = sched_getaffinity(None).unwrap();
        self.pin(which);
        let started = start();
        sched_setaffinity(None, &before).unwrap();
        started
    }
}

/// Returns the processor time of this process so far.
pub fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
