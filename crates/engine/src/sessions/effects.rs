//! Performs the effects of transactions, each at its time. Only follow-ups are returned to the caller, because they need
//! models, hooks or a caller who waits.
//!
//! | time | effects | on failure |
//! |---|---|---|
//! | before the commit | files are stored | the transaction is dropped and decided again, without files |
//! | with the commit | the due time is set, and the intents of the files end | the transaction is dropped |
//! | after the commit | the worker is woken, follow-ups are returned | none: the queue or the session still shows the work |
//!
//! A file whose event was never committed can only be found by its intent. Therefore the log announces a file durably
//! before the file exists. The append that references the file ends the intent in the same change.

use std::collections::HashSet;
use std::num::NonZeroU32;

use bytes::Bytes;
use palimpsest_core::command::effects_of_state;
use palimpsest_core::effect::{Effect, FollowUp, StoreFile};
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::encoding::encode_frame;
use palimpsest_store::{Batch, DueChange, Position, StoreError, crash_point};
use tracing::Instrument as _;

use super::growth::StorageGrowth;
use super::handle::{HandleState, LoadedSession, SessionHandle};
use super::{Sessions, row};
use crate::call::SPANS;
use crate::tally::EventTally;

/// A decided transaction. Its effects are sorted by their time.
pub(super) struct PendingCommit {
    loaded: Box<LoadedSession>,
    before: Revision,
    now: Timestamp,
    events: Vec<RecordedEvent>,
    files: Vec<StoreFile>,
    memory_due: Option<Timestamp>,
    wakes_worker: bool,
    follow_ups: Vec<FollowUp>,
}

impl PendingCommit {
    /// Sorts the effects of the decisions, and those of the state after the events.
    pub(super) fn new(
        loaded: Box<LoadedSession>,
        (before, now): (Revision, Timestamp),
        events: Vec<RecordedEvent>,
        effects: Vec<Effect>,
    ) -> Self {
        // Without events the state did not change, so its place in the queue stays as well.
        let of_state = (!events.is_empty()).then(|| effects_of_state(&loaded.session, now));
        let mut pending = Self {
            loaded,
            before,
            now,
            events,
            files: Vec::new(),
            memory_due: None,
            wakes_worker: false,
            follow_ups: Vec::new(),
        };
        for effect in effects.into_iter().chain(of_state.into_iter().flatten()) {
            match effect {
                Effect::StoreFile(file) => pending.files.push(file),
                Effect::MemoryDue(due) => pending.memory_due = Some(due),
                Effect::WakeWorker => pending.wakes_worker = true,
                Effect::FollowUp(follow_up) => pending.follow_ups.push(follow_up),
            }
        }
        pending
    }

    /// Returns true if files must be stored before the commit.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// The total size of the files, in bytes.
    fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Builds the append of the events. Returns `None` without events.
    fn batch(&self) -> Option<Batch> {
        let events = u32::try_from(self.events.len()).ok();
        let files = self.files.iter().map(|file| file.file.clone());
        Some(Batch {
            // The session in memory has advanced by the new events. The log is still at the revision before them.
            expected: Position {
                revision: self.before,
                ..self.loaded.position()
            },
            events: events.and_then(NonZeroU32::new)?,
            frame: encode_frame(&self.events),
            list_row: row::encode(self.loaded.session.info()),
            // Only the worker that finds no work removes a session from the queue.
            due: self
                .memory_due
                .map_or(DueChange::Keep, |due| DueChange::at(due, self.now)),
            blob_bytes: self.file_bytes(),
            completed_intents: files.collect(),
        })
    }
}

impl Sessions {
    /// Appends the events of a transaction and performs its effects after the commit. Returns the follow-ups, which
    /// the caller begins. On failure the session leaves memory, because it is ahead of its log.
    pub(super) async fn commit(
        &self,
        key: &SessionKey,
        handle: &SessionHandle,
        state: &mut HandleState,
        pending: PendingCommit,
        growth: StorageGrowth,
    ) -> Result<Vec<FollowUp>, StoreError> {
        let (batch, file_bytes) = (pending.batch(), pending.file_bytes());
        let loaded = match batch {
            None => state.insert(pending.loaded),
            Some(batch) => {
                let append = state.append(&*self.log, key, pending.loaded, batch, &*self.clock);
                // A failed append drops `growth` too, which releases the reservation of a new session.
                append.await?
            }
        };
        crash_point("session.committed");
        // Nothing below can fail the call. Watchers learn the revision before a snapshot or the worker begins.
        growth.count(self, key, file_bytes);
        // Counted after the append, so a rejected attempt that is repeated counts once.
        self.observer.committed(&EventTally::of(&pending.events));
        handle.notify(loaded.session.revision());
        loaded.take_snapshot_if_due(&self.log, key);
        if pending.wakes_worker {
            self.wake.notify_one();
        }
        Ok(pending.follow_ups)
    }
}

/// A committed change, or the result of a dry run.
#[derive(Debug)]
pub struct Changed<D, T> {
    /// The result of deciding.
    pub decided: D,
    /// The result built from the state after the commit.
    pub answer: T,
    /// The work that is due, in the order in which the caller begins it. Empty after a dry run.
    pub follow_ups: Vec<FollowUp>,
}

impl<D, T> Changed<D, T> {
    /// The answer of a change without follow-ups.
    pub(super) fn answer(self) -> T {
        debug_assert!(
            self.follow_ups.is_empty(),
            "only `run_with_follow_ups` checks thresholds"
        );
        self.answer
    }
}

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
        pending: &PendingCommit,
    ) -> Result<(), UploadError> {
        let Some(blobs) = &sessions.blobs else {
            return Ok(());
        };
        let is_new = |file: &&StoreFile| !self.stored.contains(&file.file);
        let new: Vec<_> = pending.files.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        // A blob store of another log is detected before an intent is written.
        blobs.verify().await?;
        let files = new.iter().map(|file| file.file.clone()).collect();
        let intending = tracing::debug_span!(target: SPANS, "store.intend");
        let intended = sessions.log.declare_intents(key, files, pending.now);
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
