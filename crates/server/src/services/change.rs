//! What the calls have in common that change the view: they run, or only seem to, or ran before.

use palimpsest_core::command::{Rejection, SkipReason};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_engine::sessions::{CommandOutcome, MissingSession, Transaction};

use super::Service;
use crate::errors::ServiceError;

/// What came of a change.
pub(super) enum ChangeOutcome {
    /// This event, which has this revision; of a dry run, it would.
    Event(Box<Event>, Revision),
    /// Nothing, because the view is as it was to be.
    Nothing,
    /// Nothing, because a level has nothing to do.
    Skipped(SkipReason),
}

impl ChangeOutcome {
    /// The event, and its revision.
    pub(super) fn event(&self) -> Option<(Revision, &Event)> {
        match self {
            Self::Event(event, revision) => Some((*revision, event)),
            Self::Nothing | Self::Skipped(_) => None,
        }
    }
}

/// What came of a change, or when it came.
enum ChangeResult {
    Now(ChangeOutcome),
    /// The request was answered before, by the event with this revision.
    Before(Revision),
}

impl ChangeResult {
    /// Of a transaction, after its last command.
    fn of(outcome: CommandOutcome, transaction: &Transaction<'_>) -> Self {
        match outcome {
            CommandOutcome::Answered(revision) => Self::Before(revision),
            CommandOutcome::Skipped(skip) => Self::Now(ChangeOutcome::Skipped(skip)),
            CommandOutcome::Done(None) => Self::Now(ChangeOutcome::Nothing),
            CommandOutcome::Done(Some(revision)) => Self::Now(match transaction.events().last() {
                Some(recorded) => ChangeOutcome::Event(Box::new(recorded.event.clone()), revision),
                None => ChangeOutcome::Nothing,
            }),
        }
    }
}

/// A call that changes the view of a session.
pub(super) struct ChangeCall<'a> {
    pub(super) service: &'a Service,
    pub(super) key: &'a SessionKey,
    pub(super) dry_run: bool,
}

impl ChangeCall<'_> {
    /// Runs it: `decide` ends with the command that matters, and `answer` tells what came of it, of
    /// this call or of the earlier one that this repeats. It also hears whether that is only what would
    /// happen.
    pub(super) async fn run<T>(
        &self,
        decide: impl Fn(&mut Transaction<'_>) -> Result<CommandOutcome, Rejection>,
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, ServiceError> {
        let (sessions, missing) = (&self.service.sessions, &MissingSession::Refuse);
        let decide = |transaction: &mut Transaction<'_>| {
            let outcome = decide(transaction)?;
            Ok(ChangeResult::of(outcome, transaction))
        };
        let finish = |session: &Session, done: &ChangeResult| {
            Ok(match done {
                ChangeResult::Now(happened) => Ok(answer(session, happened, self.dry_run)?),
                ChangeResult::Before(revision) => Err(*revision),
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
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, ServiceError> {
        let sessions = &self.service.sessions;
        let recorded = sessions.event(self.key, revision).await?;
        let recorded = recorded.ok_or(ServiceError::Internal {
            doing: "find the answer of an earlier call",
            source: None,
        })?;
        let happened = ChangeOutcome::Event(Box::new(recorded.event), revision);
        let tell = |session: &Session| answer(session, &happened, false);
        if let Ok(response) = sessions.read(self.key, tell).await? {
            return Ok(response);
        }
        let told = sessions.read_whole(self.key, tell).await?;
        Ok(told.map_err(Rejection::from)?)
    }
}
