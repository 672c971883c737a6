//! `GetSessionMemory`: the running summary of a session, and how well it covers the session.

use std::time::Duration;

use palimpsest_core::command::{memory_due, memory_runs};
use palimpsest_core::session::Session;
use palimpsest_engine::call::{CurrentCall, Deadline};
use palimpsest_proto::context::v1::{GetSessionMemoryRequest, GetSessionMemoryResponse};
use tokio::time::{Instant, timeout_at};

use super::Service;
use crate::convert::{self, MemoryView};
use crate::errors::ServiceError;

/// The longest that a caller may wait.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// How long before the call's own deadline it is answered, so that the answer still arrives.
const MARGIN: Duration = Duration::from_millis(50);
/// How often it is looked whether a run counts as dead by now.
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
    // First the watcher: nothing can happen unseen between a look and the waiting.
    let mut watcher = service.sessions.watch(&key);
    loop {
        let now = service.sessions.clock().now();
        let look = |session: &Session| {
            // One that is due now is about to run, where somebody runs it.
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
