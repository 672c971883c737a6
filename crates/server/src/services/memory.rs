//! `GetSessionMemory`: returns session memory and its coverage.

use std::time::Duration;

use palimpsest_core::command::{memory_due, memory_runs};
use palimpsest_core::session::Session;
use palimpsest_engine::call::{CurrentCall, Deadline};
use palimpsest_proto::context::v1::{GetSessionMemoryRequest, GetSessionMemoryResponse};
use tokio::time::{Instant, timeout_at};

use super::Service;
use crate::convert::{self, MemoryView};
use crate::errors::ServiceError;

/// The maximum wait that a caller may request: 1 min.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// The time before the deadline at which the call is answered, so that the reply arrives in time: 50 ms.
const MARGIN: Duration = Duration::from_millis(50);
/// The interval of the check whether the running update counts as orphaned: 1 s.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn get(
    service: &Service,
    request: GetSessionMemoryRequest,
    deadline: Option<Deadline>,
) -> Result<GetSessionMemoryResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let wait = convert::duration_up_to(request.wait, "wait", MAX_WAIT)?.unwrap_or_default();
    let until = deadline.map(|deadline| deadline.remaining().saturating_sub(MARGIN));
    let until = Instant::now() + until.map_or(wait, |until| until.min(wait));
    // The watcher is created before the first check, so no change between the check and the wait is missed.
    let mut watcher = service.sessions.watch(&key);
    loop {
        let now = service.sessions.clock().now();
        let look = |session: &Session| {
            // With a worker in this process, an update that is due starts soon.
            let is_due = memory_due(session, now).is_some_and(|due| due <= now);
            let runs = memory_runs(session, now) || (service.has_worker && is_due);
            (MemoryView::of(session, now), runs)
        };
        let (view, runs) = service.sessions.read(&key, look).await?;
        if !runs || Instant::now() >= until || service.draining.is_cancelled() {
            let (memory, unchanged) = view.tell(&key, request.known_version);
            return Ok(GetSessionMemoryResponse {
                memory: Some(memory),
                unchanged,
            });
        }
        let news = timeout_at(until.min(Instant::now() + LOOK_AGAIN), watcher.changed());
        let waited = async {
            tokio::select! {
                _ = news => {}
                () = service.draining.cancelled() => {}
            }
        };
        CurrentCall::wait(waited).await;
    }
}
