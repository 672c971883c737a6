//! Removes the remaining data of deleted sessions, including deletions that an ended process left unfinished.

use std::time::Duration;

use crate::EngineError;
use palimpsest_store::{MAX_LIST, error_chain};
use tokio::time::{sleep, timeout};

use super::tasks::Maintenance;

/// The maximum interval between passes without a notification.
const REMOVAL_INTERVAL: Duration = Duration::from_mins(1);
/// The retry delay if some tombstones remain.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum wait for one session before the next one is tried.
const MAX_WAIT: Duration = Duration::from_millis(100);

impl Maintenance {
    pub(super) async fn remove(&self) {
        let deletions = self.engine.sessions.deletions();
        loop {
            // An error counts as one remaining tombstone, so that the pass is retried soon.
            let left = self.remove_all().await.unwrap_or_else(|error| {
                self.stats.count_failed();
                tracing::warn!(error = %error_chain(&error), "failed to remove deleted sessions; retrying");
                1
            });
            self.stats.is_removing(left);
            if left > 0 {
                sleep(RETRY_DELAY).await;
            } else {
                // A deletion in this process wakes the task. The timeout finds deletions by other processes.
                let _ = timeout(REMOVAL_INTERVAL, deletions.notified()).await;
            }
        }
    }

    /// Processes all tombstones once. Returns the number of remaining ones.
    async fn remove_all(&self) -> Result<usize, EngineError> {
        let (mut left, mut after) = (0, None);
        let tempo = self.duty_cycle();
        loop {
            let page = self
                .engine
                .sessions
                .log()
                .tombstones(after.as_ref(), MAX_LIST)
                .await?;
            let Some(last) = page.last() else {
                return Ok(left);
            };
            after = Some(last.key.clone());
            for tombstone in &page {
                let removed = self
                    .engine
                    .sessions
                    .finish_removal(&tombstone.key, MAX_WAIT);
                left += usize::from(!tempo.work(removed).await?);
            }
        }
    }
}
