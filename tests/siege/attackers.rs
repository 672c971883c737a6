//! The threads of the attackers.

use std::process::Command;

use tokio::runtime::{Builder, Handle, Runtime};

/// Number of file handles that this process needs for all attacks together.
const HANDLES: u64 = 6_000;
/// Priority of the attackers' threads, from 0 to 19, where 19 is the lowest.
const NICE: &str = "15";

/// A separate runtime, so that the attackers' work does not delay the honest tenant's client.
pub(crate) struct Attackers(Option<Runtime>);

impl Attackers {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(yield_to_others)
            .build();
        Self(Some(runtime.unwrap()))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().unwrap().handle().clone()
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // A runtime blocks in its drop, which is not allowed in asynchronous code.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of this thread only. A failure is ignored, because the attackers then only use more of the
/// machine.
fn yield_to_others() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let id = thread.file_name().unwrap();
    let lowered = Command::new("renice")
        .args(["-n", NICE, "-p"])
        .arg(id)
        .output();
    if !lowered.is_ok_and(|output| output.status.success()) {
        eprintln!("the attackers run at the usual priority: `renice` failed");
    }
}

/// Panics if this process cannot open enough connections.
pub(crate) fn check_handles() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    let soft = soft
        .and_then(|number| number.parse().ok())
        .unwrap_or(u64::MAX);
    assert!(
        soft >= HANDLES,
        "the attackers need {HANDLES} file handles and may open {soft}: run `ulimit -n {HANDLES}` first"
    );
}
