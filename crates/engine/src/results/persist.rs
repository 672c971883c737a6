//! The decision about a result before its message is appended.

use palimpsest_core::command::{
    Command, DecidePersist, PersistOutcome, Rejection, current_outcome,
};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;

use crate::sessions::{CommandOutcome, MissingSession, Transaction};
use crate::{Engine, EngineError};

/// Decides about a result. `answer` builds the reply from the decision.
pub async fn persist<T>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    (offering, dry_run): (&DecidePersist, bool),
    answer: impl Fn(&Session, &PersistOutcome) -> T,
) -> Result<T, EngineError> {
    let decide = |transaction: &mut Transaction<'_>| decide(transaction, offering);
    let finish = |session: &Session, done: &Result<PersistOutcome, Revision>| {
        Ok(done
            .as_ref()
            .map(|outcome| answer(session, outcome))
            .map_err(|revision| *revision))
    };
    let sessions = &engine.sessions;
    let revision = match sessions.run(key, missing, dry_run, decide, finish).await? {
        Ok(reply) => return Ok(reply),
        Err(revision) => revision,
    };
    // The repeat answers from its event: the session may have changed since the decision.
    let Event::PersistDecided(event) = sessions.answer(key, revision).await? else {
        return Err(EngineError::Internal {
            doing: "find the answer of an earlier call",
            source: None,
        });
    };
    let outcome = PersistOutcome::from(&event.decision);
    sessions
        .read(key, |session: &Session| answer(session, &outcome))
        .await
}

/// Runs the command. Returns the decision, made now or earlier, or for an idempotent repeat the revision of the event
/// that holds the decision.
fn decide(
    transaction: &mut Transaction<'_>,
    offering: &DecidePersist,
) -> Result<Result<PersistOutcome, Revision>, Rejection> {
    let outcome = transaction.run(Command::DecidePersist(offering.clone()))?;
    let last = transaction.events().last().map(|recorded| &recorded.event);
    match (outcome, last) {
        (CommandOutcome::Answered(revision), _) => Ok(Err(revision)),
        (CommandOutcome::Done(Some(_)), Some(Event::PersistDecided(event))) => {
            Ok(Ok(PersistOutcome::from(&event.decision)))
        }
        // No event was needed: the result had been decided about before.
        _ => {
            let session = transaction.session().ok_or(Rejection::ContentNotLoaded)?;
            Ok(Ok(current_outcome(session, offering)?))
        }
    }
}
