//! What goes wrong, and when: processes end as by a power failure every few seconds, the database is restarted twice
//! and fails over once, and somebody goes on changing how durable its commits are by default.

use std::time::Duration;

use palimpsest_test_servers::Cluster;
use palimpsest_tests::chance;

use crate::house::House;

/// How long a process stays away.
const AWAY: Duration = Duration::from_millis(700);
/// The time between changes of the default of `synchronous_commit`, and its values by turns.
const SETTING: Duration = Duration::from_millis(1_500);
const DEFAULTS: [&str; 4] = ["off", "local", "on", "remote_apply"];

/// What happened so far, and what is still to happen.
#[derive(Debug)]
pub(crate) struct Mishaps {
    random: u64,
    length: Duration,
    next_kill: Duration,
    away: Option<(usize, Duration)>,
    kills: u32,
    restarts: u32,
    failovers: u32,
    settings: u32,
}

impl Mishaps {
    /// What goes wrong in so long a time of work.
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

    /// Whether all that should go wrong did.
    pub(crate) fn happened(&self) -> bool {
        self.kills > 2 && self.restarts == 2 && self.failovers == 1 && self.settings > 4
    }

    /// Does what is due after so long a time of work.
    pub(crate) fn happen(
        &mut self,
        now: Duration,
        house: &House,
        primary: &mut Cluster,
        standby: &Cluster,
    ) {
        if let Some((number, back)) = self.away
            && back <= now
        {
            house.start_again(number);
            self.away = None;
        }
        if self.away.is_none() && self.next_kill <= now {
            let all = u64::try_from(house.processes()).unwrap();
            let number = usize::try_from((chance::next(&mut self.random) >> 8) % all).unwrap();
            house.kill(number);
            self.kills += 1;
            self.away = Some((number, now + AWAY));
            let pause = 2_000 + chance::next(&mut self.random) % 2_000;
            self.next_kill = now + Duration::from_millis(pause);
        }
        // Once as for an upgrade, once as a crash.
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

    /// Starts what is still away.
    pub(crate) fn mend(&mut self, house: &House) {
        if let Some((number, _)) = self.away.take() {
            house.start_again(number);
        }
    }
}
