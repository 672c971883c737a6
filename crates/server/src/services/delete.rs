//! `DeleteSession`: the preconditions of a deletion, its order, and the wait for its completion.

use std::time::Duration;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_engine::EngineError;
use palimpsest_engine::call::Deadline;
use palimpsest_proto::context::v1::{DeleteSessionRequest, DeleteSessionResponse};
use tokio::time::Instant;

use super::Service;
use super::list::descendants;
use crate::convert;
use crate::errors::ServiceError;

/// The maximum time that a call waits for the removal of all data: 20 s.
const PATIENCE: Duration = Duration::from_secs(20);
/// The part of the deadline that is reserved for the reply: 250 ms.
const TO_ANSWER: Duration = Duration::from_millis(250);

pub(super) async fn delete(
    service: &Service,
    request: DeleteSessionRequest,
) -> Result<DeleteSessionResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let expected = request.expected_revision.map(Revision::new);
    let found = service.sessions.read(&key, Session::revision).await;
    match (found, expected) {
        (Err(EngineError::SessionNotFound(_)), _) => {
            return deleted_before(service, key, request.allow_missing).await;
        }
        (Err(error), _) => return Err(error.into()),
        (Ok(current), Some(expected)) if current != expected => {
            return Err(Rejection::RevisionMismatch { expected, current }.into());
        }
        (Ok(_), _) => {}
    }
    let subagents = descendants(service, &key).await?;
    // A deletion would leave the subagents without a parent, so the caller must request theirs too.
    if !subagents.is_empty() && !request.delete_subagents {
        return Err(ServiceError::session_has_subagents(&key, subagents.len()));
    }
    // The deepest subagents are deleted first. After an interruption, the parent still leads to the remaining ones.
    let all: Vec<_> = subagents.into_iter().chain([key.clone()]).collect();
    for each in &all {
        may_go(service, each).await?;
    }
    let mut deleted_sessions = 0;
    for each in &all {
        // The expected revision applies to the named session only. Each subagent has its own revision.
        let expected = expected.filter(|_| *each == key);
        let mut is_held = false;
        // A hold may be set after `may_go`, so it is checked again in the same step as the deletion.
        let check = |session: &Session| {
            is_held = !session.about().hold.is_empty();
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
        let deleted = service.sessions.delete(each, None, check).await;
        if is_held && deleted.is_err() {
            return Err(ServiceError::session_on_hold(each));
        }
        deleted_sessions += u32::from(deleted?);
    }
    Ok(DeleteSessionResponse {
        deleted_sessions,
        complete: complete(service, &all).await,
    })
}

/// Waits for a deletion that an earlier call started.
async fn deleted_before(
    service: &Service,
    key: SessionKey,
    allow_missing: bool,
) -> Result<DeleteSessionResponse, ServiceError> {
    let tombstone = service.sessions.log().tombstone(&key).await?;
    if tombstone.is_none() && !allow_missing {
        return Err(EngineError::SessionNotFound(key).into());
    }
    Ok(DeleteSessionResponse {
        deleted_sessions: 0,
        complete: complete(service, &[key]).await,
    })
}

/// Rejects the deletion of a session on hold. All sessions are checked before the first is deleted, so a hold keeps
/// the whole tree.
async fn may_go(service: &Service, key: &SessionKey) -> Result<(), ServiceError> {
    let is_held = |session: &Session| !session.about().hold.is_empty();
    match service.sessions.read(key, is_held).await {
        Ok(true) => Err(ServiceError::session_on_hold(key)),
        Ok(false) | Err(EngineError::SessionNotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if all data of the sessions is removed before the deadline. The sessions are deleted already, so an
/// error here does not fail the call: removal continues in the background.
async fn complete(service: &Service, keys: &[SessionKey]) -> bool {
    let left = Deadline::current().map_or(PATIENCE, Deadline::remaining);
    let until = Instant::now() + left.saturating_sub(TO_ANSWER).min(PATIENCE);
    for key in keys {
        let patience = until.saturating_duration_since(Instant::now());
        let removed = tokio::select! {
            removed = service.sessions.removed(key, patience) => removed,
            () = service.draining.cancelled() => Ok(false),
        };
        match removed {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::warn!(session = %key, %error, "failed to finish a deletion; it goes on in the background");
                return false;
            }
        }
    }
    true
}
