//! What projects hold: counted over their sessions' rows, because no row is shared between sessions. A count is
//! used again for as long as counting is worth it, and a minute at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palimpsest_core::ids::ProjectId;
use tokio::time::Instant;

use super::names;
use super::pool::Pool;
use super::read::unsigned;
use super::retry::{Budget, retry};
use crate::{StoreError, Usage};

/// A count is used again for so many times as long as it took.
const WORTH: u32 = 20;
/// So many projects' counts are remembered; beyond that those are dropped that are of no use any more.
const REMEMBERED: usize = 10_000;

type Count = Arc<tokio::sync::Mutex<Option<(Instant, Usage)>>>;

/// The counts that were made.
#[derive(Debug)]
pub(super) struct Counted {
    longest: Duration,
    counts: Mutex<HashMap<Option<ProjectId>, Count>>,
}

impl Counted {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            counts: Mutex::default(),
        }
    }

    /// See [`crate::SessionLog::usage`]. Who comes while a count is made waits for it.
    pub(super) async fn usage(
        &self,
        pool: &Pool,
        budget: Budget,
        project: Option<&ProjectId>,
    ) -> Result<Usage, StoreError> {
        let count = self.count(project);
        let mut known = count.lock().await;
        if let Some((until, usage)) = *known
            && Instant::now() < until
        {
            return Ok(usage);
        }
        let (from, to) = names::range(project);
        let begun = Instant::now();
        let row = retry!(budget, _, {
            let client = pool.client().await?;
            let statement = &pool.statements().usage;
            client.query_opt(statement, &[&from, &to]).await
        })?;
        let row = row.ok_or_else(|| StoreError::Read("a count without a number".into()))?;
        let usage = Usage {
            sessions: unsigned(&row, "sessions")?,
            bytes: unsigned(&row, "bytes")?,
        };
        let good_for = (begun.elapsed() * WORTH).min(self.longest);
        *known = Some((Instant::now() + good_for, usage));
        Ok(usage)
    }

    fn count(&self, project: Option<&ProjectId>) -> Count {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= REMEMBERED {
            let now = Instant::now();
            counts.retain(|_, count| {
                let count = count.try_lock();
                count.is_err() || count.is_ok_and(|it| it.is_some_and(|(until, _)| now < until))
            });
        }
        Arc::clone(counts.entry(project.cloned()).or_default())
    }
}
