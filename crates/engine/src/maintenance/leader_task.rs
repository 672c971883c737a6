//! Background tasks that one process at a time runs for all processes on a store. The store contains a lease per task,
//! which the leader renews while it works.

use std::time::Duration;

use crate::sessions::Sessions;
use palimpsest_store::error_chain;
use tokio::time::timeout;

use super::stats::MaintenanceStats;

/// A task that one process runs for the whole store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderTask {
    /// Deletes expired sessions.
    Retention,
    /// Removes orphaned blobs.
    Sweep,
}

impl LeaderTask {
    /// All tasks.
    pub const ALL: [Self; 2] = [Self::Retention, Self::Sweep];

    /// Returns the name of the task in the store and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::Sweep => "sweep",
        }
    }
}

/// Runs a pass if this process holds or gets the lease. Returns false if another process holds the lease.
///
/// The lease lasts until the next pass is due and is renewed while the pass runs. If this process ends, another one
/// takes over after the lease. The pass stops if another process has taken the lease.
pub(super) async fn run_pass(
    sessions: &Sessions,
    stats: &MaintenanceStats,
    (task, every): (LeaderTask, Duration),
    mut pass: impl Future<Output = ()> + Unpin,
) -> bool {
    match claim(sessions, stats, (task, every)).await {
        Some(true) => {}
        Some(false) => return false,
        // The lease may still hold, so this process does not count as replaced.
        None => return true,
    }
    stats.record_pass(task);
    // Renewed at half of its duration. A failed renewal (`None`) does not stop the pass, because the lease may still
    // hold.
    while timeout(every / 2, &mut pass).await.is_err() {
        if claim(sessions, stats, (task, every)).await == Some(false) {
            tracing::warn!(
                task = task.name(),
                "lost the lease of a leader task to another process"
            );
            return false;
        }
    }
    true
}

/// Returns whether this process holds the lease. `None` if the store cannot be reached.
async fn claim(
    sessions: &Sessions,
    stats: &MaintenanceStats,
    (task, every): (LeaderTask, Duration),
) -> Option<bool> {
    let claimed = sessions.claim_leader_task(task.name(), every).await;
    if let Err(error) = &claimed {
        stats.count_failed();
        tracing::warn!(task = task.name(), error = %error_chain(error), "failed to claim the lease of a leader task; retrying");
    }
    claimed.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::clock::Clock;
    use crate::sessions::DefaultPolicies;
    use palimpsest_conformance::MemoryLog;
    use palimpsest_core::ids::Timestamp;
    use palimpsest_core::limits::Limits;
    use palimpsest_store::{Leadership as _, Lease, Store};
    use tokio::time::{Instant, sleep};

    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    /// A clock with the time of the paused test runtime.
    #[derive(Debug)]
    struct OfRuntime(Instant);

    impl Clock for OfRuntime {
        fn now(&self) -> Timestamp {
            let millis = i64::try_from(self.monotonic().as_millis()).unwrap();
            Timestamp::from_millis(millis)
        }

        fn monotonic(&self) -> Duration {
            self.0.elapsed()
        }
    }

    struct Process {
        sessions: Sessions,
        stats: MaintenanceStats,
    }

    impl Process {
        fn on(log: &Arc<MemoryLog>, clock: &Arc<OfRuntime>, name: &str) -> Self {
            let sessions = Sessions::new(
                Arc::clone(log) as Arc<dyn Store>,
                Arc::clone(clock) as Arc<dyn Clock>,
                Arc::new(Limits::default()),
                DefaultPolicies::default(),
                1 << 20,
            );
            Self {
                sessions: sessions.with_process(name.into()),
                stats: MaintenanceStats::default(),
            }
        }

        /// Runs a pass of the given duration. Returns true if it finished.
        async fn sweeps_for(&self, time: Duration) -> bool {
            let mut is_done = false;
            let work = async {
                sleep(time).await;
                is_done = true;
            };
            run_pass(
                &self.sessions,
                &self.stats,
                (LeaderTask::Sweep, EVERY),
                Box::pin(work),
            )
            .await;
            is_done
        }
    }

    fn two() -> (Arc<MemoryLog>, Process, Process) {
        let log = Arc::new(MemoryLog::default());
        let clock = Arc::new(OfRuntime(Instant::now()));
        let process = |name| Process::on(&log, &clock, name);
        let (one, other) = (process("one"), process("other"));
        (log, one, other)
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pass_keeps_its_lease() {
        let (_, one, other) = two();
        let long = one.sweeps_for(EVERY * 5);
        let asks = async {
            for _ in 0..40 {
                sleep(EVERY / 10).await;
                assert!(!other.sweeps_for(Duration::ZERO).await);
            }
        };
        let (is_done, ()) = tokio::join!(long, asks);
        assert!(is_done);
        assert_eq!(one.stats.passes(LeaderTask::Sweep), 1);
        assert_eq!(other.stats.passes(LeaderTask::Sweep), 0);
        // The lease has expired after the pass.
        sleep(EVERY).await;
        assert!(other.sweeps_for(Duration::ZERO).await);
        assert!(!one.sweeps_for(Duration::ZERO).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_stops_if_another_process_takes_the_lease() {
        let (log, one, _) = two();
        let taken = async {
            sleep(EVERY / 4).await;
            // For the clock of the other process, the first lease has expired.
            let lease = Lease {
                owner: "other".into(),
                until: Timestamp::from_millis(20_000),
            };
            let later = Timestamp::from_millis(12_000);
            let claimed = log
                .claim_leader_task(LeaderTask::Sweep.name(), lease, later)
                .await;
            assert!(claimed.unwrap());
        };
        let began = Instant::now();
        let (is_done, ()) = tokio::join!(one.sweeps_for(EVERY * 5), taken);
        assert!(!is_done);
        assert!(began.elapsed() < EVERY);
        assert_eq!(one.stats.failures(), 0);
    }
}
