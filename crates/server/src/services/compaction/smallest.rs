//! The choice between session memory and another summary in a manual compaction. Session memory that is behind
//! keeps all later messages word for word, so it may free little space.

use palimpsest_core::command::CompactionScope;
use palimpsest_core::event::{Event, Trigger};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{Session, Strategy};

use super::{CompactionOutcome, CompactionRequest, compact, wait_for_memory};
use crate::errors::ServiceError;
use crate::services::Service;

/// Returns the request, with `skips_memory` set if an extractive summary leaves a much smaller view.
///
/// The difference must exceed the recent messages that the policy lets session memory keep word for word. A model's
/// summary is about as long as an extractive one, so the comparison needs no model.
pub(super) async fn choose(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
) -> Result<CompactionRequest, ServiceError> {
    let mut chosen = wanted.clone();
    let has_choice = wanted.trigger == Trigger::Manual && wanted.strategy.is_none();
    if !has_choice || !wanted.takes_memory() {
        return Ok(chosen);
    }
    let look = |session: &Session| {
        let word_for_word = u64::from(session.policy().session_memory.keep_max_tokens);
        let first = session.policy().autocompact.session_memory_first;
        let is_there = first && session.memory().written().is_some();
        is_there.then_some(word_for_word)
    };
    let Some(word_for_word) = service.sessions.read(key, look).await? else {
        return Ok(chosen);
    };
    if !wanted.dry_run {
        wait_for_memory::wait_for_memory(service, key).await?;
    }
    let memory = foreseen(service, key, wanted, Strategy::SessionMemory).await?;
    let structure = foreseen(service, key, wanted, Strategy::Extractive).await?;
    chosen.skips_memory = match (memory, structure) {
        (Some(memory), Some(structure)) => structure.saturating_add(word_for_word) < memory,
        // Without an extractive summary to compare, session memory is used if it can act.
        (memory, _) => memory.is_none(),
    };
    Ok(chosen)
}

/// Returns the tokens that a strategy would leave, or `None` if it cannot act. Runs as a dry run.
async fn foreseen(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    strategy: Strategy,
) -> Result<Option<u64>, ServiceError> {
    let rehearsal = CompactionRequest {
        strategy: Some(strategy),
        scope: CompactionScope::Whole,
        // With the caller's request id, the dry run could be answered as a repeat.
        request: None,
        expected_revision: None,
        dry_run: true,
        ..wanted.clone()
    };
    let tell = |_: &Session, ended: &CompactionOutcome| {
        Ok(match ended {
            CompactionOutcome::Event(event, _) => match &**event {
                Event::Compacted(compacted) => Some(compacted.after_tokens),
                _ => None,
            },
            _ => None,
        })
    };
    Box::pin(compact(service, key, &rehearsal, tell)).await
}
