//! Sessions of this process. Each session is loaded once, changed by one command at a time, and evicted when the
//! cache is over its limit.
//!
//! A change runs in a [`Transaction`]: commands are decided and applied in memory, then committed as one append. No
//! other call sees the new state before the append is durable. After a failed append the state in memory is discarded
//! and read again from the log. The meaning of each rpc is defined in the server, not here.

mod cache;
mod dry_run;
mod effects;
mod estimator_warmup;
mod growth;
mod handle;
mod history;
mod lists;
mod load;
mod policies;
mod removal;
mod row;
mod transaction;
mod wait;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{CreateSession, Rejection};
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_store::blobs::Blobs;
use palimpsest_store::encoding::DecodeError;
use palimpsest_store::{Lease, Position, Store, StoreError, crash_point, error_chain};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{MutexGuard, Notify};
use tokio_util::sync::CancellationToken;

pub use self::cache::CacheStats;
use self::cache::SessionCache;
pub use self::dry_run::DryRun;
pub use self::effects::Changed;
use self::effects::Uploads;
pub use self::estimator_warmup::warm_up;
use self::handle::{HandleState, LoadedSession, SessionHandle};
pub use self::handle::{SessionChange, Watcher};
pub use self::lists::SessionPage;
pub use self::load::PastSession;
use self::load::SessionReader;
pub use self::policies::DefaultPolicies;
pub use self::transaction::{CommandOutcome, Transaction};
use crate::EngineError;
use crate::call::{CurrentCall, SPANS};
use crate::clock::Clock;
use crate::quotas::QuotaTracker;
use crate::tally::{Observer, Unobserved};

/// Attempts of one change before it fails with [`EngineError::Contended`]. An attempt fails when another writer
/// commits first.
const MAX_ATTEMPTS: usize = 8;
/// Interval at which a watcher checks the log head if other processes may write to the log.
const WATCH_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a log that one read returns, about 4 MiB.
pub const READ_BYTES: usize = 4 * 1024 * 1024;

/// The behavior of a change if the session does not exist.
#[derive(Debug, Clone)]
pub enum MissingSession {
    /// Creates the session.
    Create(CreateSession),
    /// Rejects the call with [`EngineError::SessionNotFound`].
    Reject,
}

/// The freshness of the state at which a step begins. Relevant only if other processes may write to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Compares the state in memory with the log head, so writes of other processes are included.
    Fresh,
    /// Uses the state that this process left a moment ago, for consecutive steps such as those of a worker. A write
    /// of another process since then is detected by the commit, and the step is decided again.
    Cached,
}

/// A locked session. On drop the cache learns the session's current size, whatever the outcome of the work was, so no
/// caller has to report the size.
struct LockedSession<'a> {
    state: MutexGuard<'a, HandleState>,
    cache: &'a SessionCache,
    key: &'a SessionKey,
}

impl Deref for LockedSession<'_> {
    type Target = HandleState;

    fn deref(&self) -> &HandleState {
        &self.state
    }
}

impl DerefMut for LockedSession<'_> {
    fn deref_mut(&mut self) -> &mut HandleState {
        &mut self.state
    }
}

impl Drop for LockedSession<'_> {
    fn drop(&mut self) {
        self.cache
            .update_weight(self.key, self.state.weight_bytes());
    }
}

/// The sessions of this process.
pub struct Sessions {
    log: Arc<dyn Store>,
    reader: SessionReader,
    cache: SessionCache,
    clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
    policies: DefaultPolicies,
    blobs: Option<Arc<Blobs>>,
    quotas: Option<Arc<QuotaTracker>>,
    wake: Arc<Notify>,
    /// Notified after every deletion, so that a background task removes the remaining data.
    deletions: Arc<Notify>,
    removals: removal::RemovalsInProgress,
    unreadable_rows: lists::UnreadableRows,
    observer: Arc<dyn Observer>,
    /// Name of this process among those that share the log. Written into leases.
    process: String,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    /// Creates sessions on a log. `policies` provides the defaults of new sessions. `cache_bytes` is the approximate
    /// limit of memory for loaded sessions.
    pub fn new(
        log: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: Arc<Limits>,
        policies: DefaultPolicies,
        cache_bytes: usize,
    ) -> Self {
        Self {
            reader: SessionReader::new(Arc::clone(&log)),
            log,
            cache: SessionCache::new(cache_bytes),
            clock,
            limits,
            policies,
            blobs: None,
            quotas: None,
            wake: Arc::default(),
            deletions: Arc::default(),
            removals: removal::RemovalsInProgress::default(),
            unreadable_rows: lists::UnreadableRows::default(),
            observer: Arc::new(Unobserved),
            process: String::new(),
        }
    }

    /// Sets the name of this process among those that share the log.
    #[must_use]
    pub fn with_process(mut self, name: String) -> Self {
        self.process = name;
        self
    }

    /// Adds a blob store for large results. Without a blob store, large results stay in the view.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Arc<Blobs>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// Adds storage quotas of projects.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Arc<QuotaTracker>) -> Self {
        self.quotas = Some(quotas);
        self
    }

    /// Adds an observer of committed events.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Returns the notification that is sent when a session becomes due for the worker.
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Returns the notification that is sent after a deletion, while data of the session may remain.
    pub fn deletions(&self) -> Arc<Notify> {
        Arc::clone(&self.deletions)
    }

    /// The log that stores the sessions.
    pub fn log(&self) -> &Arc<dyn Store> {
        &self.log
    }

    /// The limits of one call.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The policies of new sessions.
    pub fn policies(&self) -> &DefaultPolicies {
        &self.policies
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Fill level and counters of the session cache.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Locks a session. The wait does not count as work of the current call.
    async fn lock<'a>(
        &'a self,
        handle: &'a SessionHandle,
        key: &'a SessionKey,
    ) -> LockedSession<'a> {
        LockedSession {
            state: CurrentCall::pause_while(handle.lock()).await,
            cache: &self.cache,
            key,
        }
    }

    /// Calls `look` with the current state of a session.
    pub async fn read<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<T, EngineError> {
        self.read_with(ReadMode::Fresh, key, look).await
    }

    /// Calls `look` with the current state of a session and the position of that state.
    pub async fn read_positioned<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&Session, Position) -> T,
    ) -> Result<T, EngineError> {
        self.inspect_with(ReadMode::Fresh, key, |loaded| {
            look(&loaded.session, loaded.position())
        })
        .await
    }

    /// Like [`Self::read`], with a choice of freshness for consecutive steps.
    pub async fn read_with<T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<T, EngineError> {
        self.inspect_with(begin, key, |loaded| look(&loaded.session))
            .await
    }

    async fn inspect_with<T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        look: impl FnOnce(&LoadedSession) -> T,
    ) -> Result<T, EngineError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        // The time is read before the comparison. A write of another process after the read of the head must not count
        // as seen.
        let now = self.clock.monotonic();
        let begin = state.read_mode(begin, now);
        let loaded = state.begin(begin, &self.reader, key, now).await?;
        let seen = loaded.map(look);
        seen.ok_or_else(|| EngineError::SessionNotFound(key.clone()))
    }

    /// Calls `look` with a session whose message contents are all loaded.
    pub async fn read_full<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<T, EngineError> {
        self.inspect_full(key, |loaded| look(&loaded.session)).await
    }

    async fn inspect_full<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&LoadedSession) -> T,
    ) -> Result<T, EngineError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        state.load(&self.reader, key).await?;
        state.load_content(&self.reader, key).await?;
        let seen = state.loaded().map(look);
        seen.ok_or_else(|| EngineError::SessionNotFound(key.clone()))
    }

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
        let changed = self.change(ReadMode::Fresh, key, missing, decide, finish);
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
        let changed = self.change(begin, key, missing, decide, finish);
        changed.await.map(Changed::answer)
    }

    /// Decides, stores files, commits and builds the result, and repeats all of it if another writer commits first.
    async fn change<D, T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<Changed<D, T>, EngineError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        // The attempts share one salt, so a repeated decision makes the same file names. Files that are stored already
        // are not uploaded again.
        let mut uploads = Uploads::new(self.blobs.is_some());
        let mut begin = state.read_mode(begin, self.clock.monotonic());
        for _ in 0..MAX_ATTEMPTS {
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
            let mut growth = growth::StorageGrowth::check(self, key, creates).await;
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
                let stored = uploads.store(self, key, &pending);
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
        let changed = self.run_with_follow_ups(key, missing, dry_run, decide, finish);
        changed.await.map(Changed::answer)
    }

    /// Like [`Self::run`], for commands with follow-ups. The caller begins the follow-ups.
    pub async fn run_with_follow_ups<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        dry_run: bool,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
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
            self.change(ReadMode::Fresh, key, missing, decide, finish)
                .await
        }
    }

    /// Returns the session as it was at a revision, with all its contents. The log is replayed up to that revision.
    /// Returns `None` if the session never had it.
    pub async fn session_at(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<PastSession>, EngineError> {
        self.reader.session_at(key, revision).await
    }

    /// Returns a watcher of a session's changes.
    pub fn watch(&self, key: &SessionKey) -> Watcher {
        let look_every = self.reader.is_shared().then_some(WATCH_POLL_INTERVAL);
        Watcher::new(self.cache.handle(key), look_every)
    }

    /// Forwards change hints of other processes to local watchers until `stop` is cancelled.
    pub async fn follow_hints(self: Arc<Self>, stop: CancellationToken) {
        let Some(mut hints) = self.log.subscribe_hints() else {
            return;
        };
        while let Some(heard) = stop.run_until_cancelled(hints.recv()).await {
            match heard {
                Ok(key) => {
                    // A session without a handle here has no watchers, so no handle is created.
                    if let Some(handle) = self.cache.find_handle(&key) {
                        handle.notify_remote_change();
                    }
                }
                // Watchers find changes behind lost hints by polling the log.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Acquires or renews a leader task for `time`. Returns true if this process is the leader.
    pub async fn claim_leader_task(
        &self,
        duty: &'static str,
        time: Duration,
    ) -> Result<bool, EngineError> {
        let now = self.clock.now();
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let lease = Lease {
            owner: self.process.clone(),
            until: Timestamp::from_millis(now.as_millis().saturating_add(millis)),
        };
        Ok(self.log.claim_leader_task(duty, lease, now).await?)
    }

    /// Returns the position of a session according to the log.
    pub async fn position(&self, key: &SessionKey) -> Result<Position, EngineError> {
        let head = self.log.head(key).await?;
        let head = head.ok_or_else(|| EngineError::SessionNotFound(key.clone()))?;
        Ok(head.position())
    }

    /// Returns events after a revision, oldest first, with their revisions. `bytes` limits the read approximately, in
    /// bytes as stored.
    pub async fn events(
        &self,
        key: &SessionKey,
        after: Revision,
        bytes: usize,
    ) -> Result<Vec<(Revision, RecordedEvent)>, EngineError> {
        let Some(head) = self.log.head(key).await? else {
            return Ok(Vec::new());
        };
        // `at` clears the token. The read therefore checks the incarnation only, and `after` may be any earlier
        // revision.
        let frames = self.log.read(key, head.position().at(after), bytes).await?;
        let decoded = tokio::task::spawn_blocking(move || load::decode_frames(&frames, None));
        let events = load::join_blocking(decoded)
            .await
            .map_err(|error| self.unreadable(key, error))?;
        // A frame holds all events of one append, so the first frame may begin before `after`.
        let later = events.into_iter().filter(|(revision, _)| *revision > after);
        Ok(later.collect())
    }

    /// Returns the event with a revision, or `None` if it does not exist.
    pub async fn event(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<RecordedEvent>, EngineError> {
        let Some(head) = self.log.head(key).await? else {
            return Ok(None);
        };
        // A read starts after a position, so the position before the event is used.
        let before = Revision::new(revision.get().saturating_sub(1));
        // A limit of one byte still returns one whole frame: the frame that contains the event.
        let frames = self.log.read(key, head.position().at(before), 1).await?;
        let events =
            load::decode_frames(&frames, None).map_err(|error| self.unreadable(key, error))?;
        Ok(events
            .into_iter()
            .find_map(|(at, event)| (at == revision).then_some(event)))
    }

    /// Returns the event that answered an earlier call.
    pub async fn answer(&self, key: &SessionKey, revision: Revision) -> Result<Event, EngineError> {
        let recorded = self.event(key, revision).await?;
        let recorded = recorded.ok_or(EngineError::Internal {
            doing: "find the answer of an earlier call",
            source: None,
        })?;
        Ok(recorded.event)
    }

    #[expect(clippy::unused_self, reason = "it reads as what it is about")]
    fn unreadable(&self, key: &SessionKey, error: DecodeError) -> EngineError {
        EngineError::Unreadable {
            key: key.clone(),
            error,
        }
    }
}
