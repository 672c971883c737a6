//! Whether what a transaction adds may be stored: by its project's quotas, and by the room on disk.

use palimpsest_core::event::Event;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::StoreError;

use super::{Sessions, SessionsError, Transaction};
use crate::quotas::{QuotaExceeded, StorageReservation};

/// Whether an event brings what its caller wants kept. What the service itself does with that, such as
/// clearing or compacting it, makes views smaller and is never refused.
pub(super) const fn grows(event: &Event) -> bool {
    matches!(
        event,
        Event::SessionCreated(_)
            | Event::MessagesAppended(_)
            | Event::PersistDecided(_)
            | Event::WorkingStateUpdated(_)
    )
}

/// What events a transaction may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AllowedEvents {
    #[default]
    All,
    /// Those that bring nothing new to keep.
    Upkeep,
    /// None at all.
    None,
}

/// Whether a session may grow, asked before anything is decided. A result is stored before its event, and would be left
/// over where the event finds no room.
pub(super) struct StorageGrowth {
    quota: Option<Result<QuotaExceeded, StoreError>>,
    room: Option<StoreError>,
    /// The place of a new session in the quotas, until it is there.
    reserved: StorageReservation,
    creates: bool,
}

impl StorageGrowth {
    pub(super) async fn ask(sessions: &Sessions, key: &SessionKey, creates: bool) -> Self {
        let mut growth = Self {
            quota: None,
            room: sessions.log.has_room().await.err(),
            reserved: StorageReservation::default(),
            creates,
        };
        if let Some(quotas) = &sessions.quotas {
            match quotas.may_grow(&*sessions.log, &key.project, creates).await {
                Ok(Ok(reserved)) => growth.reserved = reserved,
                Ok(Err(exceeded)) => growth.quota = Some(Ok(exceeded)),
                Err(error) => growth.quota = Some(Err(error)),
            }
        }
        growth
    }

    pub(super) fn allowed(&self) -> AllowedEvents {
        match (&self.room, &self.quota) {
            (Some(_), _) => AllowedEvents::None,
            (None, Some(_)) => AllowedEvents::Upkeep,
            (None, None) => AllowedEvents::All,
        }
    }

    /// The refusal of what a transaction brings, or of what it was about to bring.
    pub(super) fn refusal(&mut self, transaction: &Transaction<'_>) -> Option<SessionsError> {
        let mut events = transaction.events().iter();
        let is_refused = transaction.is_refused();
        if !is_refused && transaction.events().is_empty() {
            return None;
        }
        if (is_refused || events.any(|recorded| grows(&recorded.event)))
            && let Some(quota) = self.quota.take()
        {
            return Some(match quota {
                Ok(exceeded) => SessionsError::Quota(exceeded),
                Err(error) => error.into(),
            });
        }
        self.room.take().map(SessionsError::from)
    }

    /// Tells the quotas what was stored, once it is there.
    pub(super) fn count(self, sessions: &Sessions, key: &SessionKey, bytes: u64) {
        if let Some(quotas) = &sessions.quotas
            && (self.creates || bytes > 0)
        {
            quotas.grew(&key.project, self.reserved, bytes);
        }
    }
}
