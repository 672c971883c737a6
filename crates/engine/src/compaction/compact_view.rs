//! Compaction while a caller waits for a view. If a rejected prompt needs more space, the oldest rounds are removed. If
//! the caller's deadline is too close, the compaction continues in the background.

use std::time::Duration;

use palimpsest_core::command::{DropRule, SkipReason};
use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest};
use palimpsest_core::event::{CompactionFailureReason, Event, Trigger};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{CompactionCall, CompactionError, compact, compact_repeatedly, refusal, report};
use crate::Engine;
use crate::call::{CurrentCall, Deadline, initiated};

/// The reserve for the reply itself: 500 ms, but at most a quarter of the remaining time.
const REPLY_RESERVE: Duration = Duration::from_millis(500);

/// A prompt that the provider rejected as too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedPrompt {
    /// The counted size of the rejected view in tokens.
    pub view_tokens: u64,
    /// The number of tokens above the limit, if known.
    pub gap_tokens: Option<u64>,
}

/// The outcome of a compaction for a view.
#[derive(Debug)]
pub struct ViewCompaction {
    /// The compactions in order. The policy can split one into several.
    pub rounds: Vec<CompactionOutcome>,
    /// The removal of the oldest rounds.
    pub dropped: DropOutcome,
}

/// The outcome of a removal of the oldest rounds.
#[derive(Debug)]
pub enum DropOutcome {
    /// Rounds were removed.
    Dropped(Revision, Box<Event>),
    /// The view is small enough, or a hook vetoed the compaction.
    NotNeeded,
    /// Nothing can be removed from a rejected prompt.
    NothingLeft,
}

/// Compacts a view. Returns `None` if the time until the deadline is not sufficient. The compaction then continues in
/// the background.
pub async fn compact_view(
    engine: &Engine,
    key: &SessionKey,
    request: CompactionRequest,
    rejected: Option<RejectedPrompt>,
    deadline: Option<Deadline>,
) -> Result<Option<ViewCompaction>, CompactionError> {
    // Without a deadline the call can wait for the result in its own task.
    let Some(left) = deadline.map(Deadline::remaining) else {
        let made = compact_and_drop(engine, key, request, rejected);
        return made.await.map(Some);
    };
    let (sender, ended) = oneshot::channel();
    let (inner, name) = (engine.clone(), key.clone());
    // The work runs in a task of its own, so it continues if the caller's time runs out.
    // The spawn drops the deadline of the call. Models and hooks therefore get the time of the compaction.
    let compacting = async move {
        let made = compact_and_drop(&inner, &name, request, rejected).await;
        // The receiver is gone: the caller was answered before. The next call sees the result.
        if let Err(Err(error)) = sender.send(made) {
            report(&name, Err(error));
        }
    };
    engine.background.in_background(initiated(compacting));
    let max_wait = left.saturating_sub(REPLY_RESERVE.min(left / 4));
    match CurrentCall::pause_while(timeout(max_wait, ended)).await {
        Ok(Ok(made)) => made.map(Some),
        // The task panicked, which is logged, or the time ran out.
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

async fn compact_and_drop(
    engine: &Engine,
    key: &SessionKey,
    request: CompactionRequest,
    rejected: Option<RejectedPrompt>,
) -> Result<ViewCompaction, CompactionError> {
    let call = CompactionCall::waiting(request);
    let rounds = Box::pin(compact_repeatedly(engine, key, &call)).await?;
    // A veto also forbids the removal without a summary. Without the removal, a rejected prompt stays too long, so the
    // caller gets the veto.
    if let Some(veto) = rounds.iter().find_map(veto_of) {
        let dropped = DropOutcome::NotNeeded;
        return match rejected {
            Some(_) => Err(veto),
            None => Ok(ViewCompaction { rounds, dropped }),
        };
    }
    // The oldest rounds stay until the caller's model has summarized them.
    let awaits_caller = matches!(
        rounds.last(),
        Some(
            CompactionOutcome::Running(_) | CompactionOutcome::Skipped(SkipReason::AlreadyRunning)
        )
    );
    if call.request.is_delegated && awaits_caller {
        let dropped = DropOutcome::NotNeeded;
        return Ok(ViewCompaction { rounds, dropped });
    }
    // A rejected prompt must shrink by its gap. Other views are truncated only if the policy permits it.
    let request = match rejected {
        Some(RejectedPrompt {
            view_tokens,
            gap_tokens,
        }) => {
            let rule = DropRule::Rejected {
                view_tokens,
                gap_tokens,
            };
            CompactionRequest::drop_oldest(Trigger::PromptTooLong, rule)
        }
        None => CompactionRequest::drop_oldest(Trigger::Auto, DropRule::Critical),
    };
    // A view that became smaller may fit, because the provider counts other tokens than this server.
    let is_reduced = rounds
        .iter()
        .any(|round| matches!(round.event(), Some((_, Event::CompactionFinished(_)))));
    let render = |_: &Session, ended: &CompactionOutcome| {
        Ok(match ended {
            CompactionOutcome::Event(event, revision) => {
                DropOutcome::Dropped(*revision, event.clone())
            }
            CompactionOutcome::Skipped(SkipReason::UnderThreshold) => DropOutcome::NotNeeded,
            _ if rejected.is_none() || is_reduced => DropOutcome::NotNeeded,
            _ => DropOutcome::NothingLeft,
        })
    };
    let drop_oldest = CompactionCall::waiting(request);
    let dropped = Box::pin(compact(engine, key, &drop_oldest, render)).await?;
    Ok(ViewCompaction { rounds, dropped })
}

/// Returns the error for a compaction that a hook vetoed.
fn veto_of(outcome: &CompactionOutcome) -> Option<CompactionError> {
    match outcome.event() {
        Some((_, Event::CompactionFailed(failed)))
            if failed.reason == CompactionFailureReason::HookVetoed =>
        {
            refusal(&failed.hooks)
        }
        _ => None,
    }
}
