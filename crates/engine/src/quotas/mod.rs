//! What projects may use: calls and bytes a second, calls at one time, sessions, stored bytes.
//!
//! What a project uses in passing is counted in this process, what it stores is asked of the store. Not
//! here: how much the server as a whole can bear, which `grpc::admission` finds out.

mod account;
mod bucket;
mod limits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use palimpsest_store::{SessionLog, StoreError};

pub use self::account::QuotaPermit;
use self::account::{Account, Reservation};
pub use self::limits::{QuotaLimits, QuotasConfig};
use crate::clock::Clock;

/// How many projects are kept account of. When more are in use at one time, those that come last share
/// one account, which is stricter: names that were made up must not cost memory.
const MAX_ACCOUNTS: usize = 10_000;
/// How often they are looked through for those that are not in use, at most: a flood of names must not
/// cost a look at all of them each.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// Calls a second.
    Requests,
    /// Bytes of requests a second.
    Bytes,
    /// Calls at one time.
    Calls,
    /// Watches at one time.
    Watches,
    /// Sessions.
    Sessions,
    /// Bytes that are stored.
    StoredBytes,
}

impl Quota {
    /// The last part of the setting's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_second",
            Self::Bytes => "bytes_per_second",
            Self::Calls => "concurrent_requests",
            Self::Watches => "watches",
            Self::Sessions => "sessions",
            Self::StoredBytes => "stored_bytes",
        }
    }
}

/// A quota that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Whose; none is that of all projects together.
    pub project: Option<ProjectId>,
    /// Which.
    pub quota: Quota,
    /// How much it allows.
    pub limit: u64,
    /// When there will be room, where time alone brings it.
    pub retry_after: Option<Duration>,
}

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaDemand {
    /// Whether it is a stream without an end.
    pub watch: bool,
    /// How many bytes its request has.
    pub bytes: u64,
}

/// The place of a session that is being created in every quota that counts it.
#[derive(Debug, Default)]
pub struct StorageReservation(Vec<Reservation>);

/// What projects may use, and what they use.
#[derive(Debug)]
pub struct QuotaTracker {
    config: QuotasConfig,
    clock: Arc<dyn Clock>,
    server: Arc<Account>,
    accounts: Mutex<Accounts>,
    /// Of those that find no account of their own.
    others: Arc<Account>,
}

/// The accounts of projects.
#[derive(Debug, Default)]
struct Accounts {
    of: HashMap<ProjectId, Arc<Account>>,
    /// When those were last let go that are not in use.
    swept: Duration,
}

impl QuotaTracker {
    /// Nobody has used anything yet.
    pub fn new(config: QuotasConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            server: Arc::new(Account::new(&config.server)),
            others: Arc::new(Account::new(&config.project)),
            accounts: Mutex::default(),
            config,
            clock,
        }
    }

    /// Lets a call of a project in, and counts it. What it holds is given back when that is dropped.
    pub fn enter(
        &self,
        project: &ProjectId,
        need: QuotaDemand,
    ) -> Result<Option<QuotaPermit>, QuotaExceeded> {
        let now = self.clock.monotonic();
        let own = self.account(project, now);
        let accounts = [own.as_ref(), Some(&self.server)];
        // First everything is asked, so that a call that is refused has used nothing up.
        for (account, whose) in accounts.into_iter().zip([Some(project), None]) {
            if let Some(account) = account {
                account.check(now).map_err(|full| full.of(whose))?;
            }
        }
        let held = match &own {
            Some(account) => {
                let held = Account::hold(account, need.watch);
                Some(held.map_err(|full| full.of(Some(project)))?)
            }
            None => None,
        };
        for account in accounts.into_iter().flatten() {
            account.charge(now, need.bytes);
        }
        Ok(held)
    }

    /// Whether a project may store more: a new session, if `creates`, or something in one that it has. A new session
    /// has its place until what is returned is dropped, or handed to [`Self::grew`]. Bytes that are under way at this
    /// moment may still go past the quota, and none after them.
    pub async fn may_grow(
        &self,
        log: &dyn SessionLog,
        project: &ProjectId,
        creates: bool,
    ) -> Result<Result<StorageReservation, QuotaExceeded>, StoreError> {
        let now = self.clock.monotonic();
        let own = self.account(project, now);
        let each = [(own.as_ref(), Some(project)), (Some(&self.server), None)];
        let mut reserved = StorageReservation::default();
        for (account, whose) in each {
            let Some(account) = account.filter(|account| account.limits_storage()) else {
                continue;
            };
            // The shared account is of several projects: of what each stores it can remember nothing.
            let is_shared = Arc::ptr_eq(account, &self.others);
            let alone = is_shared.then(|| Arc::new(Account::new(&self.config.project)));
            let account = alone.as_ref().unwrap_or(account);
            match Account::grow(account, log, whose, creates, now).await? {
                Ok(reservation) => reserved.0.extend(reservation),
                Err(full) => return Ok(Err(full.of(whose))),
            }
        }
        Ok(Ok(reserved))
    }

    /// Counts what was just stored, until the store is asked again.
    pub fn grew(&self, project: &ProjectId, reserved: StorageReservation, bytes: u64) {
        let own = self.account(project, self.clock.monotonic());
        for account in own.iter().chain([&self.server]) {
            account.grew(bytes);
        }
        reserved.0.into_iter().for_each(Reservation::settle);
    }

    /// How many projects are kept account of.
    pub fn accounts(&self) -> usize {
        self.lock().of.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A project's account; none when nothing of it is limited.
    fn account(&self, project: &ProjectId, now: Duration) -> Option<Arc<Account>> {
        let quotas = self.config.of(project);
        if quotas.is_unlimited() {
            return None;
        }
        let mut accounts = self.lock();
        if let Some(account) = accounts.of.get(project) {
            return Some(Arc::clone(account));
        }
        if accounts.of.len() >= MAX_ACCOUNTS && now >= accounts.swept + SWEEP_EVERY {
            accounts.swept = now;
            accounts
                .of
                .retain(|_, account| !Account::is_idle(account, now));
        }
        // Projects that have quotas of their own are as many as there are in the settings.
        if accounts.of.len() >= MAX_ACCOUNTS && !self.config.projects.contains_key(project) {
            return Some(Arc::clone(&self.others));
        }
        let account = Arc::new(Account::new(quotas));
        accounts.of.insert(project.clone(), Arc::clone(&account));
        Some(account)
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::Timestamp;

    use super::*;
    use crate::clock::ManualClock;

    fn quotas(project: QuotaLimits) -> (QuotaTracker, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::default()));
        let config = QuotasConfig {
            project,
            ..QuotasConfig::default()
        };
        (QuotaTracker::new(config, clock.clone()), clock)
    }

    fn project(name: &str) -> ProjectId {
        ProjectId::new(name).unwrap()
    }

    const CALL: QuotaDemand = QuotaDemand {
        watch: false,
        bytes: 100,
    };

    #[test]
    fn projects_do_not_feel_each_other() {
        let (quotas, clock) = quotas(QuotaLimits {
            requests_per_second: 2,
            ..Default::default()
        });
        for name in ["a", "b"] {
            assert!(quotas.enter(&project(name), CALL).is_ok());
            assert!(quotas.enter(&project(name), CALL).is_ok());
            let refused = quotas.enter(&project(name), CALL).unwrap_err();
            assert_eq!(refused.quota, Quota::Requests);
            assert_eq!(refused.retry_after, Some(Duration::from_millis(500)));
        }
        clock.advance(Duration::from_millis(500));
        assert!(quotas.enter(&project("a"), CALL).is_ok());
    }

    #[test]
    fn a_place_is_given_back_and_a_refused_call_uses_nothing_up() {
        let (quotas, _) = quotas(QuotaLimits {
            requests_per_second: 3,
            concurrent_requests: 1,
            watches: 1,
            ..Default::default()
        });
        let one = quotas.enter(&project("a"), CALL).unwrap();
        for _ in 0..10 {
            let refused = quotas.enter(&project("a"), CALL).unwrap_err();
            assert_eq!(refused.quota, Quota::Calls);
        }
        let watch = QuotaDemand {
            watch: true,
            bytes: 0,
        };
        let watching = quotas.enter(&project("a"), watch).unwrap();
        assert_eq!(
            quotas.enter(&project("a"), watch).unwrap_err().quota,
            Quota::Watches
        );
        drop((one, watching));
        assert!(quotas.enter(&project("a"), CALL).is_ok());
    }

    #[test]
    fn made_up_projects_cost_no_memory() {
        let (quotas, clock) = quotas(QuotaLimits {
            requests_per_second: 1,
            ..Default::default()
        });
        for n in 0..200_000 {
            if n % 100 == 0 {
                clock.advance(Duration::from_millis(1));
            }
            let _ = quotas.enter(&project(&format!("p{n}")), CALL);
            assert!(quotas.accounts() <= MAX_ACCOUNTS);
        }
    }

    #[test]
    fn what_is_not_limited_is_not_counted() {
        let (quotas, _) = quotas(QuotaLimits::default());
        for n in 0..100 {
            let held = quotas.enter(&project(&format!("p{n}")), CALL).unwrap();
            assert!(held.is_none());
        }
        assert_eq!(quotas.accounts(), 0);
    }
}
