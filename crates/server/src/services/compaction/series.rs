//! A policy may limit how much one compaction summarises. What is left is summarised by further ones: an
//! automatic compaction goes on until the view is under its threshold, one by hand until nothing is left.

use palimpsest_core::command::{Scope, is_compaction_due};
use palimpsest_core::event::{Asked, Event};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{Session, Strategy};

use super::{Ended, Wanted, When, compact};
use crate::errors::ServiceError;
use crate::services::Service;

/// So many compactions follow each other at most; each makes the view smaller.
const MAX_ROUNDS: usize = 100;

/// Compacts, and again as long as the policy wants it. Returns what came of each, the last one last.
pub(in crate::services) async fn in_rounds(
    service: &Service,
    key: &SessionKey,
    wanted: &Wanted,
) -> Result<Vec<Ended>, ServiceError> {
    let tell = |_: &Session, ended: &Ended| Ok(ended.clone());
    let first = Box::pin(compact(service, key, wanted, tell)).await?;
    let rest = Box::pin(rest(service, key, wanted, &first)).await?;
    Ok(std::iter::once(first).chain(rest).collect())
}

/// Compacts again after a first time, as long as the policy wants it.
pub(in crate::services) async fn rest(
    service: &Service,
    key: &SessionKey,
    wanted: &Wanted,
    first: &Ended,
) -> Result<Vec<Ended>, ServiceError> {
    let mut rounds = Vec::new();
    let is_whole = wanted.scope == Scope::Whole && wanted.strategy != Some(Strategy::Delegated);
    if !is_whole || wanted.dry_run || wanted.when != When::Waited {
        return Ok(rounds);
    }
    // Only the first one answers the request, and finds the revision that its caller decided upon.
    let again = Wanted {
        request: None,
        expected_revision: None,
        view: None,
        ..wanted.clone()
    };
    let by_hand = wanted.asked == Asked::Manual;
    let goes_on = |session: &Session| {
        let is_limited = session.policy().autocompact.max_input_tokens > 0;
        is_limited && (by_hand || is_compaction_due(session))
    };
    while rounds.len() + 1 < MAX_ROUNDS
        && is_compacted(rounds.last().unwrap_or(first))
        && service.sessions.read(key, goes_on).await?
    {
        let tell = |_: &Session, ended: &Ended| Ok(ended.clone());
        let next = Box::pin(compact(service, key, &again, tell)).await?;
        if matches!(next, Ended::Skipped(_)) {
            break;
        }
        rounds.push(next);
    }
    Ok(rounds)
}

fn is_compacted(ended: &Ended) -> bool {
    matches!(ended, Ended::Event(event, _) if matches!(**event, Event::Compacted(_)))
}
