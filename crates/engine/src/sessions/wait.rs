//! Waits for a change of a session.

use std::time::Duration;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::session::Session;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Sessions;
use crate::EngineError;
use crate::call::CurrentCall;

/// Interval at which a wait looks again, for changes that no commit announces: time, and other processes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Sessions {
    /// Calls `look` now, after each change and once a second, until it returns a value. Returns `None` if the deadline
    /// passes or `stop` is cancelled first. The wait does not count as work of the current call.
    pub async fn until<T>(
        &self,
        key: &SessionKey,
        deadline: Instant,
        stop: &CancellationToken,
        look: impl Fn(&Session, Timestamp) -> Option<T>,
    ) -> Result<Option<T>, EngineError> {
        // The watcher is created before the first look, so no change between the look and the wait is missed.
        let mut watcher = self.watch(key);
        loop {
            let now = self.clock().now();
            let found = self.read(key, |session| look(session, now)).await?;
            if found.is_some() || Instant::now() >= deadline || stop.is_cancelled() {
                return Ok(found);
            }
            let news = timeout_at(
                deadline.min(Instant::now() + POLL_INTERVAL),
                watcher.changed(),
            );
            CurrentCall::pause_while(async {
                tokio::select! {
                    _ = news => {}
                    () = stop.cancelled() => {}
                }
            })
            .await;
        }
    }
}
