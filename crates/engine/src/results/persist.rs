//! The decision about a result before its message is appended.

use palimpsest_core::command::{
    Command, DecidePersist, PersistOutcome, Rejection, current_outcome,
};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;

use crate::sessions::{CommandOutcome, MissingSession, Transaction};
use crate::{Engine, EngineError};

/// The outcome of the command.
enum PersistResult {
    /// The decision, made now or earlier.
    Now(PersistOutcome),
    /// An idempotent repeat. The event with this revision holds the decision.
    Before(Revision),
}

/// Decides about a result. `answer` builds the reply from the decision.
pub async fn persist<T>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    (offering, dry_run): (&DecidePersist, bool),
    answer: impl Fn(&Session, &PersistOutcome) -> T,
) -> Result<T, EngineError> {
    let decide = |transaction: &mut Transaction<'_>| decide(transaction, offering);
    let finish = |session: &Session, done: &PersistResult| {
        Ok(match done {
            PersistResult::Now(outcome) => Ok(answer(session, outcome)),
            PersistResult::Before(revision) => Err(*revision),
        })
    };
    let sessions = &engine.sessions;
    let outcome = sessions.run(key, missing, dry_run, decide, finish).await?;
    let revision = match outcome {
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

fn decide(
    transaction: &mut Transaction<'_>,
    offering: &DecidePersist,
) -> Result<PersistResult, Rejection> {
    let outcome = transaction.run(Command::DecidePersist(offering.clone()))?;
    let last = transaction.events().last().map(|recorded| &recorded.event);
    match (outcome, last) {
        (CommandOutcome::Answered(revision), _) => Ok(PersistResult::Before(revision)),
        (CommandOutcome::Done(Some(_)), Some(Event::PersistDecided(event))) => {
            Ok(PersistResult::Now(PersistOutcome::from(&event.decision)))
        }
        // No event was needed: the result had been decided about before.
        _ => {
            let session = transaction.session().ok_or(Rejection::ContentNotLoaded)?;
            Ok(PersistResult::Now(current_outcome(session, offering)?))
        }
    }
}
