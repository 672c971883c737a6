//! Creation of sessions. A repeated call finds the session of the first one.

use palimpsest_core::command::{CreateSession, Rejection};
use palimpsest_core::ids::{ProjectId, Revision, SessionId, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{RequestStamp, Session};
use uuid::Builder;

use crate::sessions::{MissingSession, Transaction, warm_up};
use crate::{Engine, EngineError};

/// Creates a session. `finish` builds the reply from the new session, or for an idempotent repeat from the current
/// state of the session that the original call created.
pub async fn create<T>(
    engine: &Engine,
    key: &SessionKey,
    create: CreateSession,
    finish: impl Fn(&Session) -> T,
) -> Result<T, EngineError> {
    let stamp = create.request.clone();
    let decide = |transaction: &mut Transaction<'_>| is_answer(transaction, stamp.as_ref());
    let finish = |session: &Session, is_answer: &bool| {
        Ok(is_answer.then(|| (finish(session), session.counter())))
    };
    let missing = MissingSession::Create(create);
    let created = engine.sessions.write(key, &missing, decide, finish).await?;
    let (answer, counter) = created.ok_or_else(|| EngineError::SessionExists(key.clone()))?;
    // The estimator's vocabulary is loaded now, so that the first append does not wait for it.
    warm_up(counter).await;
    Ok(answer)
}

/// Returns an id for a session without a given name. The id is derived from the request id if there is one, so a
/// retry finds the session of the first attempt.
pub fn session_id(
    engine: &Engine,
    project: &ProjectId,
    request_id: &str,
) -> Result<SessionId, EngineError> {
    let uuid = if request_id.is_empty() {
        engine.ids.uuid()
    } else {
        // The separator cannot occur in a project name, so two pairs never give the same text.
        let digest = Digest::of_bytes(format!("{project}\0{request_id}").as_bytes());
        Builder::from_custom_bytes(*digest.as_bytes()).into_uuid()
    };
    let id = SessionId::new(&uuid.to_string());
    id.map_err(|error| EngineError::internal("name a session", error))
}

/// Returns true if this call, or an earlier one with its request id, created the session.
pub(crate) fn is_answer(
    transaction: &Transaction<'_>,
    stamp: Option<&RequestStamp>,
) -> Result<bool, Rejection> {
    if transaction.revision_before() == Revision::ZERO {
        return Ok(true);
    }
    // The session exists already. The call succeeds only if it repeats the creation.
    let earlier = stamp
        .zip(transaction.session())
        .and_then(|(stamp, session)| {
            let now = session.info().modified;
            Some((stamp, session.requests().find(stamp, now)?))
        });
    match earlier {
        Some((stamp, found)) if stamp.digest != found.digest => Err(Rejection::RequestConflict {
            request_id: stamp.id.clone(),
            stored: found.digest,
            given: stamp.digest,
        }),
        earlier => Ok(earlier.is_some()),
    }
}
