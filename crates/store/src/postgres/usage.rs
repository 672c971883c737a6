//! What projects hold: counted over their sessions' rows, because no row is shared between sessions. A count is
//! used again for as long as counting is worth it. Nobody waits long for a new one where there is an old one: counting
//! goes on in the background, however long it takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::error::PgError;
use super::names;
use super::pool::Pool;
use super::read::unsigned;
use super::retry::{RetryBudget, retry};
use crate::{StorageUsage, StoreError};

/// A count is used again for so many times as long as it took.
const WORTH: u32 = 20;
/// How long counting may take.
const LIMIT: Duration = Duration::from_mins(10);
/// How long somebody waits for a count where there is none yet.
const FIRST: Duration = Duration::from_secs(30);
/// How long it goes on trying while the database cannot be reached.
const TRYING: Duration = Duration::from_secs(5);
/// After a failure it is counted again so late.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// So many counts are made at one time: calls need connections too.
const AT_ONE_TIME: usize = 2;
/// So many projects' counts are remembered; beyond that those are dropped that are of no use any more.
const REMEMBERED: usize = 10_000;

/// What was counted the last time.
#[derive(Debug, Clone)]
struct CachedUsage {
    /// The counted usage, and when counting began.
    usage: Result<(StorageUsage, Instant), String>,
    until: Instant,
}

impl CachedUsage {
    fn is_fresh(&self) -> bool {
        Instant::now() < self.until
    }

    fn usage(&self) -> Result<StorageUsage, StoreError> {
        let (usage, begun) = self.usage.clone().map_err(StoreError::Unreachable)?;
        let age = begun.elapsed();
        Ok(StorageUsage { age, ..usage })
    }
}

#[derive(Debug)]
struct UsageEntry {
    known: watch::Sender<Option<CachedUsage>>,
    is_counting: AtomicBool,
}

/// A count that is being made. However it ends, another one may be made after it.
struct Counting(Arc<UsageEntry>);

impl Counting {
    /// Unless one is being made.
    fn begin(count: &Arc<UsageEntry>) -> Option<Self> {
        let is_first = !count.is_counting.swap(true, Ordering::AcqRel);
        is_first.then(|| Self(Arc::clone(count)))
    }

    /// Keeps what was counted. A failure does not take away what was known before.
    fn end(self, counted: Result<StorageUsage, StoreError>, begun: Instant, good_for: Duration) {
        let (usage, good_for) = match counted {
            Ok(usage) => (Ok((usage, begun)), good_for),
            Err(error) => {
                tracing::warn!(%error, "failed to count what a project holds; it is tried again");
                (Err(error.to_string()), AFTER_FAILURE)
            }
        };
        self.0.known.send_modify(|known| {
            let before = known.take().and_then(|known| known.usage.ok());
            *known = Some(CachedUsage {
                usage: usage.or_else(|error| before.ok_or(error)),
                until: Instant::now() + good_for,
            });
            // Before anybody hears of it: who comes then and wants a newer one has it made.
            self.0.is_counting.store(false, Ordering::Release);
        });
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.is_counting.store(false, Ordering::Release);
    }
}

/// The counts that were made.
#[derive(Debug)]
pub(super) struct UsageCache {
    /// For how long a count may be used again at most, and how long a call waits for a new one.
    longest: Duration,
    patience: Duration,
    room: Arc<Semaphore>,
    counts: Mutex<HashMap<Option<ProjectId>, Arc<UsageEntry>>>,
}

impl UsageCache {
    pub(super) fn new(longest: Duration, patience: Duration) -> Self {
        Self {
            longest,
            patience,
            room: Arc::new(Semaphore::new(AT_ONE_TIME)),
            counts: Mutex::default(),
        }
    }

    /// See [`crate::SessionLog::usage`]. Who comes while it is counted waits for that, not for a count of his own.
    pub(super) async fn usage(
        &self,
        pool: &Arc<Pool>,
        project: Option<&ProjectId>,
    ) -> Result<StorageUsage, StoreError> {
        let count = self.count(project);
        let mut news = count.known.subscribe();
        let before = news.borrow_and_update().clone();
        if let Some(known) = before.as_ref().filter(|known| known.is_fresh()) {
            return known.usage();
        }
        if let Some(counting) = Counting::begin(&count) {
            let (pool, room, longest) = (Arc::clone(pool), Arc::clone(&self.room), self.longest);
            let range = names::range(project);
            tokio::spawn(async move {
                let _room = room.acquire().await;
                let begun = Instant::now();
                let counted = retry!(RetryBudget::new(TRYING), _, once(&pool, &range).await);
                counting.end(counted, begun, (begun.elapsed() * WORTH).min(longest));
            });
        }
        // What was known is better than to wait for long.
        let is_known = before.is_some_and(|known| known.usage.is_ok());
        let patience = if is_known { self.patience } else { FIRST };
        let is_new = timeout(patience, news.changed()).await.is_ok();
        let known = news.borrow().clone();
        match known {
            Some(known) if is_new || is_known => known.usage(),
            _ => Err(StoreError::Unreachable(
                "what the project holds is still being counted".into(),
            )),
        }
    }

    fn count(&self, project: Option<&ProjectId>) -> Arc<UsageEntry> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= REMEMBERED {
            counts.retain(|_, count| {
                let is_fresh = count
                    .known
                    .borrow()
                    .as_ref()
                    .is_some_and(CachedUsage::is_fresh);
                is_fresh || count.is_counting.load(Ordering::Acquire)
            });
        }
        let count = counts.entry(project.cloned()).or_insert_with(|| {
            Arc::new(UsageEntry {
                known: watch::Sender::new(None),
                is_counting: AtomicBool::new(false),
            })
        });
        Arc::clone(count)
    }
}

/// Takes its time: whoever waits for it is not held up by that.
async fn once(pool: &Pool, (from, to): &(String, String)) -> Result<StorageUsage, PgError> {
    let client = pool.client().await?.with_limit(LIMIT);
    client
        .batch("BEGIN READ ONLY; SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min'")
        .await?;
    let row = client
        .query_opt(&pool.statements().usage, &[from, to])
        .await;
    client.batch("ROLLBACK").await?;
    let row = row?.ok_or_else(|| StoreError::Read("a count without a number".into()))?;
    Ok(StorageUsage {
        sessions: unsigned(&row, "sessions")?,
        bytes: unsigned(&row, "bytes")?,
        age: Duration::ZERO,
    })
}
