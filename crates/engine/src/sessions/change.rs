//! One change of a session: decide, store files, commit, perform effects, build the result.
//!
//! | time | effects | on failure |
//! |---|---|---|
//! | before the commit | files are stored | the transaction is dropped and decided again, without files |
//! | with the commit | the due time is set, and the intents of the files end | the transaction is dropped |
//! | after the commit | the worker is woken, follow-ups are returned | none: the queue or the session still shows the work |
//!
//! Only follow-ups are returned to the caller, because they need models, hooks or a caller who waits.

use std::num::NonZeroU32;

use palimpsest_core::command::{Rejection, effects_of_state};
use palimpsest_core::effect::{Effect, FollowUp, StoreFile};
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_store::encoding::encode_frame;
use palimpsest_store::{
    Batch, DueChange, Position, SessionTips, StoreError, crash_point, error_chain,
};
use tracing::Instrument as _;

use super::growth::StorageGrowth;
use super::handle::{HandleState, LoadedSession, SessionHandle};
use super::transaction::CopiedEvents;
use super::uploads::Uploads;
use super::{MAX_ATTEMPTS, MissingSession, ReadMode, Sessions, Transaction, row};
use crate::EngineError;
use crate::call::{CurrentCall, SPANS};
use crate::tally::EventTally;

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

impl Sessions {
    /// Changes a session. `decide` runs commands, their events are committed, and `finish` builds the result from the
    /// state after the commit.
    ///
    /// `decide` runs again on the new state if another writer commits first. Either closure runs again if it needs
    /// contents that are not in memory.
    pub async fn write<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let changed = self.change(ReadMode::Fresh, key, missing, decide, |_, _| (), finish);
        changed.await.map(Changed::answer)
    }

    /// Like [`Self::write`], with a choice of freshness for consecutive steps.
    pub async fn write_with<D, T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let changed = self.change(begin, key, missing, decide, |_, _| (), finish);
        changed.await.map(Changed::answer)
    }

    /// Decides, stores files, commits and builds the result, and repeats all of it if another writer commits first.
    async fn change<D, T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        decided_state: impl Fn(&Session, &[FollowUp]),
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<Changed<D, T>, EngineError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        // The attempts share one salt, so a repeated decision makes the same file names. Files that are stored already
        // are not uploaded again.
        let mut uploads = Uploads::new(self.blobs.is_some());
        let mut begin = state.read_mode(begin, self.clock.monotonic());
        for _ in 0..MAX_ATTEMPTS {
            // `certain` precedes the comparison, so that a later write of another process does not count as seen.
            let (now, certain) = (self.clock.now(), self.clock.monotonic());
            let is_compared = begin == ReadMode::Fresh || !self.reader.is_shared();
            let loaded = state.begin(begin, &self.reader, key, certain).await?;
            // A later attempt follows a conflict, or an outcome that is valid only after a comparison with the log.
            begin = ReadMode::Fresh;
            // A call whose deadline passed while it waited for the lock or for the load changes nothing, as if it had
            // never arrived.
            if !CurrentCall::may_start_change() {
                return Err(EngineError::DeadlineExceeded);
            }
            if loaded.is_none() && matches!(missing, MissingSession::Reject) {
                return Err(EngineError::SessionNotFound(key.clone()));
            }
            if loaded.is_none() {
                // The remains of a deleted session of this name are removed first. Otherwise results of both sessions
                // would share a folder.
                Box::pin(self.free_name(key)).await?;
            }
            let creates = loaded.is_none();
            // Quotas and disk space are checked before any event is applied, so a rejection leaves the session in
            // memory unchanged.
            let mut growth = StorageGrowth::check(self, key, creates).await;
            // `take` moves the session out of the handle. A call that is dropped before its commit thus leaves no
            // uncommitted state behind.
            let mut transaction =
                Transaction::new(key, state.take(), now, &self.limits, uploads.of_files())
                    .with_allowed(growth.allowed());
            if let (None, MissingSession::Create(create)) = (transaction.session(), missing) {
                transaction.create(create.clone())?;
            }
            let deciding = tracing::debug_span!(target: SPANS, "decide");
            let decided = match deciding.in_scope(|| decide(&mut transaction)) {
                Ok(decided) => decided,
                Err(_) if transaction.is_refused() => {
                    let refused = growth.refusal(&transaction);
                    state.put_back(transaction);
                    return Err(refused.unwrap_or(EngineError::Contended));
                }
                Err(Rejection::ContentNotLoaded) => {
                    // Events that were applied without a commit would make the state wrong. `put_back` therefore
                    // keeps the session only if no event was applied.
                    state.put_back(transaction);
                    state.load(&self.reader, key).await?;
                    match state.load_content(&self.reader, key).await {
                        // Another process deleted the session. The next attempt decides on the current state.
                        Ok(()) | Err(EngineError::SessionNotFound(_)) => continue,
                        Err(error) => return Err(error),
                    }
                }
                Err(rejection) => {
                    state.put_back(transaction);
                    // The cached state may be older than the log, so the rejection is valid only after a comparison.
                    if !is_compared {
                        continue;
                    }
                    return Err(rejection.into());
                }
            };
            if !is_compared && transaction.events().is_empty() {
                // Without events no append compares the cached state with the log. The next attempt compares it.
                state.put_back(transaction);
                continue;
            }
            crash_point("session.decided");
            if let Some(refused) = growth.refusal(&transaction) {
                state.put_back(transaction);
                return Err(refused);
            }
            let Some(pending) = transaction.finish() else {
                return Err(EngineError::SessionNotFound(key.clone()));
            };
            if pending.has_files() {
                let stored = uploads.store(self, key, (&pending.files, pending.now));
                // A result that cannot be stored is no error: the next attempt leaves it in the view.
                if let Err(error) = Box::pin(stored).await {
                    let error = error_chain(&error);
                    tracing::warn!(session = %key, error, "failed to store a result; it stays in the view");
                    uploads.disable();
                    // `pending` is dropped with the session, which is ahead of its log. The next attempt loads the
                    // session again.
                    continue;
                }
            }
            crash_point("session.stored");
            decided_state(&pending.loaded.session, &pending.follow_ups);
            match self.commit(key, &handle, &mut state, pending, growth).await {
                Ok(follow_ups) => {
                    let rendering = tracing::debug_span!(target: SPANS, "render");
                    let look = |state: &HandleState| {
                        let loaded = state.loaded().ok_or(ContentNotLoaded)?;
                        finish(&loaded.session, &decided)
                    };
                    let mut answer = rendering.in_scope(|| look(&state));
                    // The new view may need contents that are not in memory. The commit is done, so only `finish`
                    // runs again.
                    if answer.is_err() {
                        state.load_content(&self.reader, key).await?;
                        answer = look(&state);
                    }
                    return Ok(Changed {
                        answer: answer.map_err(Rejection::from)?,
                        decided,
                        follow_ups,
                    });
                }
                // Another writer appended or deleted first, and `commit` has dropped the session. The next attempt
                // decides on the new state.
                Err(StoreError::Conflict { .. } | StoreError::Deleting(_)) => {}
                // A sweep revoked the intents and may have removed the files. The files are stored again under new
                // names.
                Err(StoreError::IntentRevoked(_)) => uploads = Uploads::new(self.blobs.is_some()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Contended)
    }

    /// Runs [`Self::write`], or for a dry run the same closures on a copy that is discarded.
    pub async fn run<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        dry_run: bool,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let changed = self.run_with_follow_ups(key, missing, dry_run, decide, |_, _| (), finish);
        changed.await.map(Changed::answer)
    }

    /// Like [`Self::run`], for commands with follow-ups. The caller begins the follow-ups.
    ///
    /// `decided_state` receives the state and the follow-ups that are about to be committed. It runs again if another
    /// writer commits first, and never in a dry run.
    pub async fn run_with_follow_ups<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        dry_run: bool,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        decided_state: impl Fn(&Session, &[FollowUp]),
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<Changed<D, T>, EngineError> {
        if dry_run {
            let mut copy = self.dry_run(key, missing).await?;
            let (answer, decided) = copy.change(decide, finish).await?;
            Ok(Changed {
                answer,
                decided,
                // The effects of a dry run are dropped with the copy.
                follow_ups: Vec::new(),
            })
        } else {
            let begin = ReadMode::Fresh;
            self.change(begin, key, missing, decide, decided_state, finish)
                .await
        }
    }

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
        let mut loaded = pending.loaded;
        if let Some(batch) = batch {
            let bytes = batch.frame.len() as u64;
            // The append compares the position, so its start counts as a comparison. The time is taken before the
            // append, because other processes may write after it.
            state.mark_compared(self.clock.monotonic());
            let appending = tracing::debug_span!(target: SPANS, "store.append", bytes);
            // A failed append drops `growth` too, which releases the reservation of a new session.
            let position = self.log.append(key, batch).instrument(appending).await?;
            (loaded.incarnation, loaded.token) = (position.incarnation, position.token);
            loaded.tail_bytes += bytes;
        }
        let loaded = state.insert(loaded);
        crash_point("session.committed");
        // Nothing below can fail the call. Watchers learn the revision before a snapshot or the worker begins.
        growth.count(self, key, file_bytes);
        // Counted after the append, so a rejected attempt that is repeated counts once.
        self.observer.committed(&EventTally::of(own_events(
            &pending.events, &pending.copied,
        )));
        handle.notify(loaded.session.revision());
        loaded.take_snapshot_if_due(&self.log, key);
        if pending.wakes_worker {
            self.wake.notify_one();
        }
        Ok(pending.follow_ups)
    }
}

/// A decided transaction. Its effects are sorted by their time.
pub(super) struct PendingCommit {
    loaded: Box<LoadedSession>,
    before: Revision,
    now: Timestamp,
    events: Vec<RecordedEvent>,
    copied: CopiedEvents,
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
        (events, copied): (Vec<RecordedEvent>, CopiedEvents),
        effects: Vec<Effect>,
    ) -> Self {
        // Without events the state did not change, so its place in the queue stays as well.
        let of_state = (!events.is_empty()).then(|| effects_of_state(&loaded.session, now));
        let mut pending = Self {
            loaded,
            before,
            now,
            events,
            copied,
            files: Vec::new(),
            memory_due: None,
            wakes_worker: false,
            follow_ups: Vec::new(),
        };
        for effect in effects.into_iter().chain(of_state.into_iter().flatten()) {
            match effect {
                Effect::StoreFile(file) => pending.files.push(file),
                // A command can call for an earlier time than the state.
                Effect::MemoryDue(due) => {
                    let earlier = pending.memory_due.filter(|earlier| *earlier < due);
                    pending.memory_due = earlier.or(Some(due));
                }
                Effect::WakeWorker => pending.wakes_worker = true,
                Effect::FollowUp(follow_up) => pending.follow_ups.push(follow_up),
            }
        }
        // A copied session has no `summary.md` yet.
        if pending.copied.events > 0 && pending.loaded.session.memory().version.is_some() {
            pending.memory_due = Some(now);
            pending.wakes_worker = true;
        }
        pending
    }

    /// Returns true if files must be stored before the commit.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// The total size of the files, in bytes.
    fn file_bytes(&self) -> u64 {
        let copied = self.copied.files.iter().map(|(_, bytes)| bytes);
        let new = self.files.iter().map(|file| &file.bytes);
        new.chain(copied).sum()
    }

    /// Returns the tips of the session, if one of the events adds a tip.
    fn tips(&self) -> Option<SessionTips> {
        let adds_tip = |recorded: &RecordedEvent| matches!(&recorded.event, Event::ArraySynced(event) if event.tip.is_some());
        let is_changed = self.events.iter().any(adds_tip);
        is_changed.then(|| tips_of(&self.loaded.session)).flatten()
    }

    /// Builds the append of the events. Returns `None` without events.
    fn batch(&self) -> Option<Batch> {
        let events = u32::try_from(self.events.len()).ok();
        let copied = self.copied.files.iter().map(|(file, _)| file);
        let files = self.files.iter().map(|file| &file.file).chain(copied);
        Some(Batch {
            // The session in memory has advanced by the new events. The log is still at the revision before them.
            expected: Position {
                revision: self.before,
                ..self.loaded.position()
            },
            events: events.and_then(NonZeroU32::new)?,
            frame: encode_frame(&self.events),
            list_row: row::encode(self.loaded.session.info()),
            parent: self.loaded.session.info().parent.clone(),
            // Only the worker that finds no work removes a session from the queue.
            due: self
                .memory_due
                .map_or(DueChange::Keep, |due| DueChange::at(due, self.now)),
            blob_bytes: self.file_bytes(),
            completed_intents: files.cloned().collect(),
            tips: self.tips(),
        })
    }
}

/// Returns the tips by which the store finds a session. `None` if the session is found by its name only.
pub(crate) fn tips_of(session: &Session) -> Option<SessionTips> {
    let tips = session.tips();
    Some(SessionTips {
        scope: tips.scope?,
        digests: tips.digests.clone(),
    })
}

/// Returns the events of a change, without those of a session that it copies.
fn own_events<'a>(
    events: &'a [RecordedEvent],
    copied: &CopiedEvents,
) -> impl Iterator<Item = &'a RecordedEvent> {
    // The creation precedes the copied events.
    let (created, rest) = events.split_at(events.len().min(1));
    created.iter().chain(rest.iter().skip(copied.events))
}
