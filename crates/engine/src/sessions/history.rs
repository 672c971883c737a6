//! Checks that a reader of several steps saw one consistent history. A position identifies the whole history up to
//! it.

use palimpsest_core::ids::SessionKey;
use palimpsest_store::Position;

use super::Sessions;
use crate::EngineError;

impl Sessions {
    /// Returns an error unless the log still contains a position. A reader calls this function after its last step.
    /// Histories that contain the same position are identical up to it, so the reader saw no mix of histories.
    pub async fn confirm(&self, key: &SessionKey, read: Position) -> Result<(), EngineError> {
        let head = self.log.head(key).await?;
        let now = head.ok_or_else(|| EngineError::SessionNotFound(key.clone()))?;
        let now = now.position();
        if now.matches(read) {
            return Ok(());
        }
        if now.incarnation == read.incarnation && now.revision > read.revision {
            // A log without append tokens never returns to an earlier state, so a later revision proves the position.
            let holds = read.token == 0 || !self.log.read(key, read, 1).await?.is_empty();
            if holds {
                return Ok(());
            }
        }
        Err(EngineError::HistoryChanged(key.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palimpsest_conformance::MemoryLog;
    use palimpsest_core::command::{CreateSession, Rejection};
    use palimpsest_core::ids::{Revision, Timestamp};
    use palimpsest_core::limits::Limits;
    use palimpsest_core::session::Session;

    use super::*;
    use crate::clock::ManualClock;
    use crate::sessions::{DefaultPolicies, MissingSession};

    fn sessions() -> Sessions {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
        let (log, limits) = (Arc::new(MemoryLog::new()), Arc::new(Limits::default()));
        Sessions::new(log, clock, limits, DefaultPolicies::default(), 1 << 20)
    }

    async fn create(sessions: &Sessions, key: &SessionKey) -> Position {
        let create = MissingSession::Create(CreateSession::default());
        let written = sessions.write(key, &create, |_| Ok(()), |_, ()| Ok(()));
        written.await.unwrap();
        sessions.position(key).await.unwrap()
    }

    #[tokio::test]
    async fn a_recreated_session_rejects_the_position_of_its_predecessor() {
        let sessions = sessions();
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        let anyway = |_: &Session| Ok::<_, Rejection>(());
        let looked_at = create(&sessions, &key).await;
        assert!(
            sessions
                .delete(&key, Some(looked_at), anyway)
                .await
                .unwrap()
        );
        assert!(
            sessions
                .finish_removal(&key, std::time::Duration::from_mins(1))
                .await
                .unwrap()
        );
        // The new session has the same name and revision. Only its incarnation differs.
        let now = create(&sessions, &key).await;
        assert_eq!(now.revision, looked_at.revision);
        let deleted = sessions.delete(&key, Some(looked_at), anyway).await;
        assert!(
            matches!(deleted, Err(EngineError::RevisionConflict(_))),
            "{deleted:?}"
        );
        assert_eq!(sessions.position(&key).await.unwrap(), now);
        let confirmed = sessions.confirm(&key, looked_at).await;
        assert!(
            matches!(confirmed, Err(EngineError::HistoryChanged(_))),
            "{confirmed:?}"
        );
        sessions.confirm(&key, now).await.unwrap();
        let ahead = now.at(Revision::new(now.revision.get() + 1));
        let confirmed = sessions.confirm(&key, ahead).await;
        assert!(
            matches!(confirmed, Err(EngineError::HistoryChanged(_))),
            "{confirmed:?}"
        );
    }
}
