//! Quotas of projects: calls and bytes per second, concurrent calls, sessions, stored bytes.
//!
//! This process counts rates and concurrency. The store reports sessions and stored bytes. The capacity of the whole
//! server is controlled by `palimpsest_edge::admission`.

mod account;
mod bucket;
mod limits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use palimpsest_store::{Store, StoreError};

pub use self::account::QuotaPermit;
use self::account::{Account, Reservation};
pub use self::limits::{QuotaLimits, QuotasConfig};
use crate::clock::Clock;

/// Number of projects with an account of their own. Further projects share one account, which is stricter, so made-up
/// project names cost no memory.
const MAX_ACCOUNTS: usize = 10_000;
/// Minimum interval between two sweeps of idle accounts. A flood of new names must not cause a sweep for each name.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// A limited quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// Calls per second.
    Requests,
    /// Bytes of requests per second.
    Bytes,
    /// Concurrent calls.
    Calls,
    /// Concurrent watches.
    Watches,
    /// Sessions.
    Sessions,
    /// Stored bytes.
    StoredBytes,
}

impl Quota {
    /// The last part of the name of the setting.
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

/// The error of an exceeded quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// The project, or `None` for the quota of all projects together.
    pub project: Option<ProjectId>,
    /// The exceeded quota.
    pub quota: Quota,
    /// The limit.
    pub limit: u64,
    /// The time until the call can succeed, if waiting is enough.
    pub retry_after: Option<Duration>,
}

/// The resources that one call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaDemand {
    /// True for a watch, a stream without an end.
    pub watch: bool,
    /// Bytes of the request.
    pub bytes: u64,
}

/// The reservation of a session that is being created, in every quota that counts sessions.
#[derive(Debug, Default)]
pub struct StorageReservation(Vec<Reservation>);

/// The quotas of all projects and their current usage.
#[derive(Debug)]
pub struct QuotaTracker {
    config: QuotasConfig,
    clock: Arc<dyn Clock>,
    server: Arc<Account>,
    accounts: Mutex<Accounts>,
    /// The account that projects share if the limit of accounts is reached.
    untracked: Arc<Account>,
}

/// The accounts of projects.
#[derive(Debug, Default)]
struct Accounts {
    of: HashMap<ProjectId, Arc<Account>>,
    /// Monotonic time of the last sweep of idle accounts.
    swept: Duration,
}

impl QuotaTracker {
    /// Creates a tracker without any usage.
    pub fn new(config: QuotasConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            server: Arc::new(Account::new(&config.server)),
            untracked: Arc::new(Account::new(&config.project)),
            accounts: Mutex::default(),
            config,
            clock,
        }
    }

    /// Admits a call of a project and counts it. The permit releases the call's concurrency when it is dropped.
    /// Returns `None` if the project has no limits.
    pub fn admit(
        &self,
        project: &ProjectId,
        need: QuotaDemand,
    ) -> Result<Option<QuotaPermit>, QuotaExceeded> {
        let now = self.clock.monotonic();
        let own = self.account(project, now);
        let accounts = [own.as_ref(), Some(&self.server)];
        // All rates are checked before any is charged, so a rejected call uses nothing.
        for (account, whose) in accounts.into_iter().zip([Some(project), None]) {
            if let Some(account) = account {
                account.check(now).map_err(|full| full.of(whose))?;
            }
        }
        // Only projects have limits of concurrent calls. The settings of `quotas.server` contain none.
        let held = match &own {
            Some(account) => {
                let held = Account::acquire(account, need.watch);
                Some(held.map_err(|full| full.of(Some(project)))?)
            }
            None => None,
        };
        for account in accounts.into_iter().flatten() {
            account.charge(now, need.bytes);
        }
        Ok(held)
    }

    /// Checks whether a project may store more: a new session if `creates` is true, otherwise more data in an
    /// existing session.
    ///
    /// A new session stays reserved until the returned value is dropped or passed to [`Self::record_stored`]. Concurrent
    /// writes may exceed the quota of bytes once; later ones are rejected.
    pub async fn reserve_storage(
        &self,
        log: &dyn Store,
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
            // The shared account serves several projects, so the stored usage of one cannot be kept in it. A
            // temporary account asks the store every time.
            let is_shared = Arc::ptr_eq(account, &self.untracked);
            let alone = is_shared.then(|| Arc::new(Account::new(&self.config.project)));
            let account = alone.as_ref().unwrap_or(account);
            match Account::check_growth(account, log, whose, creates, now).await? {
                Ok(reservation) => reserved.0.extend(reservation),
                Err(full) => return Ok(Err(full.of(whose))),
            }
        }
        Ok(Ok(reserved))
    }

    /// Adds stored data to the known usage, until the store reports it.
    pub fn record_stored(&self, project: &ProjectId, reserved: StorageReservation, bytes: u64) {
        let now = self.clock.monotonic();
        let own = self.account(project, now);
        for account in own.iter().chain([&self.server]) {
            account.add_stored(now, bytes);
        }
        let reserved = reserved.0.into_iter();
        reserved.for_each(|reservation| reservation.complete(now));
    }

    /// The number of projects with an account of their own.
    pub fn accounts(&self) -> usize {
        self.lock().of.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account of a project, or `None` if the project has no limits.
    fn account(&self, project: &ProjectId, now: Duration) -> Option<Arc<Account>> {
        let quotas = self.config.of(project);
        if quotas.is_unlimited() {
            return None;
        }
        let mut accounts = self.lock();
        if let Some(account) = accounts.of.get(project) {
            return Some(Arc::clone(account));
        }
        // A new account behaves like an idle one, so an idle one can be removed.
        if accounts.of.len() >= MAX_ACCOUNTS && now >= accounts.swept + SWEEP_EVERY {
            accounts.swept = now;
            accounts
                .of
                .retain(|_, account| !Account::is_idle(account, now));
        }
        // Projects with configured quotas always get an account. Their number is bounded by the settings.
        if accounts.of.len() >= MAX_ACCOUNTS && !self.config.projects.contains_key(project) {
            return Some(Arc::clone(&self.untracked));
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
    fn each_project_has_its_own_request_quota() {
        let (quotas, clock) = quotas(QuotaLimits {
            requests_per_second: 2,
            ..Default::default()
        });
        for name in ["a", "b"] {
            assert!(quotas.admit(&project(name), CALL).is_ok());
            assert!(quotas.admit(&project(name), CALL).is_ok());
            let refused = quotas.admit(&project(name), CALL).unwrap_err();
            assert_eq!(refused.quota, Quota::Requests);
            assert_eq!(refused.retry_after, Some(Duration::from_millis(500)));
        }
        clock.advance(Duration::from_millis(500));
        assert!(quotas.admit(&project("a"), CALL).is_ok());
    }

    #[test]
    fn a_permit_is_released_and_a_rejected_call_consumes_no_quota() {
        let (quotas, _) = quotas(QuotaLimits {
            requests_per_second: 3,
            concurrent_requests: 1,
            watches: 1,
            ..Default::default()
        });
        let one = quotas.admit(&project("a"), CALL).unwrap();
        for _ in 0..10 {
            let refused = quotas.admit(&project("a"), CALL).unwrap_err();
            assert_eq!(refused.quota, Quota::Calls);
        }
        let watch = QuotaDemand {
            watch: true,
            bytes: 0,
        };
        let watching = quotas.admit(&project("a"), watch).unwrap();
        assert_eq!(
            quotas.admit(&project("a"), watch).unwrap_err().quota,
            Quota::Watches
        );
        drop((one, watching));
        assert!(quotas.admit(&project("a"), CALL).is_ok());
    }

    #[test]
    fn the_number_of_quota_accounts_is_bounded() {
        let (quotas, clock) = quotas(QuotaLimits {
            requests_per_second: 1,
            ..Default::default()
        });
        for n in 0..200_000 {
            if n % 100 == 0 {
                clock.advance(Duration::from_millis(1));
            }
            let _ = quotas.admit(&project(&format!("p{n}")), CALL);
            assert!(quotas.accounts() <= MAX_ACCOUNTS);
        }
    }

    #[test]
    fn an_account_with_recent_additions_survives_a_sweep() {
        let (quotas, clock) = quotas(QuotaLimits {
            sessions: 1,
            ..Default::default()
        });
        let is_known = |name: &str| quotas.lock().of.contains_key(&project(name));
        let fill = || {
            for n in 0..=MAX_ACCOUNTS {
                let _ = quotas.admit(&project(&format!("p{n}")), CALL);
            }
        };
        let none = StorageReservation::default();
        quotas.record_stored(&project("writer"), none, 100);
        let _ = quotas.admit(&project("reader"), CALL);
        clock.advance(Duration::from_secs(1));
        fill();
        // A report of the store may still miss the additions of the writer.
        assert!(is_known("writer") && !is_known("reader"));
        clock.advance(Duration::from_mins(10));
        fill();
        assert!(!is_known("writer"));
    }

    #[test]
    fn projects_without_limits_have_no_quota_accounts() {
        let (quotas, _) = quotas(QuotaLimits::default());
        for n in 0..100 {
            let held = quotas.admit(&project(&format!("p{n}")), CALL).unwrap();
            assert!(held.is_none());
        }
        assert_eq!(quotas.accounts(), 0);
    }
}
