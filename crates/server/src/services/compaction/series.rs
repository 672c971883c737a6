//! Compactions in several parts. A policy may limit the input of one compaction. An automatic call continues until
//! the view is under its threshold, a manual call until nothing is left.

use palimpsest_core::command::{CompactionScope, is_compaction_due};
use palimpsest_core::event::{Event, Trigger};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{Session, Strategy};

use super::{CompactionOutcome, CompactionRequest, WaitMode, compact};
use crate::errors::ServiceError;
use crate::services::Service;

/// The maximum number of compactions in one call.
const MAX_ROUNDS: usize = 100;

/// Compacts, and repeats as the policy requires. Returns all outcomes in order.
pub(in crate::services) async fn in_rounds(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
) -> Result<Vec<CompactionOutcome>, ServiceError> {
    let tell = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
    let first = Box::pin(compact(service, key, wanted, tell)).await?;
    let rest = Box::pin(rest(service, key, wanted, &first)).await?;
    Ok(std::iter::once(first).chain(rest).collect())
}

/// Runs the compactions after the first one, as the policy requires.
pub(in crate::services) async fn rest(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    first: &CompactionOutcome,
) -> Result<Vec<CompactionOutcome>, ServiceError> {
    let mut rounds = Vec::new();
    let is_whole =
        wanted.scope == CompactionScope::Whole && wanted.strategy != Some(Strategy::Delegated);
    if !is_whole || wanted.dry_run || wanted.when != WaitMode::Waited {
        return Ok(rounds);
    }
    // Only the first compaction answers the request and checks the caller's expected revision.
    let again = CompactionRequest {
        request: None,
        expected_revision: None,
        view: None,
        ..wanted.clone()
    };
    let by_hand = wanted.trigger == Trigger::Manual;
    let goes_on = |session: &Session| {
        let is_limited = session.policy().autocompact.max_input_tokens > 0;
        is_limited && (by_hand || is_compaction_due(session))
    };
    // Each compaction must have an effect. Otherwise the loop would make no progress.
    while rounds.len() + 1 < MAX_ROUNDS
        && is_compacted(rounds.last().unwrap_or(first))
        && service.sessions.read(key, goes_on).await?
    {
        let tell = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
        let next = Box::pin(compact(service, key, &again, tell)).await?;
        if matches!(next, CompactionOutcome::Skipped(_)) {
            break;
        }
        rounds.push(next);
    }
    Ok(rounds)
}

fn is_compacted(ended: &CompactionOutcome) -> bool {
    matches!(ended, CompactionOutcome::Event(event, _) if matches!(**event, Event::Compacted(_)))
}
