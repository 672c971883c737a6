//! One session in memory: its state, its commands one at a time, and who watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palimpsest_core::command::memory_due;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_store::encoding::encode_snapshot;
use palimpsest_store::{Batch, DueChange, Position, SessionLog, StoreError};
use tokio::sync::{Mutex, MutexGuard, Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::load::SessionReader;
use super::transaction::Transaction;
use super::{ReadMode, SessionsError, load, row};
use crate::call::SPANS;
use crate::clock::Clock;

/// Below this much log, replaying is as fast as a snapshot.
const MIN_TAIL_BYTES: u64 = 128 * 1024;
/// A snapshot is taken when this many times as much log has come as the last one had: loading reads a
/// few milliseconds more, and a snapshot takes its time from fewer calls.
const TAIL_TO_SNAPSHOT: u64 = 4;

/// How long a step may go by what an earlier one has seen of the log: longer than most of a worker's passes, and so much
/// less than a lease that nobody else has it by then. Whoever waited for a model, or was held up, looks again.
const A_MOMENT: Duration = Duration::from_millis(200);

/// One session in memory.
#[derive(Debug)]
pub(super) struct SessionHandle {
    /// The queue of commands: each holds it from its decision until its commit is durable, so that
    /// the next decides upon what is certain. Commands of other sessions never wait here.
    state: Mutex<HandleState>,
    changed: watch::Sender<SessionChange>,
}

/// What watchers are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionChange {
    /// The last revision that this process committed; zero when it has not yet.
    pub revision: Revision,
    /// Whether the session was deleted.
    pub deleted: bool,
}

/// What is known of the session.
#[derive(Debug, Default)]
pub(super) struct HandleState {
    loaded: Option<LoadedSession>,
    /// When it was certain that the log stands there, by the clock that only moves forward.
    certain: Duration,
}

/// A session, and how much of its log a load would have to read.
#[derive(Debug)]
pub(super) struct LoadedSession {
    pub(super) session: Session,
    /// Which session of its name; none has zero, which is one that was not committed yet.
    pub(super) incarnation: u64,
    /// By which append it stands where it does, as the log tells them apart.
    pub(super) token: u64,
    pub(super) tail_bytes: u64,
    /// What the last snapshot takes; it is known when that has been encoded.
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

    /// Where it stands.
    pub(super) fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation,
            revision: self.session.revision(),
            token: self.token,
        }
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

    /// Takes the session out of memory, unless somebody works on it. The next who does reads it again.
    pub(super) fn release(&self) -> Option<LoadedSession> {
        self.state.try_lock().ok()?.take()
    }

    pub(super) fn announce(&self, revision: Revision) {
        self.changed.send_if_modified(|change| {
            let later = SessionChange {
                revision,
                deleted: false,
            };
            let news = *change != later;
            *change = later;
            news
        });
    }

    /// Has watchers look: somebody else may have changed the session.
    pub(super) fn announce_elsewhere(&self) {
        if self.changed.receiver_count() > 0 {
            self.changed.send_modify(|_| ());
        }
    }

    pub(super) fn announce_deletion(&self) {
        self.changed.send_modify(|change| change.deleted = true);
    }
}

impl HandleState {
    /// The session as its log says: read from there when it is not in memory, and when others may have written
    /// too, with what they wrote since.
    pub(super) async fn load(
        &mut self,
        reader: &SessionReader,
        key: &SessionKey,
    ) -> Result<Option<&LoadedSession>, SessionsError> {
        if reader.is_shared()
            && let Some(loaded) = &mut self.loaded
            && !Box::pin(reader.follow(key, loaded)).await?
        {
            self.loaded = None;
        }
        if self.loaded.is_none() {
            // On the heap: most calls find the session in memory and should not carry this.
            let loading = tracing::debug_span!(target: SPANS, "session.load");
            self.loaded = Box::pin(reader.load(key).instrument(loading)).await?;
        }
        Ok(self.loaded.as_ref())
    }

    /// How a step can begin that would begin so: what is not certain any more is compared.
    pub(super) fn can_begin(&self, begin: ReadMode, now: Duration) -> ReadMode {
        let is_certain = now.saturating_sub(self.certain) < A_MOMENT;
        if self.loaded.is_some() && is_certain {
            return begin;
        }
        ReadMode::Fresh
    }

    /// The session, for a step that can begin so.
    pub(super) async fn begin(
        &mut self,
        begin: ReadMode,
        reader: &SessionReader,
        key: &SessionKey,
        now: Duration,
    ) -> Result<Option<&LoadedSession>, SessionsError> {
        if begin == ReadMode::Fresh {
            self.load(reader, key).await?;
            self.certain = now;
        }
        Ok(self.loaded.as_ref())
    }

    /// The session as it is in memory.
    pub(super) fn loaded(&self) -> Option<&LoadedSession> {
        self.loaded.as_ref()
    }

    /// Reads the contents that the session does not hold.
    pub(super) async fn load_content(
        &mut self,
        reader: &SessionReader,
        key: &SessionKey,
    ) -> Result<(), SessionsError> {
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

    pub(super) fn take(&mut self) -> Option<LoadedSession> {
        self.loaded.take()
    }

    /// Keeps the session of a transaction that came to nothing, when it is still what the log says.
    pub(super) fn put_back(&mut self, transaction: Transaction<'_>) {
        self.loaded = transaction.into_unchanged();
    }

    /// Makes a transaction's events durable. When that fails, the session is forgotten, because it is
    /// ahead of its log.
    pub(super) async fn commit(
        &mut self,
        log: &Arc<dyn SessionLog>,
        key: &SessionKey,
        transaction: Transaction<'_>,
        (wake, clock): (&Notify, &dyn Clock),
    ) -> Result<&LoadedSession, StoreError> {
        let now = transaction.now();
        let (blob_bytes, settles) = (transaction.blob_bytes(), transaction.files());
        let (loaded, before, append) = transaction.into_parts();
        let Some(mut loaded) = loaded else {
            return Err(StoreError::Closed);
        };
        if let Some((events, frame)) = append {
            let frame_bytes = frame.len() as u64;
            let due = memory_due(&loaded.session, now);
            let batch = Batch {
                expected: Position {
                    revision: before,
                    ..loaded.position()
                },
                events,
                frame,
                summary: row::encode(loaded.session.about()),
                due: due.map_or(DueChange::Keep, |due| DueChange::at(due, now)),
                blob_bytes,
                settles,
            };
            self.certain = clock.monotonic();
            let appending =
                tracing::debug_span!(target: SPANS, "store.append", bytes = frame_bytes);
            let stands = log.append(key, batch).instrument(appending).await?;
            (loaded.incarnation, loaded.token) = (stands.incarnation, stands.token);
            if due.is_some_and(|due| due <= now) {
                wake.notify_one();
            }
            loaded.tail_bytes += frame_bytes;
            let last = loaded.snapshot_bytes.load(Ordering::Relaxed);
            if loaded.tail_bytes > (TAIL_TO_SNAPSHOT * last).max(MIN_TAIL_BYTES) {
                snapshot(log, key, &mut loaded);
            }
        }
        Ok(self.loaded.insert(loaded))
    }
}

/// Takes a snapshot in the background. It only saves work: when it fails, the next one is tried after
/// as much log again.
fn snapshot(log: &Arc<dyn SessionLog>, key: &SessionKey, loaded: &mut LoadedSession) {
    let snapshot = loaded.session.snapshot();
    loaded.tail_bytes = 0;
    let size = Arc::clone(&loaded.snapshot_bytes);
    let (log, key, at) = (Arc::clone(log), key.clone(), loaded.position());
    tokio::spawn(async move {
        let bytes = load::joined(spawn_blocking(move || encode_snapshot(&snapshot))).await;
        size.store(bytes.len() as u64, Ordering::Relaxed);
        if let Err(error) = log.put_snapshot(&key, at, bytes).await {
            tracing::warn!(session = %key, %error, "failed to keep a snapshot; loads will be slower");
        }
    });
}

/// Follows a session's changes. As long as one is there, the session's handle stays the only one.
#[derive(Debug)]
pub struct Watcher {
    /// Held so that the handle is not let go: a change must find its watchers. The session behind it may leave memory.
    _handle: Arc<SessionHandle>,
    changes: watch::Receiver<SessionChange>,
    /// How often the log is to be looked at, because others may write to it.
    look_every: Option<Duration>,
}

impl Watcher {
    pub(super) fn new(handle: Arc<SessionHandle>, look_every: Option<Duration>) -> Self {
        let changes = handle.changed.subscribe();
        Self {
            _handle: handle,
            changes,
            look_every,
        }
    }

    /// Waits for a change that was not seen yet, or for the time to look whether there was one. Changes that come
    /// together are told once.
    pub async fn changed(&mut self) -> SessionChange {
        let changed = self.changes.changed();
        // The sender lives as long as the handle, and the handle as long as this.
        let _ = match self.look_every {
            Some(every) => timeout(every, changed).await.unwrap_or(Ok(())),
            None => changed.await,
        };
        *self.changes.borrow_and_update()
    }
}
