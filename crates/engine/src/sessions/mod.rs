//! The sessions of this process: each loaded once, changed by one command at a time, and let go when
//! memory is wanted elsewhere.
//!
//! A change runs in a [`Transaction`]: commands are decided and applied in memory, then committed as
//! one append. Until the append is durable nobody else sees the state, and when it fails the state is
//! thrown away and read again. Not here: what any rpc means.

mod cache;
mod counting;
mod growth;
mod handle;
mod history;
mod lists;
mod load;
mod policies;
mod removal;
mod row;
mod storing;
mod transaction;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{Create, Rejection};
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_store::blobs::Blobs;
use palimpsest_store::encoding::DecodeError;
use palimpsest_store::{Lease, Position, SessionLog, StoreError, crash_point, error_chain};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{MutexGuard, Notify};
use tokio_util::sync::CancellationToken;

pub use self::cache::CacheStats;
use self::cache::SessionCache;
pub use self::counting::prepare;
use self::handle::{HandleState, LoadedSession, SessionHandle};
pub use self::handle::{SessionChange, Watcher};
pub use self::lists::SessionPage;
pub use self::load::PastSession;
use self::load::SessionReader;
pub use self::policies::DefaultPolicies;
use self::storing::Uploads;
pub use self::transaction::{CommandOutcome, Transaction};
use crate::call::{CurrentCall, SPANS};
use crate::clock::Clock;
use crate::quotas::{QuotaExceeded, QuotaTracker};
use crate::tally::{EventTally, Observer, Unobserved};

/// How often a change is decided again because somebody else committed first.
const MAX_ATTEMPTS: usize = 8;
/// How often who watches a session looks at its log, where others may write to it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How much of a log is read at once.
pub const READ_BYTES: usize = 4 * 1024 * 1024;

/// Why a session could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The domain refuses the command.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// There is no such session.
    #[error("there is no session {0}")]
    NotFound(SessionKey),
    /// There is one already.
    #[error("there is a session {0} already")]
    Exists(SessionKey),
    /// The log could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the log holds cannot be understood.
    #[error("the log of {key} {error}")]
    Unreadable {
        /// Whose.
        key: SessionKey,
        /// Why.
        error: DecodeError,
    },
    /// The project may store no more.
    #[error("a quota is used up")]
    Quota(QuotaExceeded),
    /// The caller's time was over before the session was free.
    #[error("the call's time was over before its turn came")]
    Expired,
    /// An earlier session of that name is still being removed.
    #[error("an earlier session {0} is still being removed")]
    Deleting(SessionKey),
    /// Somebody else committed first, again and again.
    #[error("the session is being changed from elsewhere: try again")]
    Contended,
    /// The log does not hold the position that was read any more.
    #[error(
        "{0} is not the session that was read: it was deleted and created again, or the store went on from an \
         earlier state; read it again from its beginning"
    )]
    HistoryChanged(SessionKey),
    /// A deletion named a position, and the session is elsewhere.
    #[error("{0} has changed since it was looked at")]
    Moved(SessionKey),
}

/// What happens when there is no session of the name.
#[derive(Debug, Clone)]
pub enum MissingSession {
    /// It is created.
    Create(Create),
    /// The call is refused.
    Refuse,
}

/// What a step begins with, where others may write to the log too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// The session as its log says: what others wrote is seen.
    Fresh,
    /// The session as this process left it a moment ago, for steps that follow each other, as a worker's do. What others
    /// wrote since is seen when the step commits, and it is decided again then.
    Cached,
}

/// A session that somebody works on. Whatever comes of that, the cache learns what the session takes when it is over:
/// who loads it need not think of it.
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
        self.cache.weigh(self.key, self.state.weight_bytes());
    }
}

/// The sessions of this process.
pub struct Sessions {
    log: Arc<dyn SessionLog>,
    reader: SessionReader,
    cache: SessionCache,
    clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
    policies: DefaultPolicies,
    blobs: Option<Arc<Blobs>>,
    quotas: Option<Arc<QuotaTracker>>,
    wake: Arc<Notify>,
    /// Told whenever a session was deleted: what it leaves is to be removed.
    deletions: Arc<Notify>,
    in_hand: removal::RemovalsInProgress,
    unreadable_rows: lists::UnreadableRows,
    observer: Arc<dyn Observer>,
    /// Who this process is among those that share the log.
    process: String,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    /// Sessions on a log. `policies` seed new ones; at most about `cache_bytes` of them stay loaded.
    pub fn new(
        log: Arc<dyn SessionLog>,
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
            in_hand: removal::RemovalsInProgress::default(),
            unreadable_rows: lists::UnreadableRows::default(),
            observer: Arc::new(Unobserved),
            process: String::new(),
        }
    }

    /// The same as one of several processes on a log, under its own name.
    #[must_use]
    pub fn with_process(mut self, name: String) -> Self {
        self.process = name;
        self
    }

    /// The same with a place for large results; without one they stay in the view.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Arc<Blobs>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// The same where projects may store only so much.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Arc<QuotaTracker>) -> Self {
        self.quotas = Some(quotas);
        self
    }

    /// The same with an observer of what is committed.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Told whenever a session has become due for the worker.
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Told whenever a session was deleted and something of it may be left.
    pub fn deletions(&self) -> Arc<Notify> {
        Arc::clone(&self.deletions)
    }

    /// The log beneath.
    pub fn log(&self) -> &Arc<dyn SessionLog> {
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

    /// How full the memory for sessions is.
    pub fn cached(&self) -> CacheStats {
        self.cache.cached()
    }

    /// Waits for the turn to work on a session.
    async fn lock<'a>(
        &'a self,
        handle: &'a SessionHandle,
        key: &'a SessionKey,
    ) -> LockedSession<'a> {
        LockedSession {
            state: CurrentCall::wait(handle.lock()).await,
            cache: &self.cache,
            key,
        }
    }

    /// Looks at a session.
    pub async fn read<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<T, SessionsError> {
        self.read_from(ReadMode::Fresh, key, look).await
    }

    /// Looks at a session, with the position at which it is seen.
    pub async fn read_positioned<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&Session, Position) -> T,
    ) -> Result<T, SessionsError> {
        self.look_from(ReadMode::Fresh, key, |loaded| {
            look(&loaded.session, loaded.position())
        })
        .await
    }

    /// The same, for a step that may begin with what the one before it left.
    pub async fn read_from<T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<T, SessionsError> {
        self.look_from(begin, key, |loaded| look(&loaded.session))
            .await
    }

    async fn look_from<T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        look: impl FnOnce(&LoadedSession) -> T,
    ) -> Result<T, SessionsError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        let now = self.clock.monotonic();
        let begin = state.can_begin(begin, now);
        let loaded = state.begin(begin, &self.reader, key, now).await?;
        let seen = loaded.map(look);
        seen.ok_or_else(|| SessionsError::NotFound(key.clone()))
    }

    /// Looks at a session that holds all its contents.
    pub async fn read_whole<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<T, SessionsError> {
        self.look_at_whole(key, |loaded| look(&loaded.session))
            .await
    }

    async fn look_at_whole<T>(
        &self,
        key: &SessionKey,
        look: impl FnOnce(&LoadedSession) -> T,
    ) -> Result<T, SessionsError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        state.load(&self.reader, key).await?;
        state.load_content(&self.reader, key).await?;
        let seen = state.loaded().map(look);
        seen.ok_or_else(|| SessionsError::NotFound(key.clone()))
    }

    /// Changes a session: `decide` runs commands, the outcome is committed, and `finish` makes the
    /// answer of the state after it. When somebody else commits first, `decide` runs again upon the
    /// new state. Whichever of the two needs contents that are not in memory runs again when they are.
    pub async fn write<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, SessionsError> {
        self.write_from(ReadMode::Fresh, key, missing, decide, finish)
            .await
    }

    /// The same, for a step that may begin with what the one before it left.
    pub async fn write_from<D, T>(
        &self,
        begin: ReadMode,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, SessionsError> {
        let handle = self.cache.handle(key);
        let mut state = self.lock(&handle, key).await;
        let mut storing = Uploads::new(self.blobs.is_some());
        let mut begin = state.can_begin(begin, self.clock.monotonic());
        for _ in 0..MAX_ATTEMPTS {
            let (now, certain) = (self.clock.now(), self.clock.monotonic());
            let is_compared = begin == ReadMode::Fresh || !self.reader.is_shared();
            let loaded = state.begin(begin, &self.reader, key, certain).await?;
            begin = ReadMode::Fresh;
            // A call that waited too long for its turn, or for the session to be read, changes nothing, as
            // if it had never come.
            if !CurrentCall::begins() {
                return Err(SessionsError::Expired);
            }
            if loaded.is_none() && matches!(missing, MissingSession::Refuse) {
                return Err(SessionsError::NotFound(key.clone()));
            }
            if loaded.is_none() {
                // Before a result of the new one is stored beside those of the old one.
                Box::pin(self.give_free(key)).await?;
            }
            let creates = loaded.is_none();
            // Before anything is applied: what is refused leaves the session in memory as it is.
            let mut growth = growth::StorageGrowth::ask(self, key, creates).await;
            let mut transaction =
                Transaction::new(key, state.take(), now, &self.limits, storing.of_files())
                    .within(growth.allowed());
            if let (None, MissingSession::Create(create)) = (transaction.session(), missing) {
                transaction.create(create.clone())?;
            }
            let deciding = tracing::debug_span!(target: SPANS, "decide");
            let decided = match deciding.in_scope(|| decide(&mut transaction)) {
                Ok(decided) => decided,
                Err(_) if transaction.is_refused() => {
                    let refused = growth.refusal(&transaction);
                    state.put_back(transaction);
                    return Err(refused.unwrap_or(SessionsError::Contended));
                }
                Err(Rejection::ContentNotLoaded) => {
                    // What was applied so far is thrown away with its session, unless nothing was.
                    state.put_back(transaction);
                    state.load(&self.reader, key).await?;
                    match state.load_content(&self.reader, key).await {
                        // Where it was deleted elsewhere, it is decided upon what is there now.
                        Ok(()) | Err(SessionsError::NotFound(_)) => continue,
                        Err(error) => return Err(error),
                    }
                }
                Err(rejection) => {
                    state.put_back(transaction);
                    if !is_compared {
                        continue;
                    }
                    return Err(rejection.into());
                }
            };
            if !is_compared && transaction.events().is_empty() {
                // No append will tell whether it still is as it was left.
                state.put_back(transaction);
                continue;
            }
            crash_point("session.decided");
            if let Some(refused) = growth.refusal(&transaction) {
                state.put_back(transaction);
                return Err(refused);
            }
            let bytes = transaction.blob_bytes();
            if !transaction.blobs().is_empty() {
                let stored = storing.store(self, key, transaction.blobs(), now);
                if let Err(error) = Box::pin(stored).await {
                    let error = error_chain(&error);
                    tracing::warn!(session = %key, error, "failed to store a result; it stays in the view");
                    state.put_back(transaction);
                    storing.give_up();
                    continue;
                }
            }
            crash_point("session.stored");
            // The commit consumes the events, so they are counted before it.
            let tally = EventTally::of(transaction.events());
            match state
                .commit(&self.log, key, transaction, (&self.wake, &*self.clock))
                .await
            {
                Ok(loaded) => {
                    crash_point("session.committed");
                    growth.count(self, key, bytes);
                    self.observer.committed(&tally);
                    handle.announce(loaded.session.revision());
                    let rendering = tracing::debug_span!(target: SPANS, "render");
                    let mut answer = rendering.in_scope(|| finish(&loaded.session, &decided));
                    if answer.is_err() {
                        state.load_content(&self.reader, key).await?;
                        let loaded = state.loaded();
                        answer =
                            loaded.map_or(Err(ContentNotLoaded), |l| finish(&l.session, &decided));
                    }
                    return Ok(answer.map_err(Rejection::from)?);
                }
                Err(StoreError::Conflict { .. } | StoreError::Deleting(_)) => {}
                // So late that a sweep has removed the files: they are stored anew, under names of their own.
                Err(StoreError::IntentRevoked(_)) => storing = Uploads::new(self.blobs.is_some()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(SessionsError::Contended)
    }

    /// [`Self::write`], or for a dry run the same on a copy that is thrown away.
    pub async fn run<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        dry_run: bool,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, SessionsError> {
        if dry_run {
            self.rehearse(key, missing, decide, finish).await
        } else {
            self.write(key, missing, decide, finish).await
        }
    }

    /// Looks at a session as it would be after some commands, and changes nothing.
    async fn rehearse<D, T>(
        &self,
        key: &SessionKey,
        missing: &MissingSession,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, Rejection>,
        finish: impl Fn(&Session, &D) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, SessionsError> {
        let copy = |loaded: &LoadedSession| LoadedSession {
            incarnation: loaded.incarnation,
            ..LoadedSession::new(loaded.session.clone())
        };
        let copy = match self.look_at_whole(key, copy).await {
            Ok(copy) => Some(copy),
            Err(SessionsError::NotFound(_)) if matches!(missing, MissingSession::Create(_)) => None,
            Err(error) => return Err(error),
        };
        let mut transaction = Transaction::new(
            key,
            copy,
            self.clock.now(),
            &self.limits,
            Uploads::new(self.blobs.is_some()).of_files(),
        );
        if let (None, MissingSession::Create(create)) = (transaction.session(), missing) {
            transaction.create(create.clone())?;
        }
        let decided = decide(&mut transaction)?;
        let loaded = transaction
            .loaded_mut()
            .ok_or_else(|| SessionsError::NotFound(key.clone()))?;
        if let Ok(answer) = finish(&loaded.session, &decided) {
            return Ok(answer);
        }
        // A command may have brought messages back into the view whose contents nobody held.
        self.reader.load_content(key, loaded).await?;
        Ok(finish(&loaded.session, &decided).map_err(Rejection::from)?)
    }

    /// The session as it was at a revision, with all its contents: its log is folded again up to
    /// there. None when it never was at that revision.
    pub async fn past(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<PastSession>, SessionsError> {
        self.reader.past(key, revision).await
    }

    /// Follows a session's changes.
    pub fn watch(&self, key: &SessionKey) -> Watcher {
        let look_every = self.reader.is_shared().then_some(LOOK_EVERY);
        Watcher::new(self.cache.handle(key), look_every)
    }

    /// Passes on to watchers what others tell, until `stop`.
    pub async fn follow_hints(self: Arc<Self>, stop: CancellationToken) {
        let Some(mut hints) = self.log.hints() else {
            return;
        };
        while let Some(heard) = stop.run_until_cancelled(hints.recv()).await {
            match heard {
                Ok(key) => {
                    if let Some(handle) = self.cache.known(&key) {
                        handle.announce_elsewhere();
                    }
                }
                // What was missed is found by looking.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Whether a duty that one of the processes on the log has at a time is this one's, for so long.
    pub async fn claim_leader_task(
        &self,
        duty: &'static str,
        time: Duration,
    ) -> Result<bool, SessionsError> {
        let now = self.clock.now();
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let lease = Lease {
            owner: self.process.clone(),
            until: Timestamp::from_millis(now.as_millis().saturating_add(millis)),
        };
        Ok(self.log.claim_leader_task(duty, lease, now).await?)
    }

    /// Where a session stands, as the log says it.
    pub async fn position(&self, key: &SessionKey) -> Result<Position, SessionsError> {
        let head = self.log.head(key).await?;
        let head = head.ok_or_else(|| SessionsError::NotFound(key.clone()))?;
        Ok(head.position())
    }

    /// Events after a revision, oldest first, with their revisions: about `bytes` of them as stored.
    pub async fn events(
        &self,
        key: &SessionKey,
        after: Revision,
        bytes: usize,
    ) -> Result<Vec<(Revision, RecordedEvent)>, SessionsError> {
        let Some(head) = self.log.head(key).await? else {
            return Ok(Vec::new());
        };
        let frames = self.log.read(key, head.position().at(after), bytes).await?;
        let decoded = tokio::task::spawn_blocking(move || load::decode_frames(&frames, None));
        let events = load::joined(decoded)
            .await
            .map_err(|error| self.unreadable(key, error))?;
        let later = events.into_iter().filter(|(revision, _)| *revision > after);
        Ok(later.collect())
    }

    /// One event.
    pub async fn event(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<RecordedEvent>, SessionsError> {
        let Some(head) = self.log.head(key).await? else {
            return Ok(None);
        };
        let before = Revision::new(revision.get().saturating_sub(1));
        let frames = self.log.read(key, head.position().at(before), 1).await?;
        let events =
            load::decode_frames(&frames, None).map_err(|error| self.unreadable(key, error))?;
        Ok(events
            .into_iter()
            .find_map(|(at, event)| (at == revision).then_some(event)))
    }

    #[expect(clippy::unused_self, reason = "it reads as what it is about")]
    fn unreadable(&self, key: &SessionKey, error: DecodeError) -> SessionsError {
        SessionsError::Unreadable {
            key: key.clone(),
            error,
        }
    }
}
