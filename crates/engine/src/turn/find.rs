//! Whole arrays without the name of a session. The session is found by the content of the array, or created.
//!
//! The index of arrays only proposes a session. The plan then compares the array with the array of this session, under
//! the lock of the session. So a collision or an outdated index can cost a new session, and mixes no conversations.

use palimpsest_core::array::{Identity, Incoming};
use palimpsest_core::command::{CreateSession, Rejection};
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{ContentNotLoaded, Session};

use super::sync::{Address, SyncInput, sync, sync_into};
use super::{Turn, TurnCall, TurnOutcome};
use crate::compaction::CompactionError;
use crate::fork::{self, Fork};
use crate::sessions::MissingSession;
use crate::{Engine, EngineError, creation};

/// The place in which the session of an array without a name is searched.
#[derive(Debug, Clone)]
pub struct UnnamedArray {
    /// The project.
    pub project: ProjectId,
    /// The scope within the project, a digest of the credential. Conversations of different scopes never meet.
    pub scope: Digest,
    /// The options of a new session. The search sets the scope.
    pub create: CreateSession,
}

/// Runs a turn for a whole array without the name of a session. Returns the session that took the array.
///
/// A found session takes the array only if the array repeats or continues its conversation. Otherwise the array goes to a
/// fork of it, or to a new session if both conversations share no response. Two concurrent first requests of one
/// conversation can create two sessions, each with all messages.
pub async fn sync_found<T>(
    engine: &Engine,
    unnamed: &UnnamedArray,
    call: &TurnCall,
    input: &SyncInput,
    finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<(SessionKey, Turn<T>), CompactionError> {
    let id = creation::session_id(engine, &unnamed.project, "")?;
    let new = SessionKey::new(unnamed.project.clone(), id);
    if let Some(key) = find_session(engine, unnamed, input).await? {
        let address = Address {
            identity: Identity::Inferred,
            side_requests: false,
        };
        let inferred = (input, address);
        let missing = MissingSession::Reject;
        match sync_into(engine, &key, &missing, call, inferred, &finish).await {
            Ok(Ok(done)) => return Ok((key, done)),
            // A fork is committed at once, so a dry run gets the view of a new session instead.
            Ok(Err(Rejection::ArrayForks { shared: Some(last) })) if !call.dry_run => {
                let fork = Fork {
                    source: key,
                    last: Some(last),
                    is_subagent: false,
                    title: Box::default(),
                    scope: Some(unnamed.scope),
                    request: None,
                };
                match fork::fork(engine, &new, &fork, |_| ()).await {
                    Ok(()) => {
                        return sync(engine, &new, &missing, call, input, finish).await;
                    }
                    // The session cannot be forked at this message, or not any more. The array has all its messages.
                    Err(EngineError::Rejected(_) | EngineError::SessionNotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // The conversations differ, or the session was deleted after the search.
            Ok(Err(Rejection::OtherArray { .. } | Rejection::ArrayForks { .. }))
            | Err(CompactionError::Engine(EngineError::SessionNotFound(_))) => {}
            Ok(Err(rejection)) => return Err(EngineError::Rejected(rejection).into()),
            Err(error) => return Err(error),
        }
    }
    let missing = MissingSession::Create(CreateSession {
        scope: Some(unnamed.scope),
        ..unnamed.create.clone()
    });
    sync(engine, &new, &missing, call, input, finish).await
}

/// Returns the session that probably has the beginning of an array.
pub(super) async fn find_session(
    engine: &Engine,
    unnamed: &UnnamedArray,
    input: &SyncInput,
) -> Result<Option<SessionKey>, EngineError> {
    let beginnings = match &input.returned {
        Some(returned) => returned.beginnings(&input.elements),
        None => Incoming::new(&input.elements, input.has_tools).beginnings(),
    };
    if beginnings.is_empty() {
        return Ok(None);
    }
    let log = engine.sessions.log();
    let found = log.find_by_tip(&unnamed.project, unnamed.scope, &beginnings);
    Ok(found.await?)
}
