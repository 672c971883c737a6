//! What the calls have in common that change the view: they run, or only seem to, or ran before.

use palimpsest_core::command::{Rejection, Skip};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::{NotHeld, Session};
use palimpsest_engine::sessions::{Missing, Outcome, Transaction};

use super::Service;
use crate::errors::ServiceError;

/// What came of a change.
pub(super) enum Happened {
    /// This event, which has this revision; of a dry run, it would.
    Event(Box<Event>, Revision),
    /// Nothing, because the view is as it was to be.
    Nothing,
    /// Nothing, because a level has nothing to do.
    Skipped(Skip),
}

impl Happened {
    /// The event, and its revision.
    pub(super) fn event(&self) -> Option<(Revision, &Event)> {
        match self {
            Self::Event(event, revision) => Some((*revision, event)),
            Self::Nothing | Self::Skipped(_) => None,
        }
    }
}

/// What came of a change, or when it came.
enum Done {
    Now(Happened),
    /// The request was answered before, by the event with this revision.
    Before(Revision),
}

impl Done {
    /// Of a transaction, after its last command.
    fn of(outcome: Outcome, transaction: &Transaction<'_>) -> Self {
        match outcome {
            Outcome::Answered(revision) => Self::Before(revision),
            Outcome::Skipped(skip) => Self::Now(Happened::Skipped(skip)),
            Outcome::Done(None) => Self::Now(Happened::Nothing),
            Outcome::Done(Some(revision)) => Self::Now(match transaction.events().last() {
                Some(recorded) => Happened::Event(Box::new(recorded.event.clone()), revision),
                None => Happened::Nothing,
            }),
        }
    }
}

/// A call that changes the view of a session.
pub(super) struct Change<'a> {
    pub(super) service: &'a Service,
    pub(super) key: &'a SessionKey,
    pub(super) dry_run: bool,
}

impl Change<'_> {
    /// Runs it: `decide` ends with the command that matters, and `answer` tells what came of it, of
    /// this call or of the earlier one that this repeats. It also hears whether that is only what would
    /// happen.
    pub(super) async fn run<T>(
        &self,
        decide: impl Fn(&mut Transaction<'_>) -> Result<Outcome, Rejection>,
        answer: impl Fn(&Session, &Happened, bool) -> Result<T, NotHeld>,
    ) -> Result<T, ServiceError> {
        let (sessions, missing) = (&self.service.sessions, &Missing::Refuse);
        let decide = |transaction: &mut Transaction<'_>| {
            let outcome = decide(transaction)?;
            Ok(Done::of(outcome, transaction))
        };
        let finish = |session: &Session, done: &Done| {
            Ok(match done {
                Done::Now(happened) => Ok(answer(session, happened, self.dry_run)?),
                Done::Before(revision) => Err(*revision),
            })
        };
        let outcome = sessions.run(self.key, missing, self.dry_run, decide, finish);
        match outcome.await? {
            Ok(response) => Ok(response),
            Err(revision) => self.again(revision, answer).await,
        }
    }

    /// The answer of an earlier call: what it did, and the session as it is now.
    async fn again<T>(
        &self,
        revision: Revision,
        answer: impl Fn(&Session, &Happened, bool) -> Result<T, NotHeld>,
    ) -> Result<T, ServiceError> {
        let sessions = &self.service.sessions;
        let recorded = sessions.event(self.key, revision).await?;
        let recorded = recorded.ok_or(ServiceError::Internal {
            doing: "find the answer of an earlier call",
            source: None,
        })?;
        let happened = Happened::Event(Box::new(recorded.event), revision);
        let tell = |session: &Session| answer(session, &happened, false);
        if let Ok(response) = sessions.read(self.key, tell).await? {
            return Ok(response);
        }
        let told = sessions.read_whole(self.key, tell).await?;
        Ok(told.map_err(Rejection::from)?)
    }
}
