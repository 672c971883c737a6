//! Durability of acknowledged writes. Each transaction sets `synchronous_commit` for itself (`statements`).
//! `fsync` and `full_page_writes` belong to the server's configuration. They may change at runtime and may differ
//! on a standby, so they are checked on each new connection and with each canary.

use std::sync::{Mutex, PoisonError};

use crate::StoreError;

/// The server settings that are off although durability depends on them, as last observed. `None` if
/// there are none.
#[derive(Debug, Default)]
pub(super) struct Durability(Mutex<Option<String>>);

impl Durability {
    /// Records the names of the settings that are off. Changes are logged.
    pub(super) fn note(&self, found: Option<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &found {
            // Log only changes, because every canary reports the state.
            Some(settings) if *known != found => tracing::error!(
                settings,
                "the database would lose acknowledged writes in a crash: writes are rejected until these settings are on"
            ),
            None if known.is_some() => {
                tracing::info!(
                    "the database keeps acknowledged writes in a crash: writes are accepted again"
                );
            }
            _ => {}
        }
        *known = found;
    }

    /// Rejects a write that would be acknowledged without being durable.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            None => Ok(()),
            Some(settings) => Err(StoreError::Setup(format!(
                "{settings} is off in the database, so a crash could lose acknowledged writes. Turn {settings} on in \
                 the configuration of the database, and reload it"
            ))),
        }
    }
}
