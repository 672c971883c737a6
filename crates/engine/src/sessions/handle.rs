//! One session in memory: its state, the lock that orders its commands, and its watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_store::encoding::encode_snapshot;
use palimpsest_store::{Position, Store};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::load::SessionReader;
use super::transaction::Transaction;
use super::{ReadMode, load};
use crate::EngineError;
use crate::call::SPANS;

/// Bytes of log below which no snapshot is taken, because replaying is as fast.
const MIN_TAIL_BYTES: u64 = 128 * 1024;
/// Ratio of new log bytes to the size of the last snapshot at which the next snapshot is taken. A higher ratio costs
/// a few milliseconds per load and saves snapshot work during calls.
const SNAPSHOT_TAIL_FACTOR: u64 = 4;

/// Maximum age of a comparison with the log that a cached step may rely on. The value exceeds most worker passes and is
/// far below a lease, so the lease cannot have changed hands meanwhile. A step after a longer wait compares again.
const CACHED_MAX_AGE: Duration = Duration::from_millis(200);

/// One session in memory.
#[derive(Debug)]
pub(super) struct SessionHandle {
    /// The lock of the session. A command holds it from its decision until its commit is durable, so the next command
    /// decides on committed state. Commands of other sessions use other locks.
    state: Mutex<HandleState>,
    changed: watch::Sender<SessionChange>,
}

/// A change of a session, as watchers receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionChange {
    /// The last revision that this process committed, or zero if it has committed none.
    pub revision: Revision,
    /// True if the session was deleted.
    pub deleted: bool,
}

/// The state behind the lock of a session.
#[derive(Debug, Default)]
pub(super) struct HandleState {
    /// Boxed, because commands move the session between their steps.
    loaded: Option<Box<LoadedSession>>,
    /// Monotonic time of the last comparison with the log.
    verified_at: Duration,
}

/// A loaded session, with its position in the log and the amount of log that a load would have to read.
#[derive(Debug)]
pub(super) struct LoadedSession {
    pub(super) session: Session,
    /// The incarnation of the session, or zero if it was not committed yet.
    pub(super) incarnation: u64,
    /// The token of the last append.
    pub(super) token: u64,
    pub(super) tail_bytes: u64,
    /// Size in bytes of the last snapshot. A background task sets it when the snapshot is encoded.
    pub(super) snapshot_bytes: Arc<AtomicU64>,
}

impl LoadedSession {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            incarnation: 0,
            token: 0,
            tail_bytes: 0,
            snapshot_bytes: Arc::default(),
        }
    }

    /// The position of the session in memory.
    pub(super) fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation,
            revision: self.session.revision(),
            token: self.token,
        }
    }

    /// Takes a snapshot in the background if a load would have to read much log. A snapshot only makes loads faster.
    /// After a failure the next one is tried after the same amount of log.
    pub(super) fn take_snapshot_if_due(&mut self, log: &Arc<dyn Store>, key: &SessionKey) {
        let last = self.snapshot_bytes.load(Ordering::Relaxed);
        if self.tail_bytes <= (SNAPSHOT_TAIL_FACTOR * last).max(MIN_TAIL_BYTES) {
            return;
        }
        let snapshot = self.session.snapshot();
        // Reset before the snapshot is stored, so that commits meanwhile do not start a second one.
        self.tail_bytes = 0;
        let size = Arc::clone(&self.snapshot_bytes);
        // The store ignores the snapshot if the session at this position was replaced meanwhile.
        let (log, key, at) = (Arc::clone(log), key.clone(), self.position());
        tokio::spawn(async move {
            let bytes =
                load::join_blocking(spawn_blocking(move || encode_snapshot(&snapshot))).await;
            size.store(bytes.len() as u64, Ordering::Relaxed);
            if let Err(error) = log.put_snapshot(&key, at, bytes).await {
                tracing::warn!(session = %key, %error, "failed to keep a snapshot; loads will be slower");
            }
        });
    }
}

impl SessionHandle {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(SessionChange::default()),
        }
    }

    pub(super) async fn lock(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().await
    }

    /// Removes the session from memory and returns it, unless the lock is held. The next use loads it again.
    pub(super) fn release(&self) -> Option<Box<LoadedSession>> {
        // The cache calls this function under its own lock, and a locked session takes that lock on drop. Waiting here
        // would deadlock.
        self.state.try_lock().ok()?.take()
    }

    pub(super) fn notify(&self, revision: Revision) {
        // A repeated announcement of the same revision must not wake watchers.
        self.changed.send_if_modified(|change| {
            // A new session of the same name also clears the flag of the deleted one.
            let later = SessionChange {
                revision,
                deleted: false,
            };
            let news = *change != later;
            *change = later;
            news
        });
    }

    /// Wakes watchers so that they check the log, because another process may have changed the session.
    pub(super) fn notify_remote_change(&self) {
        if self.changed.receiver_count() > 0 {
            // The call wakes the watchers even without a new value, and the new revision is unknown here.
            self.changed.send_modify(|_| ());
        }
    }

    pub(super) fn notify_deletion(&self) {
        self.changed.send_modify(|change| change.deleted = true);
    }
}

impl HandleState {
    /// Returns the session at the state of the log. Loads it if it is not in memory. If other processes may write,
    /// their events since the last comparison are applied.
    pub(super) async fn load(
        &mut self,
        reader: &SessionReader,
        key: &SessionKey,
    ) -> Result<Option<&LoadedSession>, EngineError> {
        if reader.is_shared()
            && let Some(loaded) = &mut self.loaded
            && !Box::pin(reader.refresh(key, loaded)).await?
        {
            self.loaded = None;
        }
        if self.loaded.is_none() {
            // Boxed because most calls find the session in memory, and the load would enlarge every call's future.
            let loading = tracing::debug_span!(target: SPANS, "session.load");
            let loaded = Box::pin(reader.load(key).instrument(loading)).await?;
            self.loaded = loaded.map(Box::new);
        }
        Ok(self.loaded.as_deref())
    }

    /// Returns the read mode that a step can use. A cached step becomes fresh if the last comparison with the log is
    /// too old.
    pub(super) fn read_mode(&self, begin: ReadMode, now: Duration) -> ReadMode {
        let is_certain = now.saturating_sub(self.verified_at) < CACHED_MAX_AGE;
        if self.loaded.is_some() && is_certain {
            return begin;
        }
        ReadMode::Fresh
    }

    /// Returns the session in the given mode, which must come from [`Self::read_mode`].
    pub(super) async fn begin(
        &mut self,
        begin: ReadMode,
        reader: &SessionReader,
        key: &SessionKey,
        now: Duration,
    ) -> Result<Option<&LoadedSession>, EngineError> {
        if begin == ReadMode::Fresh {
            self.load(reader, key).await?;
            self.mark_compared(now);
        }
        Ok(self.loaded.as_deref())
    }

    /// Records a comparison with the log that began at `now`, in monotonic time.
    pub(super) fn mark_compared(&mut self, now: Duration) {
        self.verified_at = now;
    }

    /// The session in memory, without a comparison with the log.
    pub(super) fn loaded(&self) -> Option<&LoadedSession> {
        self.loaded.as_deref()
    }

    /// Loads the message contents that the session does not hold.
    pub(super) async fn load_content(
        &mut self,
        reader: &SessionReader,
        key: &SessionKey,
    ) -> Result<(), EngineError> {
        match &mut self.loaded {
            Some(loaded) => Box::pin(reader.load_content(key, loaded)).await,
            None => Ok(()),
        }
    }

    pub(super) fn weight_bytes(&self) -> usize {
        self.loaded
            .as_ref()
            .map_or(0, |loaded| loaded.session.weight_bytes())
    }

    pub(super) fn forget(&mut self) {
        self.loaded = None;
    }

    pub(super) fn take(&mut self) -> Option<Box<LoadedSession>> {
        self.loaded.take()
    }

    /// Keeps the session of an abandoned transaction if no event was applied to it. Otherwise the session is dropped,
    /// because it is ahead of its log.
    pub(super) fn put_back(&mut self, transaction: Transaction<'_>) {
        self.loaded = transaction.into_session_if_unchanged();
    }

    /// Keeps a session in memory.
    pub(super) fn insert(&mut self, loaded: Box<LoadedSession>) -> &mut LoadedSession {
        self.loaded.insert(loaded)
    }
}

/// Follows a session's changes. The session's handle stays in the cache as long as a watcher exists.
#[derive(Debug)]
pub struct Watcher {
    /// Keeps the handle from being evicted, so that a change finds its watchers. The session behind it may leave
    /// memory.
    _handle: Arc<SessionHandle>,
    changes: watch::Receiver<SessionChange>,
    /// Interval of log checks, if other processes may write to the log.
    poll_interval: Option<Duration>,
}

impl Watcher {
    pub(super) fn new(handle: Arc<SessionHandle>, poll_interval: Option<Duration>) -> Self {
        let changes = handle.changed.subscribe();
        Self {
            _handle: handle,
            changes,
            poll_interval,
        }
    }

    /// Waits for a change, or until the next log check is due. Changes that arrive together are reported once.
    pub async fn changed(&mut self) -> SessionChange {
        let changed = self.changes.changed();
        // The error case cannot occur: the sender lives in the handle, and this watcher keeps the handle.
        let _ = match self.poll_interval {
            Some(every) => timeout(every, changed).await.unwrap_or(Ok(())),
            None => changed.await,
        };
        *self.changes.borrow_and_update()
    }
}
