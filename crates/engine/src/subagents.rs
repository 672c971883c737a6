//! The search for the subagents of a session.

use std::collections::HashSet;

use palimpsest_core::ids::SessionKey;
use palimpsest_store::{MAX_LIST, MAX_LOOKUP_PARENTS};

use crate::call::Deadline;
use crate::{Engine, EngineError};

/// Returns the subagent sessions of a session on all levels, the deepest first.
pub async fn descendants(
    engine: &Engine,
    ancestor: &SessionKey,
) -> Result<Vec<SessionKey>, EngineError> {
    // A cycle of parents can lead back to a session, also to the first one, which is not its own descendant.
    let mut known = HashSet::from([ancestor.clone()]);
    let mut found = Vec::new();
    let mut level = vec![ancestor.clone()];
    while !level.is_empty() {
        let mut below = Vec::new();
        for parents in level.chunks(MAX_LOOKUP_PARENTS) {
            below.extend(children(engine, parents).await?);
        }
        below.retain(|key| known.insert(key.clone()));
        found.extend(below.iter().cloned());
        level = below;
    }
    found.reverse();
    Ok(found)
}

/// Returns the sessions whose parent is one of `parents`.
async fn children(engine: &Engine, parents: &[SessionKey]) -> Result<Vec<SessionKey>, EngineError> {
    let mut found: Vec<SessionKey> = Vec::new();
    loop {
        // The caller has timed out, so the remaining levels are not read.
        if Deadline::current().is_some_and(|deadline| deadline.remaining().is_zero()) {
            return Err(EngineError::DeadlineExceeded);
        }
        let log = engine.sessions.log();
        let page = log.subagents(parents, found.last(), MAX_LIST).await?;
        let is_last = page.len() < MAX_LIST;
        found.extend(page);
        if is_last {
            return Ok(found);
        }
    }
}
