//! Deleted sessions, to their last byte: what a call did not wait for, and what a process left that
//! ended.

use std::time::Duration;

use palimpsest_engine::sessions::SessionsError;
use palimpsest_store::{MAX_LIST, error_chain};
use tokio::time::{sleep, timeout};

use super::Upkeep;

/// How often it is looked for tombstones when nobody says that there is one.
const EVERY: Duration = Duration::from_mins(1);
/// How long it waits when something stands in the way.
const RETRY: Duration = Duration::from_secs(1);
/// How long it waits for one session before it looks at the next.
const PATIENCE: Duration = Duration::from_millis(100);

impl Upkeep {
    pub(super) async fn remove(&self) {
        let deletions = self.sessions.deletions();
        loop {
            let left = self.remove_all().await.unwrap_or_else(|error| {
                self.stats.failed();
                tracing::warn!(error = %error_chain(&error), "failed to remove deleted sessions; it is tried again");
                1
            });
            self.stats.is_removing(left);
            if left > 0 {
                sleep(RETRY).await;
            } else {
                // A deletion that comes meanwhile wakes it; the time is for what others deleted.
                let _ = timeout(EVERY, deletions.notified()).await;
            }
        }
    }

    /// Goes through all tombstones once, and says how many stay.
    async fn remove_all(&self) -> Result<usize, SessionsError> {
        let (mut left, mut after) = (0, None);
        let tempo = self.pace();
        loop {
            let page = self
                .sessions
                .log()
                .tombstones(after.as_ref(), MAX_LIST)
                .await?;
            let Some(last) = page.last() else {
                return Ok(left);
            };
            after = Some(last.key.clone());
            for tombstone in &page {
                let removed = self.sessions.removed(&tombstone.key, PATIENCE);
                left += usize::from(!tempo.work(removed).await?);
            }
        }
    }
}
