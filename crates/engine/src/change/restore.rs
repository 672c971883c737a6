//! Undoes view-changing events.

use palimpsest_core::command::{Command, RestoreContext};
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{ContentNotLoaded, RequestStamp, Session};
use palimpsest_store::crash_point;

use super::{ChangeCall, ChangeOutcome};
use crate::EngineError;

/// The validated options of an undo.
#[derive(Debug, Clone)]
pub struct RestoreInput {
    /// The revision whose view returns.
    pub revision: Revision,
    /// True to accept a view over the block threshold.
    pub force: bool,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

impl ChangeCall<'_> {
    /// Undoes the view-changing events after a revision.
    pub async fn restore<T>(
        &self,
        input: RestoreInput,
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let RestoreInput {
            revision,
            force,
            expected_revision,
            request,
        } = input;
        // The past session is replayed before the transaction, because it reads the log. The transaction then checks it
        // against the current session.
        let sessions = &self.engine.sessions;
        let current = sessions.read(self.key, Session::revision).await?;
        let past = sessions.past_session(self.key, revision, current).await?;
        crash_point("restore.read");
        let restore = RestoreContext {
            past: Box::new(past.session),
            later: past.later,
            force,
            expected_revision,
            request,
        };
        self.run(
            |transaction| transaction.run(Command::Restore(restore.clone())),
            answer,
        )
        .await
    }
}
