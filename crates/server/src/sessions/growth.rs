//! Whether what a transaction adds may be stored: by its project's quotas, and by the room on disk.

use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};

use super::{Sessions, SessionsError, Transaction};

/// Whether an event brings what its caller wants kept. What the service itself does with that, such as
/// clearing or compacting it, makes views smaller and is never refused.
const fn grows(event: &Event) -> bool {
    matches!(
        event,
        Event::SessionCreated(_)
            | Event::MessagesAppended(_)
            | Event::ResultOffered(_)
            | Event::WorkingStateUpdated(_)
    )
}

/// Refuses what the project may not store, and what has no room: a result is stored before its event,
/// and would be left over.
pub(super) async fn may_grow(
    sessions: &Sessions,
    key: &SessionKey,
    transaction: &Transaction<'_>,
) -> Result<(), SessionsError> {
    let mut events = transaction.events().iter();
    if transaction.events().is_empty() {
        return Ok(());
    }
    if let Some(quotas) = &sessions.quotas
        && events.any(|recorded| grows(&recorded.event))
    {
        let creates = transaction.revision_before() == Revision::ZERO;
        let grown = quotas.may_grow(&*sessions.log, &key.project, creates);
        grown.await?.map_err(SessionsError::Quota)?;
    }
    Ok(sessions.log.has_room().await?)
}

/// What a transaction adds, as far as is known before it is encoded.
pub(super) struct Grown {
    created: bool,
    bytes: u64,
}

impl Grown {
    pub(super) fn of(transaction: &Transaction<'_>) -> Self {
        let is_change = !transaction.events().is_empty();
        Self {
            created: is_change && transaction.revision_before() == Revision::ZERO,
            bytes: transaction.blob_bytes(),
        }
    }

    /// Tells the quotas of it, once it is there.
    pub(super) fn count(&self, sessions: &Sessions, key: &SessionKey) {
        if let Some(quotas) = sessions
            .quotas
            .as_ref()
            .filter(|_| self.created || self.bytes > 0)
        {
            quotas.grew(&key.project, self.created, self.bytes);
        }
    }
}
