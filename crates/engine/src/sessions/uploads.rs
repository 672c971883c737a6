//! Stores the files of a change before its events are committed.
//!
//! A file whose event was never committed can only be found by its intent. Therefore the log announces a file durably
//! before the file exists. The append that references the file ends the intent in the same change.

use std::collections::HashSet;

use bytes::Bytes;
use palimpsest_core::effect::StoreFile;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::{StoreError, crash_point};
use tracing::Instrument as _;

use super::Sessions;
use crate::call::SPANS;

/// An error while a result is stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum UploadError {
    #[error("its file cannot be announced")]
    Intent(#[from] StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// The files of one change. The change may be decided several times.
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

    /// Returns true in the first value if files can be stored, and the salt of this change's file names.
    pub(super) fn of_files(&self) -> (bool, u64) {
        (self.can_store, self.salt)
    }

    /// Disables uploads, so that results stay in the view.
    pub(super) fn disable(&mut self) {
        self.can_store = false;
    }

    /// Announces and stores the files that are not stored yet. A change that is decided again uses the same file
    /// names.
    pub(super) async fn store(
        &mut self,
        sessions: &Sessions,
        key: &SessionKey,
        (files, now): (&[StoreFile], Timestamp),
    ) -> Result<(), UploadError> {
        let Some(blobs) = &sessions.blobs else {
            return Ok(());
        };
        let is_new = |file: &&StoreFile| !self.stored.contains(&file.file);
        let new: Vec<_> = files.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        // A blob store of another log is detected before an intent is written.
        blobs.verify().await?;
        let names = new.iter().map(|file| file.file.clone()).collect();
        let intending = tracing::debug_span!(target: SPANS, "store.intend");
        let intended = sessions.log.declare_intents(key, names, now);
        intended.instrument(intending).await?;
        crash_point("session.intended");
        // The intents are durable from here on, so a crash during the uploads leaves files that a sweep finds.
        for file in new {
            let bytes = Bytes::from(file.content().into_owned());
            blobs.put_file(key, &file.file, bytes).await?;
            self.stored.insert(file.file.clone());
        }
        Ok(())
    }
}
