//! Cores of their own for a server and for its clients, and how busy they are: what the clients take is then not
//! missing to the server, and what they measure is not their own queue.

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
    /// Those of this thread, before any is pinned.
    pub fn of_this_thread() -> Self {
        let all = sched_getaffinity(None).unwrap();
        let each = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        Self {
            each: each.collect(),
            all,
        }
    }

    /// Whether there are two, so that the server and its clients need not share one.
    pub fn are_enough(&self) -> bool {
        self.each.len() > 1
    }

    /// Runs this thread, and what it starts from now on, on one core alone; false when there are not so many.
    pub fn pin(&self, which: usize) -> bool {
        let Some(core) = self.each.get(which) else {
            return false;
        };
        let mut one = CpuSet::new();
        one.set(*core);
        sched_setaffinity(None, &one).unwrap();
        true
    }

    /// Lets this thread, and what it starts from now on, run anywhere again.
    pub fn unpin(&self) {
        sched_setaffinity(None, &self.all).unwrap();
    }

    /// What starts in there, threads and processes, stays on that core. This thread is where it was before.
    pub fn on<T>(&self, which: usize, start: impl FnOnce() -> T) -> T {
        let before = sched_getaffinity(None).unwrap();
        self.pin(which);
        let started = start();
        sched_setaffinity(None, &before).unwrap();
        started
    }
}

/// What this process has taken of its cores so far.
pub fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
