//! What projects hold: counted over their sessions' rows, because no row is shared between sessions. A count is
//! used again for as long as counting is worth it. Nobody waits long for a new one where there is an old one: counting
//! goes on in the background, however long it takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::error::Trouble;
use super::names;
use super::pool::Pool;
use super::read::unsigned;
use crate::{StoreError, Usage};

/// A count is used again for so many times as long as it took.
const WORTH: u32 = 20;
/// How long a call waits for a new count where there is an old one.
const PATIENCE: Duration = Duration::from_millis(250);
/// After a failure it is counted again so late.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// So many projects' counts are remembered; beyond that those are dropped that are of no use any more.
const REMEMBERED: usize = 10_000;

/// What was counted the last time.
#[derive(Debug, Clone)]
struct Known {
    usage: Result<Usage, String>,
    until: Instant,
}

#[derive(Debug)]
struct Count {
    known: watch::Sender<Option<Known>>,
    is_counting: AtomicBool,
}

impl Count {
    fn fresh(&self) -> Option<Known> {
        let known = self.known.borrow().clone();
        known.filter(|known| Instant::now() < known.until)
    }

    /// Keeps what was counted. A failure does not take away what was known before.
    fn counted(&self, counted: Result<Usage, StoreError>, good_for: Duration) {
        self.known.send_modify(|known| {
            let before = known.take().and_then(|known| known.usage.ok());
            let (usage, good_for) = match counted {
                Ok(usage) => (Ok(usage), good_for),
                Err(error) => {
                    tracing::warn!(%error, "failed to count what a project holds; it is tried again");
                    (before.ok_or(error.to_string()), AFTER_FAILURE)
                }
            };
            *known = Some(Known {
                usage,
                until: Instant::now() + good_for,
            });
        });
    }
}

/// The counts that were made.
#[derive(Debug)]
pub(super) struct Counted {
    longest: Duration,
    counts: Mutex<HashMap<Option<ProjectId>, Arc<Count>>>,
}

impl Counted {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            counts: Mutex::default(),
        }
    }

    /// See [`crate::SessionLog::usage`]. Who comes while it is counted waits for that, not for a count of his own.
    pub(super) async fn usage(
        &self,
        pool: &Arc<Pool>,
        project: Option<&ProjectId>,
    ) -> Result<Usage, StoreError> {
        let count = self.count(project);
        if let Some(known) = count.fresh() {
            return known.usage.map_err(StoreError::Unreachable);
        }
        let mut news = count.known.subscribe();
        let before = news.borrow_and_update().clone();
        if !count.is_counting.swap(true, Ordering::AcqRel) {
            let (pool, count, longest) = (Arc::clone(pool), Arc::clone(&count), self.longest);
            let range = names::range(project);
            tokio::spawn(async move {
                let begun = Instant::now();
                let counted = once(&pool, range).await;
                count.counted(
                    counted.map_err(StoreError::from),
                    (begun.elapsed() * WORTH).min(longest),
                );
                count.is_counting.store(false, Ordering::Release);
            });
        }
        if before.is_some() {
            // What was known is better than to wait for long.
            let _ = timeout(PATIENCE, news.changed()).await;
        } else {
            news.changed().await.map_err(|_| StoreError::Closed)?;
        }
        let known = news.borrow().clone();
        let usage = known.ok_or(StoreError::Closed)?.usage;
        usage.map_err(StoreError::Unreachable)
    }

    fn count(&self, project: Option<&ProjectId>) -> Arc<Count> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= REMEMBERED {
            counts.retain(|_, count| {
                count.is_counting.load(Ordering::Acquire) || count.fresh().is_some()
            });
        }
        let count = counts.entry(project.cloned()).or_insert_with(|| {
            Arc::new(Count {
                known: watch::Sender::new(None),
                is_counting: AtomicBool::new(false),
            })
        });
        Arc::clone(count)
    }
}

/// However long it takes: whoever waits for it is not held up by that.
async fn once(pool: &Pool, (from, to): (String, String)) -> Result<Usage, Trouble> {
    let client = pool.client().await?.without_limit();
    client
        .batch("BEGIN READ ONLY; SET LOCAL statement_timeout = 0")
        .await?;
    let row = client
        .query_opt(&pool.statements().usage, &[&from, &to])
        .await;
    client.batch("ROLLBACK").await?;
    let row = row?.ok_or_else(|| StoreError::Read("a count without a number".into()))?;
    Ok(Usage {
        sessions: unsigned(&row, "sessions")?,
        bytes: unsigned(&row, "bytes")?,
    })
}
