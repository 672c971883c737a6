//! The schedule of failures. Processes are killed every few seconds, and the database restarts twice and fails over
//! once. The default of `synchronous_commit` changes continuously.

use std::time::Duration;

use palimpsest_test_servers::Cluster;
use palimpsest_tests::chance;

use crate::deployment::Deployment;

/// Time until a killed process is started again.
const AWAY: Duration = Duration::from_millis(700);
/// Interval between changes of the default of `synchronous_commit`, and its values in rotation.
const SETTING: Duration = Duration::from_millis(1_500);
const DEFAULTS: [&str; 4] = ["off", "local", "on", "remote_apply"];

/// The failures so far and those to come.
#[derive(Debug)]
pub(crate) struct Faults {
    random: u64,
    length: Duration,
    next_kill: Duration,
    away: Option<(usize, Duration)>,
    kills: u32,
    restarts: u32,
    failovers: u32,
    settings: u32,
}

impl Faults {
    /// Creates a schedule for a duration of load.
    pub(crate) fn new(seed: u64, length: Duration) -> Self {
        Self {
            random: seed,
            length,
            next_kill: Duration::from_secs(1),
            away: None,
            kills: 0,
            restarts: 0,
            failovers: 0,
            settings: 0,
        }
    }

    /// Returns true if all planned failures occurred.
    pub(crate) fn happened(&self) -> bool {
        self.kills > 2 && self.restarts == 2 && self.failovers == 1 && self.settings > 4
    }

    /// Causes the failures that are due at this time.
    pub(crate) fn happen(
        &mut self,
        now: Duration,
        deployment: &Deployment,
        primary: &mut Cluster,
        standby: &Cluster,
    ) {
        if let Some((number, back)) = self.away
            && back <= now
        {
            deployment.start_again(number);
            self.away = None;
        }
        if self.away.is_none() && self.next_kill <= now {
            let all = u64::try_from(deployment.processes()).unwrap();
            let number = usize::try_from((chance::next(&mut self.random) >> 8) % all).unwrap();
            deployment.kill(number);
            self.kills += 1;
            self.away = Some((number, now + AWAY));
            let pause = 2_000 + chance::next(&mut self.random) % 2_000;
            self.next_kill = now + Duration::from_millis(pause);
        }
        // The first restart is an orderly one, the second a crash.
        if self.restarts < 2 && now > self.length * (self.restarts + 1) / 5 {
            primary.stop(["fast", "immediate"][self.restarts as usize]);
            primary.start_again();
            self.restarts += 1;
        }
        if self.failovers == 0 && now > self.length * 3 / 5 {
            primary.stop("immediate");
            standby.promote();
            self.failovers += 1;
        }
        if now > SETTING * (self.settings + 1) {
            // Only the current primary accepts writes.
            let database = if self.failovers > 0 {
                standby
            } else {
                &*primary
            };
            let default = DEFAULTS[self.settings as usize % DEFAULTS.len()];
            database.psql(&format!("ALTER SYSTEM SET synchronous_commit = {default}"));
            database.reload();
            self.settings += 1;
        }
    }

    /// Starts all processes that are still stopped.
    pub(crate) fn mend(&mut self, deployment: &Deployment) {
        if let Some((number, _)) = self.away.take() {
            deployment.start_again(number);
        }
    }
}
