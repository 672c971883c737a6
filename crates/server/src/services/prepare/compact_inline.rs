//! Room in the window before a reply: the view is compacted; and when a refused prompt needs more than that,
//! its oldest rounds leave. Who cannot wait so long gets the view as it is, and what was begun goes on.

use std::time::Duration;

use palimpsest_core::event::Trigger;
use palimpsest_core::ids::SessionKey;
use palimpsest_engine::call::{CurrentCall, Deadline};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::Service;
use super::super::compaction::{self, CompactionOutcome};
use super::super::overflow::{self, Overflow};
use super::done::PrepareOutcome;
use crate::errors::ServiceError;

/// What is left of a call's time for the view itself, at least; of a short one a quarter.
const TO_ANSWER: Duration = Duration::from_millis(500);

/// What is wanted: for whom, and what had come of the call before.
pub(super) struct ViewRequest {
    pub(super) compaction: compaction::CompactionRequest,
    pub(super) overflow: Option<Overflow>,
    pub(super) done: PrepareOutcome,
}

/// Makes room, and says what came of it; nothing when the caller's time does not last.
pub(super) async fn compact_inline(
    service: &Service,
    key: &SessionKey,
    wanted: ViewRequest,
    deadline: Option<Deadline>,
) -> Result<Option<PrepareOutcome>, ServiceError> {
    let Some(left) = deadline.map(Deadline::remaining) else {
        return make_room(service, key, wanted).await.map(Some);
    };
    let (sender, ended) = oneshot::channel();
    let (inner, name) = (service.clone(), key.clone());
    service.mutations.in_background(async move {
        let made = make_room(&inner, &name, wanted).await;
        // Whoever had no more time learns of it with the next call.
        if let Err(Err(error)) = sender.send(made) {
            compaction::report(&name, Err(error));
        }
    });
    let patience = left.saturating_sub(TO_ANSWER.min(left / 4));
    match CurrentCall::wait(timeout(patience, ended)).await {
        Ok(Ok(made)) => made.map(Some),
        // It panicked, which was told, or there is no more time.
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
    let mut rounds = Box::pin(compaction::in_rounds(service, key, &wanted)).await?;
    let ended = rounds.pop();
    let earlier = rounds.into_iter().filter_map(|ended| match ended {
        CompactionOutcome::Event(event, revision) => Some((revision, *event)),
        CompactionOutcome::Skipped(_)
        | CompactionOutcome::Before(_)
        | CompactionOutcome::Running(_) => None,
    });
    let levels = done.levels.iter().cloned().chain(earlier).collect();
    let dropped = match overflow.filter(|_| wanted.trigger == Trigger::PromptTooLong) {
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
