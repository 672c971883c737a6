//! The maintenance tasks of one process, and their schedule.

use std::collections::HashSet;
use std::time::Duration;

use palimpsest_core::ids::SessionKey;
use palimpsest_store::archive::Archive;
use palimpsest_store::blobs::BlobError;
use palimpsest_store::error_chain;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::clock_check::ClockCheck;
use super::config::{RetentionConfig, SweepConfig};
use super::duty_cycle::DutyCycle;
use super::leader_task::{self, LeaderTask};
use super::orphans::sweep;
use super::stats::MaintenanceStats;
use crate::Engine;

/// The delay of the first passes after the start, so that the start itself is not slowed down.
const FIRST_PASS_DELAY: Duration = Duration::from_secs(5);

/// The maintenance tasks of one process.
#[derive(Debug)]
pub struct Maintenance {
    pub(super) engine: Engine,
    pub(super) retention: RetentionConfig,
    sweep: SweepConfig,
    pub(super) exports: Option<Archive>,
    pub(super) stats: MaintenanceStats,
    pub(super) clock_check: tokio::sync::Mutex<ClockCheck>,
    /// The sessions that the last retention pass kept because one of their stored results is lost.
    pub(super) incomplete: std::sync::Mutex<HashSet<SessionKey>>,
}

impl Maintenance {
    /// Creates the tasks. Fails if `retention.export_url` cannot be opened.
    pub fn new(
        engine: Engine,
        (retention, sweep): (RetentionConfig, SweepConfig),
        stats: MaintenanceStats,
    ) -> Result<Self, BlobError> {
        let clock = engine.sessions.clock();
        // Created at process start, because only events from before the start are evidence.
        let clock_check = ClockCheck::at_start(clock.now(), clock.monotonic());
        let exports = retention.export_url.as_deref().map(Archive::open);
        Ok(Self {
            exports: exports.transpose()?,
            engine,
            retention,
            sweep,
            stats,
            clock_check: tokio::sync::Mutex::new(clock_check),
            incomplete: std::sync::Mutex::default(),
        })
    }

    /// Runs until `stop`. Unfinished work is continued by the next process.
    pub async fn run(self, stop: CancellationToken) {
        let all = async {
            // The tasks run concurrently, so that a slow export does not delay the removal of deleted sessions.
            tokio::join!(self.remove(), self.run_retention(), self.run_sweep());
        };
        stop.run_until_cancelled(Box::pin(all)).await;
    }

    async fn run_retention(&self) {
        if !self.retention.is_on() {
            return;
        }
        let every = Duration::from_millis(self.retention.every_ms);
        sleep(FIRST_PASS_DELAY.min(every)).await;
        loop {
            self.run_retention_if_leader(every).await;
            sleep(every).await;
        }
    }

    /// Runs a retention pass if this process is the leader.
    pub(super) async fn run_retention_if_leader(&self, every: Duration) {
        let pass = Box::pin(self.run_retention_once());
        // The gauges describe the last pass of the leader. Those of a former leader would otherwise never change.
        if !self.run_if_leader(LeaderTask::Retention, every, pass).await {
            self.stats.reset_retention_gauges();
        }
    }

    async fn run_retention_once(&self) {
        if let Err(error) = self.retention_pass().await {
            self.stats.count_failed();
            tracing::warn!(error = %error_chain(&error), "failed to find expired sessions; retrying");
        }
    }

    async fn run_sweep(&self) {
        if !self.sweep.enabled {
            return;
        }
        let every = Duration::from_millis(self.sweep.every_ms);
        sleep(FIRST_PASS_DELAY.min(every)).await;
        loop {
            self.run_if_leader(LeaderTask::Sweep, every, Box::pin(self.run_sweep_once()))
                .await;
            sleep(every).await;
        }
    }

    async fn run_sweep_once(&self) {
        let grace = Duration::from_millis(self.sweep.min_age_ms);
        let pace = self.duty_cycle();
        match sweep(&self.engine.sessions, &self.engine.blobs, grace, &pace).await {
            Ok(swept) => {
                self.stats.swept(swept);
                if swept.files > 0 {
                    tracing::info!(
                        files = swept.files,
                        bytes = swept.bytes,
                        "swept orphaned blobs"
                    );
                }
            }
            Err(error) => {
                self.stats.count_failed();
                tracing::warn!(error = %error_chain(&error), "failed to sweep orphaned blobs; retrying");
            }
        }
    }

    async fn run_if_leader(
        &self,
        task: LeaderTask,
        every: Duration,
        pass: impl Future<Output = ()> + Unpin,
    ) -> bool {
        leader_task::run_pass(&self.engine.sessions, &self.stats, (task, every), pass).await
    }

    pub(super) fn duty_cycle(&self) -> DutyCycle {
        DutyCycle::new(self.retention.duty_cycle_percent)
    }
}
