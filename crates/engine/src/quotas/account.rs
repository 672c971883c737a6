//! Usage of one project, or of all projects together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use palimpsest_store::{StorageUsage, Store, StoreError};

use super::bucket::TokenBucket;
use super::limits::QuotaLimits;
use super::{Quota, QuotaExceeded};

/// Maximum age of a usage report of the store for an admission. Additions since the report are counted on top.
const USAGE_MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum age of a usage report of the store for a rejection. A session may just have been deleted.
const USAGE_MAX_AGE_TO_REJECT: Duration = Duration::from_millis(100);
/// The suggested retry delay if all concurrent calls are in use. Most calls are much shorter.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The limits and the current usage of one project, or of all.
#[derive(Debug)]
pub(super) struct Account {
    quotas: QuotaLimits,
    requests: TokenBucket,
    bytes: TokenBucket,
    calls: AtomicU64,
    watches: AtomicU64,
    books: Mutex<StorageCounters>,
}

/// Stored usage and pending additions.
#[derive(Debug, Default)]
struct StorageCounters {
    stored: Option<StoredUsage>,
    /// Sessions that are being created and not committed yet.
    pending: u64,
    /// Sessions and bytes that this process has added since it started.
    added: Added,
    /// The time of the last addition.
    added_at: Option<Duration>,
    /// Earlier values of `added` with their times, oldest first. A usage report can be older than recent additions.
    history: VecDeque<(Duration, Added)>,
}

/// Added sessions and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Added {
    sessions: u64,
    bytes: u64,
}

/// The time for which additions are kept. A usage report of the store is younger, unless the store fails.
const ADDITIONS_MAX_AGE: Duration = Duration::from_mins(5);
/// Maximum number of marks. Beyond it every second mark is removed.
const MAX_MARKS: usize = 256;

impl StorageCounters {
    /// Records the current additions under a time.
    fn record(&mut self, now: Duration) {
        if self
            .history
            .back()
            .is_some_and(|(_, added)| *added == self.added)
        {
            return;
        }
        if self.history.len() >= MAX_MARKS {
            // The remaining marks still cover the whole time. A missing mark only makes `added_since` count more.
            let mut is_kept = false;
            self.history.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.history.push_back((now, self.added));
    }

    /// Returns the additions since a time, or since an earlier mark. An addition that a usage report may miss is
    /// never left out.
    fn added_since(&mut self, at: Duration) -> Added {
        // The latest mark at or before the time comes to the front: the report may lack the additions after it.
        while self.history.get(1).is_some_and(|(time, _)| *time <= at) {
            self.history.pop_front();
        }
        // If the report is older than all marks, all additions are counted. This can only overestimate the usage.
        let first = self.history.front().filter(|(time, _)| *time <= at);
        let before = first.map_or_else(Added::default, |(_, added)| *added);
        Added {
            sessions: self.added.sessions - before.sessions,
            bytes: self.added.bytes - before.bytes,
        }
    }
}

/// The reservation of a session that is being created. Dropping it before [`Reservation::complete`] releases the
/// reservation.
#[derive(Debug)]
pub(super) struct Reservation(Option<Arc<Account>>);

impl Reservation {
    /// Turns the reservation into a stored session.
    pub(super) fn complete(mut self, now: Duration) {
        if let Some(account) = self.0.take() {
            let mut counters = account.lock();
            counters.pending -= 1;
            // `added` corrects the next report of the store, and `stored` is the report in use.
            counters.added.sessions += 1;
            counters.added_at = Some(now);
            if let Some(stored) = &mut counters.stored {
                stored.usage.sessions += 1;
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(account) = &self.0 {
            account.lock().pending -= 1;
        }
    }
}

/// The last usage report of the store, plus later additions.
#[derive(Debug, Clone, Copy)]
struct StoredUsage {
    usage: StorageUsage,
    at: Duration,
}

/// An exceeded quota. The caller adds the project.
pub(super) struct QuotaExhausted {
    quota: Quota,
    limit: u64,
    retry_after: Option<Duration>,
}

impl QuotaExhausted {
    pub(super) fn of(self, project: Option<&ProjectId>) -> QuotaExceeded {
        QuotaExceeded {
            project: project.cloned(),
            quota: self.quota,
            limit: self.limit,
            retry_after: self.retry_after,
        }
    }
}

/// The permit of one call. It is released on drop.
#[derive(Debug)]
pub struct QuotaPermit {
    account: Arc<Account>,
    watch: bool,
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        self.account
            .concurrency(self.watch)
            .0
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl Account {
    pub(super) fn new(quotas: &QuotaLimits) -> Self {
        Self {
            quotas: *quotas,
            requests: TokenBucket::new(quotas.requests_per_second, quotas.request_burst),
            bytes: TokenBucket::new(quotas.bytes_per_second, quotas.byte_burst),
            calls: AtomicU64::new(0),
            watches: AtomicU64::new(0),
            books: Mutex::default(),
        }
    }

    /// Returns true if a new account would behave the same, so that this one can be removed.
    pub(super) fn is_idle(this: &Arc<Self>, now: Duration) -> bool {
        let is_recent = |added_at: Duration| now.saturating_sub(added_at) < ADDITIONS_MAX_AGE;
        // Permits and reservations hold a reference each, so a count of one means that there are none.
        Arc::strong_count(this) == 1
            && this.requests.is_full(now)
            && this.bytes.is_full(now)
            // The next usage report of the store may miss recent additions.
            && !this.lock().added_at.is_some_and(is_recent)
    }

    fn concurrency(&self, watch: bool) -> (&AtomicU64, u64, Quota) {
        if watch {
            (&self.watches, self.quotas.watches, Quota::Watches)
        } else {
            (&self.calls, self.quotas.concurrent_requests, Quota::Calls)
        }
    }

    /// Returns an error unless the rates admit one more call.
    pub(super) fn check(&self, now: Duration) -> Result<(), QuotaExhausted> {
        for (bucket, quota) in [
            (&self.requests, Quota::Requests),
            (&self.bytes, Quota::Bytes),
        ] {
            bucket.has_room(now).map_err(|wait| QuotaExhausted {
                quota,
                limit: bucket.rate(),
                retry_after: Some(wait),
            })?;
        }
        Ok(())
    }

    pub(super) fn charge(&self, now: Duration, bytes: u64) {
        self.requests.take(now, 1);
        self.bytes.take(now, bytes);
    }

    /// Acquires a permit for a call or a watch.
    pub(super) fn acquire(this: &Arc<Self>, watch: bool) -> Result<QuotaPermit, QuotaExhausted> {
        let (places, limit, quota) = this.concurrency(watch);
        // Increment first, then compare: two calls cannot both take the last permit.
        let before = places.fetch_add(1, Ordering::Relaxed);
        // The permit exists before the limit is checked, so the early return releases the count.
        let held = QuotaPermit {
            account: Arc::clone(this),
            watch,
        };
        // A limit of 0 means unlimited.
        if limit > 0 && before >= limit {
            return Err(QuotaExhausted {
                quota,
                limit,
                retry_after: Some(RETRY_AFTER),
            });
        }
        Ok(held)
    }

    pub(super) fn limits_storage(&self) -> bool {
        self.quotas.sessions > 0 || self.quotas.stored_bytes > 0
    }

    /// Checks whether more data may be stored. A usage report is used for one second, and refreshed before a
    /// rejection. A new session is reserved immediately, so that concurrent creations cannot share the last free one.
    pub(super) async fn check_growth(
        this: &Arc<Self>,
        log: &dyn Store,
        project: Option<&ProjectId>,
        creates: bool,
        now: Duration,
    ) -> Result<Result<Option<Reservation>, QuotaExhausted>, StoreError> {
        let mut outcome = Ok(None);
        // The first pass accepts an older usage report. Only if it would reject, the second pass requires a recent
        // one.
        for fresh in [USAGE_MAX_AGE, USAGE_MAX_AGE_TO_REJECT] {
            // The lock is released before the store is queried. Concurrent calls may query twice, and the later report
            // replaces the earlier one.
            let known = {
                let counters = this.lock();
                let is_fresh = |stored: &StoredUsage| now.saturating_sub(stored.at) < fresh;
                counters.stored.as_ref().is_some_and(is_fresh)
            };
            if !known {
                // The mark before the query bounds the additions that the report may miss.
                this.lock().record(now);
                let mut usage = log.usage(project).await?;
                let mut counters = this.lock();
                // The store may have counted before these additions were committed.
                let added = counters.added_since(now.saturating_sub(usage.age));
                usage.sessions += added.sessions;
                usage.bytes = usage.bytes.saturating_add(added.bytes);
                counters.stored = Some(StoredUsage { usage, at: now });
            }
            outcome = this.reserve(creates);
            if outcome.is_ok() {
                break;
            }
        }
        Ok(outcome
            .map(|reserved: Option<()>| reserved.map(|()| Reservation(Some(Arc::clone(this))))))
    }

    fn reserve(&self, creates: bool) -> Result<Option<()>, QuotaExhausted> {
        let mut counters = self.lock();
        let mut usage = counters
            .stored
            .map_or_else(StorageUsage::default, |stored| stored.usage);
        // Sessions that are being created count too, although the store does not report them yet.
        usage.sessions += counters.pending;
        self.has_room(usage, creates)?;
        if !creates {
            return Ok(None);
        }
        counters.pending += 1;
        Ok(Some(()))
    }

    fn has_room(&self, usage: StorageUsage, creates: bool) -> Result<(), QuotaExhausted> {
        let full = |quota, limit| {
            Err(QuotaExhausted {
                quota,
                limit,
                retry_after: None,
            })
        };
        let quotas = &self.quotas;
        if creates && quotas.sessions > 0 && usage.sessions >= quotas.sessions {
            return full(Quota::Sessions, quotas.sessions);
        }
        if quotas.stored_bytes > 0 && usage.bytes >= quotas.stored_bytes {
            return full(Quota::StoredBytes, quotas.stored_bytes);
        }
        Ok(())
    }

    /// Counts stored bytes on top of the last usage report.
    pub(super) fn add_stored(&self, now: Duration, bytes: u64) {
        let mut counters = self.lock();
        counters.added_at = Some(now);
        counters.added.bytes = counters.added.bytes.saturating_add(bytes);
        if let Some(stored) = &mut counters.stored {
            stored.usage.bytes = stored.usage.bytes.saturating_add(bytes);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StorageCounters> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn added(sessions: u64, bytes: u64) -> Added {
        Added { sessions, bytes }
    }

    #[test]
    fn additions_after_a_count_are_added_to_it() {
        let mut counters = StorageCounters::default();
        for time in 1..=5 {
            counters.added.sessions += 1;
            counters.added.bytes += 10;
            counters.record(millis(time * 100));
        }
        // A count at 250 ms includes at least the additions up to the mark at 200 ms.
        assert_eq!(counters.added_since(millis(250)), added(3, 30));
        assert_eq!(counters.added_since(millis(250)), added(3, 30));
        assert_eq!(counters.added_since(millis(900)), added(0, 0));
    }

    #[test]
    fn additions_since_a_time_before_the_first_mark_include_all() {
        let mut counters = StorageCounters::default();
        counters.added.sessions = 2;
        counters.record(millis(500));
        counters.added.sessions = 3;
        assert_eq!(counters.added_since(millis(499)), added(3, 0));
        assert_eq!(counters.added_since(millis(500)), added(1, 0));
    }

    #[test]
    fn the_number_of_marks_is_bounded() {
        let mut counters = StorageCounters::default();
        for time in 0..10_000 {
            counters.added.sessions += 1;
            counters.record(millis(time));
            assert!(counters.history.len() <= MAX_MARKS);
        }
        assert!(counters.added_since(millis(5_000)).sessions >= 4_999);
    }
}
