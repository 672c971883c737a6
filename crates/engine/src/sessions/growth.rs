//! Checks whether a transaction may store more data: by quotas and by free disk space.

use palimpsest_core::event::Event;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::StoreError;

use super::{Sessions, Transaction};
use crate::EngineError;
use crate::quotas::{QuotaExceeded, StorageReservation};

/// Returns true if an event stores new data of the caller. Events of the service itself, such as clearing or
/// compaction, make views smaller and are never rejected by a quota.
pub(super) const fn adds_storage(event: &Event) -> bool {
    matches!(
        event,
        Event::SessionCreated(_)
            | Event::MessagesAppended(_)
            | Event::PersistDecided(_)
            | Event::WorkingStateUpdated(_)
    )
}

/// The events that a transaction may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AllowedEvents {
    #[default]
    All,
    /// Events that store no new data of the caller.
    Maintenance,
    /// No events.
    None,
}

/// The result of the checks, made before anything is decided. A result is stored before its event. A later check
/// would leave an orphaned file if the event were rejected.
pub(super) struct StorageGrowth {
    quota: Option<Result<QuotaExceeded, StoreError>>,
    space_error: Option<StoreError>,
    /// The reservation of a new session in the quotas, until the session is committed.
    reserved: StorageReservation,
    creates: bool,
}

impl StorageGrowth {
    pub(super) async fn check(sessions: &Sessions, key: &SessionKey, creates: bool) -> Self {
        let mut growth = Self {
            quota: None,
            space_error: sessions.log.check_space().await.err(),
            reserved: StorageReservation::default(),
            creates,
        };
        if let Some(quotas) = &sessions.quotas {
            match quotas
                .reserve_storage(&*sessions.log, &key.project, creates)
                .await
            {
                Ok(Ok(reserved)) => growth.reserved = reserved,
                Ok(Err(exceeded)) => growth.quota = Some(Ok(exceeded)),
                Err(error) => growth.quota = Some(Err(error)),
            }
        }
        growth
    }

    pub(super) fn allowed(&self) -> AllowedEvents {
        match (&self.space_error, &self.quota) {
            // A full disk rejects upkeep too, because every event needs space.
            (Some(_), _) => AllowedEvents::None,
            (None, Some(_)) => AllowedEvents::Maintenance,
            (None, None) => AllowedEvents::All,
        }
    }

    /// The error for the events that a transaction made or was about to make, or `None` if they are allowed.
    pub(super) fn refusal(&mut self, transaction: &Transaction<'_>) -> Option<EngineError> {
        let mut events = transaction.events().iter();
        let is_refused = transaction.is_refused();
        // A transaction without events stores nothing, so it passes even if a limit is reached.
        if !is_refused && transaction.events().is_empty() {
            return None;
        }
        // A rejected command leaves no event behind, so the rejection itself counts as growth.
        if (is_refused || events.any(|recorded| adds_storage(&recorded.event)))
            && let Some(quota) = self.quota.take()
        {
            return Some(match quota {
                Ok(exceeded) => EngineError::QuotaExceeded(exceeded),
                Err(error) => error.into(),
            });
        }
        self.space_error.take().map(EngineError::from)
    }

    /// Reports stored data to the quotas after the commit.
    pub(super) fn count(self, sessions: &Sessions, key: &SessionKey, bytes: u64) {
        if let Some(quotas) = &sessions.quotas
            && (self.creates || bytes > 0)
        {
            quotas.record_stored(&key.project, self.reserved, bytes);
        }
    }
}
