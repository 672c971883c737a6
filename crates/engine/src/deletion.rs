//! Deletion of a session and its subagents: the preconditions, the order, and the wait for the removal of all data.

use std::time::Duration;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use tokio::time::Instant;

use crate::call::Deadline;
use crate::subagents::descendants;
use crate::{Engine, EngineError};

/// The maximum time that a call waits for the removal of all data: 20 s.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The part of the deadline that is reserved for the reply: 250 ms.
const REPLY_RESERVE: Duration = Duration::from_millis(250);

/// The conditions of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// The revision that the caller expects. `None` accepts any.
    pub expected: Option<Revision>,
    /// True to accept a session that does not exist.
    pub allow_missing: bool,
    /// True to delete the subagent sessions as well. Otherwise their existence is an error.
    pub with_subagents: bool,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted {
    /// The number of deleted sessions.
    pub sessions: u32,
    /// True if all data is removed. Otherwise the removal continues in the background.
    pub is_complete: bool,
}

/// Deletes a session.
pub async fn delete(
    engine: &Engine,
    key: &SessionKey,
    deletion: Deletion,
) -> Result<Deleted, EngineError> {
    let expected = deletion.expected;
    let found = engine.sessions.read(key, Session::revision).await;
    match (found, expected) {
        (Err(EngineError::SessionNotFound(_)), _) => {
            return deleted_before(engine, key, deletion.allow_missing).await;
        }
        (Err(error), _) => return Err(error),
        (Ok(current), Some(expected)) if current != expected => {
            return Err(Rejection::RevisionMismatch { expected, current }.into());
        }
        (Ok(_), _) => {}
    }
    let subagents = descendants(engine, key).await?;
    // A deletion would leave the subagents without a parent, so the caller must request theirs too.
    if !subagents.is_empty() && !deletion.with_subagents {
        return Err(EngineError::HasSubagents {
            session: key.clone(),
            subagents: subagents.len(),
        });
    }
    // The deepest subagents are deleted first. After an interruption, the parent still leads to the remaining ones.
    let all: Vec<_> = subagents.into_iter().chain([key.clone()]).collect();
    for each in &all {
        check_hold(engine, each).await?;
    }
    let mut sessions = 0;
    for each in &all {
        // The expected revision applies to the named session only. Each subagent has its own revision.
        let expected = expected.filter(|_| each == key);
        let mut is_held = false;
        // A hold may be set after `check_hold`, so it is checked again in the same step as the deletion.
        let check = |session: &Session| {
            is_held = !session.info().hold.is_empty();
            match expected {
                Some(expected) if session.revision() != expected => {
                    Err(Rejection::RevisionMismatch {
                        expected,
                        current: session.revision(),
                    })
                }
                _ if is_held => Err(Rejection::invalid("session", "is on hold")),
                _ => Ok(()),
            }
        };
        let deleted = engine.sessions.delete(each, None, check).await;
        if is_held && deleted.is_err() {
            return Err(EngineError::SessionOnHold(each.clone()));
        }
        sessions += u32::from(deleted?);
    }
    Ok(Deleted {
        sessions,
        is_complete: is_complete(engine, &all).await,
    })
}

/// Waits for a deletion that an earlier call started.
async fn deleted_before(
    engine: &Engine,
    key: &SessionKey,
    allow_missing: bool,
) -> Result<Deleted, EngineError> {
    let tombstone = engine.sessions.log().tombstone(key).await?;
    if tombstone.is_none() && !allow_missing {
        return Err(EngineError::SessionNotFound(key.clone()));
    }
    Ok(Deleted {
        sessions: 0,
        is_complete: is_complete(engine, std::slice::from_ref(key)).await,
    })
}

/// Rejects the deletion of a session on hold. All sessions are checked before the first is deleted, so a hold keeps
/// the whole tree.
async fn check_hold(engine: &Engine, key: &SessionKey) -> Result<(), EngineError> {
    let is_held = |session: &Session| !session.info().hold.is_empty();
    match engine.sessions.read(key, is_held).await {
        Ok(true) => Err(EngineError::SessionOnHold(key.clone())),
        Ok(false) | Err(EngineError::SessionNotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns true if all data of the sessions is removed before the deadline. The sessions are deleted already, so an
/// error here does not fail the call: removal continues in the background.
async fn is_complete(engine: &Engine, keys: &[SessionKey]) -> bool {
    let left = Deadline::current().map_or(REMOVAL_TIMEOUT, Deadline::remaining);
    let until = Instant::now() + left.saturating_sub(REPLY_RESERVE).min(REMOVAL_TIMEOUT);
    for key in keys {
        let max_wait = until.saturating_duration_since(Instant::now());
        let removed = tokio::select! {
            removed = engine.sessions.finish_removal(key, max_wait) => removed,
            // A drain does not wait for files to be removed. The tombstone stays, and another process continues.
            () = engine.draining.cancelled() => Ok(false),
        };
        match removed {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::warn!(session = %key, %error, "failed to finish a deletion; a background task retries it");
                return false;
            }
        }
    }
    true
}
