//! Results on their way into files: announced to the log, stored, and then named by the event that is committed.
//!
//! A file whose event never comes is found by its intent, and by nothing else. So the log announces it durably before it
//! exists, and an append that names a file ends the intent in the same change.

use std::collections::HashSet;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::{StoreError, crash_point};
use tracing::Instrument as _;

use super::Sessions;
use super::transaction::NewBlob;
use crate::call::SPANS;

/// Why a result was not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum UploadError {
    #[error("its file cannot be announced")]
    Intent(#[from] StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// The files of one change, which may be decided several times.
#[derive(Debug)]
pub(super) struct Uploads {
    can_store: bool,
    salt: u64,
    stored: HashSet<Box<str>>,
}

impl Uploads {
    pub(super) fn new(can_store: bool) -> Self {
        Self {
            can_store,
            salt: fastrand::u64(..),
            stored: HashSet::new(),
        }
    }

    /// Whether files can be stored, and what makes their names this change's own.
    pub(super) fn of_files(&self) -> (bool, u64) {
        (self.can_store, self.salt)
    }

    /// Leaves results where they are.
    pub(super) fn give_up(&mut self) {
        self.can_store = false;
    }

    /// Announces and stores what is not stored yet: a change that is decided again names the same files.
    pub(super) async fn store(
        &mut self,
        sessions: &Sessions,
        key: &SessionKey,
        results: &[NewBlob],
        now: Timestamp,
    ) -> Result<(), UploadError> {
        let Some(blobs) = &sessions.blobs else {
            return Ok(());
        };
        let is_new = |result: &&NewBlob| !self.stored.contains(&result.file);
        let new: Vec<_> = results.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        // A place that is another store's is found out before anything is announced for it.
        blobs.verify().await?;
        let files = new.iter().map(|result| result.file.clone()).collect();
        let intending = tracing::debug_span!(target: SPANS, "store.intend");
        let intended = sessions.log.intend(key, files, now);
        intended.instrument(intending).await?;
        crash_point("session.intended");
        for result in new {
            blobs
                .put_file(key, &result.file, result.bytes.clone())
                .await?;
            self.stored.insert(result.file.clone());
        }
        Ok(())
    }
}
