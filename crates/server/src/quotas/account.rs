//! What one project uses, or all of them together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use palimpsest_store::{SessionLog, StoreError, Usage};

use super::bucket::Bucket;
use super::{Exceeded, Quota};
use crate::config;

/// How long what the store says is good for, with what was added since.
const FRESH: Duration = Duration::from_secs(1);
/// The same before a call is refused for it: a session may just have been deleted.
const FRESH_TO_REFUSE: Duration = Duration::from_millis(100);
/// When a place may be free again: most calls take far less.
const PLACE_AFTER: Duration = Duration::from_millis(100);

/// An account.
#[derive(Debug)]
pub(super) struct Account {
    quotas: config::Quotas,
    requests: Bucket,
    bytes: Bucket,
    calls: AtomicU64,
    watches: AtomicU64,
    stored: Mutex<Option<Stored>>,
}

/// What is stored, as far as is known.
#[derive(Debug, Clone, Copy)]
struct Stored {
    usage: Usage,
    at: Duration,
}

/// A quota that is used up; whose is the caller's to say.
pub(super) struct Full {
    quota: Quota,
    limit: u64,
    retry_after: Option<Duration>,
}

impl Full {
    pub(super) fn of(self, project: Option<&ProjectId>) -> Exceeded {
        Exceeded {
            project: project.cloned(),
            quota: self.quota,
            limit: self.limit,
            retry_after: self.retry_after,
        }
    }
}

/// A call's place, given back when it is dropped.
#[derive(Debug)]
pub struct Held {
    account: Arc<Account>,
    watch: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account
            .places(self.watch)
            .0
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl Account {
    pub(super) fn new(quotas: &config::Quotas) -> Self {
        Self {
            quotas: *quotas,
            requests: Bucket::new(quotas.requests_per_second, quotas.request_burst),
            bytes: Bucket::new(quotas.bytes_per_second, quotas.byte_burst),
            calls: AtomicU64::new(0),
            watches: AtomicU64::new(0),
            stored: Mutex::default(),
        }
    }

    /// Whether to forget it changes nothing.
    pub(super) fn is_idle(this: &Arc<Self>, now: Duration) -> bool {
        Arc::strong_count(this) == 1 && this.requests.is_full(now) && this.bytes.is_full(now)
    }

    fn places(&self, watch: bool) -> (&AtomicU64, u64, Quota) {
        if watch {
            (&self.watches, self.quotas.watches, Quota::Watches)
        } else {
            (&self.calls, self.quotas.concurrent_requests, Quota::Calls)
        }
    }

    /// Whether the rates let one more call in.
    pub(super) fn check(&self, now: Duration) -> Result<(), Full> {
        for (bucket, quota) in [
            (&self.requests, Quota::Requests),
            (&self.bytes, Quota::Bytes),
        ] {
            bucket.has_room(now).map_err(|wait| Full {
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

    /// Takes a place.
    pub(super) fn hold(this: &Arc<Self>, watch: bool) -> Result<Held, Full> {
        let (places, limit, quota) = this.places(watch);
        let before = places.fetch_add(1, Ordering::Relaxed);
        // From here on it is given back.
        let held = Held {
            account: Arc::clone(this),
            watch,
        };
        if limit > 0 && before >= limit {
            return Err(Full {
                quota,
                limit,
                retry_after: Some(PLACE_AFTER),
            });
        }
        Ok(held)
    }

    pub(super) fn limits_storage(&self) -> bool {
        self.quotas.sessions > 0 || self.quotas.stored_bytes > 0
    }

    /// Whether there is room for more. The store is asked once a second, and again before a refusal.
    pub(super) async fn grow(
        &self,
        log: &dyn SessionLog,
        project: Option<&ProjectId>,
        creates: bool,
        now: Duration,
    ) -> Result<Result<(), Full>, StoreError> {
        for fresh in [FRESH, FRESH_TO_REFUSE] {
            let stored = *self.lock();
            let known = stored.filter(|stored| now.saturating_sub(stored.at) < fresh);
            let usage = if let Some(stored) = known {
                stored.usage
            } else {
                let usage = log.usage(project).await?;
                *self.lock() = Some(Stored { usage, at: now });
                usage
            };
            if self.has_room(usage, creates).is_ok() {
                break;
            }
        }
        let usage = self
            .lock()
            .map_or_else(Usage::default, |stored| stored.usage);
        Ok(self.has_room(usage, creates))
    }

    fn has_room(&self, usage: Usage, creates: bool) -> Result<(), Full> {
        let full = |quota, limit| {
            Err(Full {
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

    /// Adds what was stored since the store was asked.
    pub(super) fn grew(&self, created: bool, bytes: u64) {
        if let Some(stored) = self.lock().as_mut() {
            stored.usage.sessions += u64::from(created);
            stored.usage.bytes = stored.usage.bytes.saturating_add(bytes);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Stored>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
