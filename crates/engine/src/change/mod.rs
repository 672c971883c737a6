//! Changes of a view on request, with their common procedure: run, dry run and idempotent repeat.

mod levels;
mod restore;
mod rewind;

use palimpsest_core::command::{Rejection, SkipReason};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, Session};

pub use self::levels::Reduction;
pub use self::restore::RestoreInput;
pub use self::rewind::{RewindInput, RewindTarget};
use crate::sessions::{CommandOutcome, MissingSession, Transaction};
use crate::{Engine, EngineError};

/// The outcome of a change.
#[derive(Debug)]
pub enum ChangeOutcome {
    /// The event of the change and its revision. A dry run returns the event that would be written.
    Event(Box<Event>, Revision),
    /// No change: the view already has the requested state.
    Nothing,
    /// No change: the level has nothing to do.
    Skipped(SkipReason),
}

impl ChangeOutcome {
    /// Returns the event and its revision, if the change produced one.
    pub fn event(&self) -> Option<(Revision, &Event)> {
        match self {
            Self::Event(event, revision) => Some((*revision, event)),
            Self::Nothing | Self::Skipped(_) => None,
        }
    }

    /// Returns the reason for which the view did not change, or `None` if it changed.
    pub fn skip(&self) -> Option<SkipReason> {
        match self {
            // Staging selects spans for a later collapse and does not change the view.
            Self::Event(event, _) if matches!(**event, Event::SpansStaged(_)) => {
                Some(SkipReason::NothingEligible)
            }
            Self::Event(..) => None,
            Self::Nothing => Some(SkipReason::NothingEligible),
            Self::Skipped(skip) => Some(*skip),
        }
    }
}

/// The outcome of a change, or the revision of the original for an idempotent repeat.
pub(crate) enum ChangeResult {
    Now(ChangeOutcome),
    /// An idempotent repeat. The event with this revision holds the original outcome.
    Answered(Revision),
}

impl ChangeResult {
    /// Builds the result from the outcome of the last command in the transaction.
    pub(crate) fn of(outcome: CommandOutcome, transaction: &Transaction<'_>) -> Self {
        match outcome {
            CommandOutcome::Answered(revision) => Self::Answered(revision),
            CommandOutcome::Skipped(skip) => Self::Now(ChangeOutcome::Skipped(skip)),
            // The last event of the transaction belongs to the last command, or to an earlier one if the last command
            // made none.
            CommandOutcome::Done(_) => {
                let last = transaction.events().last().zip(transaction.session());
                Self::Now(last.map_or(ChangeOutcome::Nothing, |(recorded, session)| {
                    let event = Box::new(recorded.event.clone());
                    ChangeOutcome::Event(event, session.revision())
                }))
            }
        }
    }
}

/// One call that changes the view of a session.
#[derive(Debug)]
pub struct ChangeCall<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// The session.
    pub key: &'a SessionKey,
    /// True to commit nothing.
    pub dry_run: bool,
}

impl ChangeCall<'_> {
    /// Runs the change.
    ///
    /// `decide` must run the command that determines the outcome last. `answer` builds the reply from the outcome
    /// of this call, or of the original call for an idempotent repeat. Its third argument is true for a dry run.
    async fn run<T>(
        &self,
        decide: impl Fn(&mut Transaction<'_>) -> Result<CommandOutcome, Rejection>,
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let (sessions, missing) = (&self.engine.sessions, &MissingSession::Reject);
        let decide = |transaction: &mut Transaction<'_>| {
            let outcome = decide(transaction)?;
            Ok(ChangeResult::of(outcome, transaction))
        };
        // A repeat has no event in this transaction. Its revision leaves the transaction as an error and is read
        // below.
        let finish = |session: &Session, done: &ChangeResult| {
            Ok(match done {
                ChangeResult::Now(outcome) => Ok(answer(session, outcome, self.dry_run)?),
                ChangeResult::Answered(revision) => Err(*revision),
            })
        };
        let outcome = sessions.run(self.key, missing, self.dry_run, decide, finish);
        match outcome.await? {
            Ok(response) => Ok(response),
            Err(revision) => self.repeat_answer(revision, answer).await,
        }
    }

    /// Answers an idempotent repeat from the original event and the current session.
    async fn repeat_answer<T>(
        &self,
        revision: Revision,
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let sessions = &self.engine.sessions;
        let event = sessions.answer(self.key, revision).await?;
        let outcome = ChangeOutcome::Event(Box::new(event), revision);
        let respond = |session: &Session| answer(session, &outcome, false);
        // Most replies need no message contents, so the whole session is loaded only after the first attempt
        // failed.
        if let Ok(response) = sessions.read(self.key, respond).await? {
            return Ok(response);
        }
        let response = sessions.read_full(self.key, respond).await?;
        Ok(response.map_err(Rejection::from)?)
    }
}
