//! Compaction before a reply. If a rejected prompt needs more space, the oldest rounds are removed. If the caller's
//! deadline is too close, the compaction continues in the background, and the reply has the current view.

use std::time::Duration;

use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::SessionKey;
use palimpsest_engine::call::{CurrentCall, Deadline};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::Service;
use super::super::compaction::{self, CompactionCall};
use super::super::overflow::{self, Overflow};
use super::done::PrepareOutcome;
use crate::errors::ServiceError;

/// The reserve for the reply itself: 500 ms, but at most a quarter of the remaining time.
const TO_ANSWER: Duration = Duration::from_millis(500);

/// The compaction to run, with the state of the call so far.
pub(super) struct ViewRequest {
    pub(super) compaction: CompactionRequest,
    pub(super) overflow: Option<Overflow>,
    pub(super) done: PrepareOutcome,
}

/// Compacts the view and returns the updated outcome. Returns `None` if the caller's time is not sufficient.
pub(super) async fn compact_inline(
    service: &Service,
    key: &SessionKey,
    wanted: ViewRequest,
    deadline: Option<Deadline>,
) -> Result<Option<PrepareOutcome>, ServiceError> {
    // Without a deadline the call can wait for the result in its own task.
    let Some(left) = deadline.map(Deadline::remaining) else {
        return make_room(service, key, wanted).await.map(Some);
    };
    let (sender, ended) = oneshot::channel();
    let (inner, name) = (service.clone(), key.clone());
    // The work runs in a task of its own, so it continues if the caller's time runs out.
    service.mutations.in_background(async move {
        let made = make_room(&inner, &name, wanted).await;
        // The receiver is gone: the caller was answered before. The next call sees the result.
        if let Err(Err(error)) = sender.send(made) {
            compaction::report(&name, Err(error));
        }
    });
    let patience = left.saturating_sub(TO_ANSWER.min(left / 4));
    match CurrentCall::wait(timeout(patience, ended)).await {
        Ok(Ok(made)) => made.map(Some),
        // The task panicked, which is logged, or the time ran out.
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

async fn make_room(
    service: &Service,
    key: &SessionKey,
    wanted: ViewRequest,
) -> Result<PrepareOutcome, ServiceError> {
    let ViewRequest {
        compaction: wanted,
        overflow,
        done,
    } = wanted;
    let trigger = wanted.trigger;
    let call = CompactionCall::waiting(wanted);
    let mut rounds = Box::pin(compaction::in_rounds(service, key, &call)).await?;
    let ended = rounds.pop();
    let earlier = rounds.iter().filter_map(CompactionOutcome::event);
    let earlier = earlier.map(|(revision, event)| (revision, event.clone()));
    let levels = done.levels.iter().cloned().chain(earlier).collect();
    // A rejected prompt must shrink by its gap. Other views are truncated only if the policy permits it.
    let dropped = match overflow.filter(|_| trigger == Trigger::PromptTooLong) {
        Some(refused) => overflow::drop_oldest(service, key, refused, done.before_tokens).await?,
        None => overflow::truncate(service, key).await?,
    };
    Ok(PrepareOutcome {
        levels,
        compacted: ended,
        dropped,
        ..done
    })
}
