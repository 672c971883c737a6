//! Sessions of this process. Each session is loaded once, changed by one command at a time, and evicted when the
//! cache is over its limit.
//!
//! A change runs in a [`Transaction`]: commands are decided and applied in memory, then committed as one append. No
//! other call sees the new state before the append is durable. After a failed append the state in memory is discarded
//! and read again from the log. The meaning of each rpc is defined in the server, not here.

mod cache;
mod change;
mod dry_run;
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
mod uploads;
mod wait;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{CreateSession, Rejection};
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::Session;
use palimpsest_store::blobs::Blobs;
use palimpsest_store::encoding::DecodeError;
use palimpsest_store::{Lease, Position, Store};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{MutexGuard, Notify};
use tokio_util::sync::CancellationToken;

pub use self::cache::CacheStats;
use self::cache::SessionCache;
pub use self::change::Changed;
pub(crate) use self::change::tips_of;
pub use self::dry_run::DryRun;
pub use self::estimator_warmup::warm_up;
use self::handle::{HandleState, LoadedSession, SessionHandle};
pub use self::handle::{SessionChange, Watcher};
pub use self::lists::SessionPage;
pub use self::load::PastSession;
use self::load::SessionReader;
pub use self::policies::DefaultPolicies;
pub(crate) use self::row::parent_in_row;
pub use self::transaction::{CommandOutcome, Transaction};
use crate::EngineError;
use crate::call::CurrentCall;
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

    /// Returns the session as it was at a revision, with all its contents. The log is replayed up to that revision.
    /// Returns `None` if the session never had it.
    pub async fn session_at(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<PastSession>, EngineError> {
        self.reader.session_at(key, revision).await
    }

    /// Returns the session as it was at a revision, as [`Self::session_at`] does. Fails if the session never had it.
    /// `current` is the session's revision, for the error.
    pub async fn past_session(
        &self,
        key: &SessionKey,
        revision: Revision,
        current: Revision,
    ) -> Result<PastSession, EngineError> {
        let past = self.session_at(key, revision).await?;
        Ok(past.ok_or(Rejection::RevisionNotFound { revision, current })?)
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
        let lease = Lease {
            owner: self.process.clone(),
            until: now.plus(time),
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
