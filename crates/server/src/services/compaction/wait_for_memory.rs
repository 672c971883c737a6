//! Waits for a running update of session memory before a compaction. An update that is almost written saves a
//! request to a model and covers more than the version before it.

use std::time::Duration;

use palimpsest_core::command::memory_runs;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_engine::call::CurrentCall;
use tokio::time::{Instant, timeout_at};

use super::super::Service;
use crate::errors::ServiceError;

/// The interval of the check whether the running update counts as orphaned: 1 s.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Returns when no update is running, after the policy's `session_memory.wait`, or at shutdown.
pub(super) async fn wait_for_memory(
    service: &Service,
    key: &SessionKey,
) -> Result<(), ServiceError> {
    // The watcher is created before the first check, so no change between the check and the wait is missed.
    let mut watcher = service.sessions.watch(key);
    let began = Instant::now();
    loop {
        let now = service.sessions.clock().now();
        let look = |session: &Session| {
            let policy = session.policy();
            let may_help = policy.autocompact.session_memory_first;
            let wait = Duration::from_millis(policy.session_memory.wait.get());
            (may_help && memory_runs(session, now), wait)
        };
        let (runs, wait) = service.sessions.read(key, look).await?;
        let until = began + wait;
        if !runs || Instant::now() >= until || service.draining.is_cancelled() {
            return Ok(());
        }
        let news = timeout_at(until.min(Instant::now() + LOOK_AGAIN), watcher.changed());
        let waited = async {
            tokio::select! {
                _ = news => {}
                () = service.draining.cancelled() => {}
            }
        };
        // The call does not count as load while it waits.
        CurrentCall::wait(waited).await;
    }
}
