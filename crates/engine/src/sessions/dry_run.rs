//! Dry runs: commands on a copy of a session, without a commit.

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{ContentNotLoaded, Session};

use super::handle::LoadedSession;
use super::uploads::Uploads;
use super::{MissingSession, Sessions, Transaction};
use crate::EngineError;

/// A copy of a session with all its contents. Several steps can run on it, one after the other.
#[derive(Debug)]
pub struct DryRun<'a> {
    sessions: &'a Sessions,
    key: &'a SessionKey,
    transaction: Transaction<'a>,
}

impl Sessions {
    /// Copies a session for a dry run. A missing session is created in the copy alone.
    pub async fn dry_run<'a>(
        &'a self,
        key: &'a SessionKey,
        missing: &MissingSession,
    ) -> Result<DryRun<'a>, EngineError> {
        // The copy keeps the incarnation, so that missing contents can still be read from the log.
        let copy = |loaded: &LoadedSession| {
            Box::new(LoadedSession {
                incarnation: loaded.incarnation,
                ..LoadedSession::new(loaded.session.clone())
            })
        };
        let copy = match self.inspect_full(key, copy).await {
            Ok(copy) => Some(copy),
            Err(EngineError::SessionNotFound(_))
                if matches!(missing, MissingSession::Create(_)) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        // Quotas and disk space are not checked, because a dry run stores nothing.
        let mut transaction = Transaction::new(
            key,
            copy,
            self.clock.now(),
            &self.limits,
            Uploads::new(self.blobs.is_some()).of_files(),
        );
        if let (None, MissingSession::Create(create)) = (transaction.session(), missing) {
            transaction.create(create.clone())?;
        }
        Ok(DryRun {
            sessions: self,
            key,
            transaction,
        })
    }
}

impl DryRun<'_> {
    /// Calls `look` with the copy.
    pub fn read<T>(&self, look: impl FnOnce(&Session) -> T) -> Result<T, EngineError> {
        let seen = self.transaction.session().map(look);
        seen.ok_or_else(|| EngineError::SessionNotFound(self.key.clone()))
    }

    /// Returns the copy after the commands so far.
    pub fn into_session(self) -> Result<Session, EngineError> {
        let loaded = self.transaction.into_loaded();
        let session = loaded.map(|loaded| loaded.session);
        session.ok_or_else(|| EngineError::SessionNotFound(self.key.clone()))
    }

    /// Runs commands on the copy. `finish` builds the result from the state after them.
    pub async fn run<D, T>(
        &mut self,
        decide: impl FnOnce(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let (answer, _) = self.change(decide, finish).await?;
        Ok(answer)
    }

    /// Like [`Self::run`]. Also returns the result of `decide`.
    pub(super) async fn change<D, T>(
        &mut self,
        decide: impl FnOnce(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<(T, D), EngineError> {
        let decided = decide(&mut self.transaction)?;
        let loaded = self
            .transaction
            .loaded_mut()
            .ok_or_else(|| EngineError::SessionNotFound(self.key.clone()))?;
        let mut answer = finish(&loaded.session, &decided);
        // A command may have restored messages to the view whose contents were not loaded.
        if answer.is_err() {
            self.sessions.reader.load_content(self.key, loaded).await?;
            answer = finish(&loaded.session, &decided);
        }
        Ok((answer.map_err(Rejection::from)?, decided))
    }
}
