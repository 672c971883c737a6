//! Storage usage of projects, counted over the session rows. No row is shared between sessions, so the
//! usage cannot be updated with each change.
//!
//! A count is cached in proportion to its cost. A call waits only briefly for a new count if an older
//! one is cached. Counting continues in the background.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::error::PgError;
use super::names;
use super::nodes::{Nodes, Part, Question};
use super::retry::RetryBudget;
use super::row::unsigned;
use crate::{StorageUsage, StoreError};

/// A count is cached for this multiple of the time that it took.
const WORTH: u32 = 20;
/// The timeout of a count.
const LIMIT: Duration = Duration::from_mins(10);
/// The maximum time that a call waits for the first count.
const FIRST_COUNT_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which a count is retried while the database is unavailable.
const TRYING: Duration = Duration::from_secs(5);
/// The pause after a failed count.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// The maximum number of concurrent counts. Calls need connections too.
const AT_ONE_TIME: usize = 2;
/// The number of cached counts above which outdated ones are removed.
const REMEMBERED: usize = 10_000;

/// The result of the latest count.
#[derive(Debug, Clone)]
struct CachedUsage {
    /// The usage and the start of the count, or an error text.
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

/// A count in progress. Its drop allows the next count, whatever the outcome.
struct CountGuard(Option<Arc<UsageEntry>>);

impl CountGuard {
    /// Starts a count unless one is in progress.
    fn begin(count: &Arc<UsageEntry>) -> Option<Self> {
        let is_first = !count.is_counting.swap(true, Ordering::AcqRel);
        is_first.then(|| Self(Some(Arc::clone(count))))
    }

    /// Stores the result. An error does not replace an earlier result.
    fn end(
        mut self,
        counted: Result<StorageUsage, StoreError>,
        begun: Instant,
        good_for: Duration,
    ) {
        // Taken, because a drop after the notification would end the count that a receiver has started.
        let Some(entry) = self.0.take() else {
            return;
        };
        let (usage, good_for) = match counted {
            Ok(usage) => (Ok((usage, begun)), good_for),
            Err(error) => {
                tracing::warn!(%error, "failed to count the stored bytes of a project; the count is repeated");
                (Err(error.to_string()), AFTER_FAILURE)
            }
        };
        entry.known.send_modify(|known| {
            // After a failure, the previous result is better than an error.
            let before = known.take().and_then(|known| known.usage.ok());
            *known = Some(CachedUsage {
                usage: usage.or_else(|error| before.ok_or(error)),
                until: Instant::now() + good_for,
            });
            // Reset before receivers are notified, so that a receiver which needs a newer count can start one.
            entry.is_counting.store(false, Ordering::Release);
        });
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if let Some(entry) = &self.0 {
            entry.is_counting.store(false, Ordering::Release);
        }
    }
}

/// The cached counts of projects.
#[derive(Debug)]
pub(super) struct UsageCache {
    /// The maximum age of a count, and the maximum time that a call waits for a new one.
    longest: Duration,
    max_wait: Duration,
    count_permits: Arc<Semaphore>,
    counts: Mutex<HashMap<Option<ProjectId>, Arc<UsageEntry>>>,
}

impl UsageCache {
    pub(super) fn new(longest: Duration, max_wait: Duration) -> Self {
        Self {
            longest,
            max_wait,
            count_permits: Arc::new(Semaphore::new(AT_ONE_TIME)),
            counts: Mutex::default(),
        }
    }

    /// Implements [`crate::Store::usage`]. Concurrent calls share one count.
    pub(super) async fn usage(
        &self,
        nodes: &Arc<Nodes>,
        project: Option<&ProjectId>,
    ) -> Result<StorageUsage, StoreError> {
        let count = self.count(project);
        // Subscribe before reading, so that a result between the two is not missed.
        let mut news = count.known.subscribe();
        let before = news.borrow_and_update().clone();
        if let Some(known) = before.as_ref().filter(|known| known.is_fresh()) {
            return known.usage();
        }
        if let Some(counting) = CountGuard::begin(&count) {
            let (nodes, room, longest) = (
                Arc::clone(nodes),
                Arc::clone(&self.count_permits),
                self.longest,
            );
            let range = names::range(project);
            let is_counted = before.as_ref().is_some_and(|known| known.usage.is_ok());
            // The count runs in its own task, so that it completes even if the caller is cancelled.
            tokio::spawn(async move {
                // The permit is held until the count ends. The semaphore is never closed, so the wait cannot fail.
                let _room = room.acquire().await;
                // Taken before the count: quotas add the growth of a project since this time.
                let begun = Instant::now();
                let counted = count_all(&nodes, range, is_counted).await;
                counting.end(counted, begun, (begun.elapsed() * WORTH).min(longest));
            });
        }
        // An outdated count is better than a long wait.
        let is_known = before.is_some_and(|known| known.usage.is_ok());
        let max_wait = if is_known {
            self.max_wait
        } else {
            FIRST_COUNT_TIMEOUT
        };
        let is_new = timeout(max_wait, news.changed()).await.is_ok();
        let known = news.borrow().clone();
        match known {
            Some(known) if is_new || is_known => known.usage(),
            _ => Err(StoreError::Unreachable(
                "the stored bytes of the project are still being counted".into(),
            )),
        }
    }

    fn count(&self, project: Option<&ProjectId>) -> Arc<UsageEntry> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= REMEMBERED {
            // Entries in use or still fresh are kept, so the limit is not strict.
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

/// Counts the rows of all nodes.
async fn count_all(
    nodes: &Nodes,
    range: (String, String),
    is_counted: bool,
) -> Result<StorageUsage, StoreError> {
    let question = Question {
        limit: LIMIT,
        is_exact: false,
    };
    let range = &range;
    let asked = nodes.ask(RetryBudget::new(TRYING), question, move |part| {
        count_rows(part, range)
    });
    let asked = asked.await?;
    if let Some(node) = asked.left_out.first() {
        // An earlier count of all nodes is better than one without the sessions of a node.
        if is_counted {
            return Err(StoreError::Unreachable(format!(
                "its node {node} does not answer"
            )));
        }
        tracing::warn!(%node, "the count of a project's stored bytes omits a node that does not answer");
    }
    let mut all = StorageUsage::default();
    for one in asked.answers {
        all.sessions += one.sessions;
        all.bytes += one.bytes;
    }
    Ok(all)
}

/// Counts the usage with a long timeout. Callers do not wait for it in full.
async fn count_rows(
    part: Arc<Part>,
    (from, to): &(String, String),
) -> Result<StorageUsage, PgError> {
    let client = part.lists.client().await?.with_limit(LIMIT);
    client
        // A count may take longer than the statement timeout of the connection.
        .batch("BEGIN READ ONLY; SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min'")
        .await?;
    let row = client.query_opt(&part.statements.usage, &[from, to]).await;
    // End the transaction before the connection returns to the pool, also after an error.
    client.batch("ROLLBACK").await?;
    let row = row?.ok_or_else(|| StoreError::Read("a count without a number".into()))?;
    Ok(StorageUsage {
        sessions: unsigned(&row, "sessions")?,
        bytes: unsigned(&row, "bytes")?,
        age: Duration::ZERO,
    })
}
