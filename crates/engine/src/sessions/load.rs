//! Loads a session from its log: the last snapshot, the events after it, and the message contents that the next turns
//! need. Other contents are read on demand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::Message;
use palimpsest_core::session::{ReplayError, Session, Snapshot};
use palimpsest_store::encoding::{DecodeError, decode_frame, decode_snapshot};
use palimpsest_store::{Frame, Position, SessionHead, SessionLog, Store};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};

use super::estimator_warmup::warm_up;
use super::handle::LoadedSession;
use super::{MAX_ATTEMPTS, READ_BYTES};
use crate::EngineError;

/// Latest messages whose contents are loaded with a session.
const TAIL_MESSAGES: usize = 32;

/// Concurrent loads for each core, and the minimum. Decoding takes most of the time.
const LOADS_PER_CORE: usize = 2;
const MIN_LOADS: usize = 4;

const NOT_CREATED: DecodeError =
    DecodeError::Damaged("it does not begin with the session's creation");
const CUT_OFF: DecodeError = DecodeError::Damaged("it ends before the revision in its head");
const CREATED_TWICE: DecodeError = DecodeError::Damaged("it creates the session twice");

type RevisionedEvents = Vec<(Revision, RecordedEvent)>;

/// Reads sessions, with a limit of concurrent loads. During a load a session takes many times the bytes of its log,
/// and the cache does not count them.
pub(super) struct SessionReader {
    log: Arc<dyn SessionLog>,
    /// True if other processes may write to the log.
    is_shared: bool,
    load_permits: Semaphore,
}

impl SessionReader {
    pub(super) fn new(log: Arc<dyn Store>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            is_shared: !log.is_exclusive(),
            log,
            load_permits: Semaphore::new((cores * LOADS_PER_CORE).max(MIN_LOADS)),
        }
    }

    /// Returns true if other processes may write to the log, so that the state in memory may be outdated.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Applies the events that the log holds beyond the session in memory. Returns false if the session must be
    /// loaded again. Reasons are another incarnation, a store that lost committed events, and too much missing log.
    pub(super) async fn refresh(
        &self,
        key: &SessionKey,
        loaded: &mut LoadedSession,
    ) -> Result<bool, EngineError> {
        let Some(head) = self.log.head(key).await? else {
            return Ok(false);
        };
        if head.position() == loaded.position() {
            return Ok(true);
        }
        // Permits limit decoding, so a session that is at the head needs none.
        let _room = self.load_permits.acquire().await;
        self.catch_up(key, loaded, &head).await
    }

    /// Applies the missing events up to the given head. Returns false if the log does not continue the session in
    /// memory.
    async fn catch_up(
        &self,
        key: &SessionKey,
        loaded: &mut LoadedSession,
        head: &SessionHead,
    ) -> Result<bool, EngineError> {
        let stands = loaded.position();
        if head.incarnation != stands.incarnation || head.revision <= stands.revision {
            return Ok(head.position() == stands);
        }
        // One read only: a session that lacks more is loaded again from its snapshot. The read returns nothing if the
        // log does not continue this position.
        let frames = self.log.read(key, stands, READ_BYTES).await?;
        // Events after this head stay unread, because the token and the sizes below describe this head.
        let last = head.revision;
        let decoded = spawn_blocking(move || decode_frames(&frames, Some(last)));
        let log = self.of(key, head.incarnation);
        for (_, recorded) in join_blocking(decoded)
            .await
            .map_err(|e| log.unreadable(e))?
        {
            if loaded.session.apply(&recorded).is_err() {
                return Ok(false);
            }
        }
        loaded.token = head.token;
        loaded.tail_bytes = head.tail_bytes;
        let snapshot = head.snapshot.map_or(0, |mark| mark.bytes);
        loaded.snapshot_bytes.store(snapshot, Ordering::Relaxed);
        Ok(loaded.session.revision() == last)
    }

    /// Loads a session, or returns `None` if it has no log.
    pub(super) async fn load(
        &self,
        key: &SessionKey,
    ) -> Result<Option<LoadedSession>, EngineError> {
        let _room = self.load_permits.acquire().await;
        let mut stands = self.log.head(key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let Some(head) = stands else {
                return Ok(None);
            };
            let log = self.of(key, head.incarnation);
            let read = log.load(&head).await;
            // An exclusive log cannot change during the load, so the result is final.
            if let (Ok(_), false) = (&read, self.is_shared) {
                return read.map(Some);
            }
            // The load takes several reads. Between them another process may append or delete, and a failover may
            // bring back an earlier state of the store.
            let now = self.log.head(key).await?;
            let is_same = now.as_ref().map(SessionHead::position) == Some(head.position());
            // An error counts only if the log is unchanged. Otherwise a concurrent change may have caused it, and the
            // load is repeated.
            match read {
                Err(error) if is_same => return Err(error),
                Ok(loaded) if is_same && loaded.session.revision() < head.revision => {
                    return Err(log.unreadable(CUT_OFF));
                }
                Ok(mut loaded) => {
                    if let Some(now) = &now
                        && self.catch_up(key, &mut loaded, now).await?
                    {
                        return Ok(Some(loaded));
                    }
                }
                Err(_) => {}
            }
            stands = now;
        }
        Err(EngineError::Contended)
    }

    /// Loads the message contents that a session does not hold.
    pub(super) async fn load_content(
        &self,
        key: &SessionKey,
        loaded: &mut LoadedSession,
    ) -> Result<(), EngineError> {
        let Some(first) = loaded.session.transcript().first_unloaded() else {
            return Ok(());
        };
        let _room = self.load_permits.acquire().await;
        let log = self.of(key, loaded.incarnation);
        let Err(error) = log.load_content(&mut loaded.session, first).await else {
            return Ok(());
        };
        // A deletion by another process leaves gaps that look like damage, so the head is compared before the error is
        // reported.
        self.explain_read_error(key, loaded.incarnation, error)
            .await?;
        Err(EngineError::SessionNotFound(key.clone()))
    }

    /// Returns the error of a read, unless the session was deleted meanwhile.
    async fn explain_read_error(
        &self,
        key: &SessionKey,
        incarnation: u64,
        met: EngineError,
    ) -> Result<(), EngineError> {
        let head = self.log.head(key).await?;
        match head.filter(|head| head.incarnation == incarnation) {
            Some(_) => Err(met),
            None => Ok(()),
        }
    }

    /// Returns a session as it was at a revision, or `None` if its log is shorter.
    pub(super) async fn session_at(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<PastSession>, EngineError> {
        let _room = self.load_permits.acquire().await;
        let Some(head) = self.log.head(key).await? else {
            return Ok(None);
        };
        match self.of(key, head.incarnation).session_at(revision).await {
            Ok(past) => Ok(past),
            Err(error) => {
                self.explain_read_error(key, head.incarnation, error)
                    .await?;
                Ok(None)
            }
        }
    }

    fn of<'a>(&'a self, key: &'a SessionKey, incarnation: u64) -> SessionLogView<'a> {
        SessionLogView {
            store: &*self.log,
            key,
            incarnation,
        }
    }
}

/// A session at an earlier revision, and the messages that were appended after it.
#[derive(Debug)]
pub struct PastSession {
    /// The session.
    pub session: Session,
    /// The messages.
    pub later: Vec<Arc<Message>>,
}

/// The log of one session.
struct SessionLogView<'a> {
    store: &'a dyn SessionLog,
    key: &'a SessionKey,
    incarnation: u64,
}

impl SessionLogView<'_> {
    async fn load(&self, head: &SessionHead) -> Result<LoadedSession, EngineError> {
        let session = match self.store.snapshot(self.key, self.incarnation).await? {
            None => {
                let events = self.events(Revision::new(1), Some(head.revision)).await?;
                let log = events.into_iter().map(|(_, recorded)| recorded);
                let session = Session::replay(self.key.clone(), log);
                session.map_err(|_| self.unreadable(NOT_CREATED))?
            }
            Some(snapshot) => {
                let owned = self.key.clone();
                let decoded = spawn_blocking(move || decode_snapshot(owned, &snapshot.bytes));
                let snapshot = join_blocking(decoded)
                    .await
                    .map_err(|e| self.unreadable(e))?;
                self.replay_snapshot(snapshot, head.revision).await?
            }
        };
        // The first use of a vocabulary takes long, so it is prepared before a command counts tokens.
        warm_up(session.counter()).await;
        Ok(LoadedSession {
            session,
            incarnation: self.incarnation,
            token: head.token,
            tail_bytes: head.tail_bytes,
            snapshot_bytes: Arc::new(head.snapshot.map_or(0, |mark| mark.bytes).into()),
        })
    }

    async fn replay_snapshot(
        &self,
        snapshot: Snapshot,
        until: Revision,
    ) -> Result<Session, EngineError> {
        // Two ranges of contents are needed: the end of the transcript, and a lead before it. The events between them
        // stay unread.
        let at = snapshot.revision;
        let needed = snapshot.content_range(TAIL_MESSAGES);
        let from = needed.tail.unwrap_or(at.plus(1));
        // On a shared log another process may store a newer snapshot after the head was read. The snapshot can then be
        // ahead of `until`.
        let mut end = self.events(from, Some(until.max(at))).await?;
        let mut contents = Vec::new();
        // A lead that begins at or after `from` was read with the end already.
        if let Some(lead) = needed.lead.filter(|lead| *lead.start() < from) {
            let (first, last) = lead.into_inner();
            contents = messages(&self.events(first, Some(last)).await?);
        }
        let later = end.partition_point(|(revision, _)| *revision <= at);
        let later = end.split_off(later);
        contents.extend(messages(&end));
        let restore = spawn_blocking(move || {
            let mut session = snapshot.restore(contents).ok_or(DecodeError::Damaged(
                "a message that its snapshot names is missing",
            ))?;
            for (_, recorded) in later {
                session.apply(&recorded).map_err(|_| CREATED_TWICE)?;
            }
            Ok(session)
        });
        join_blocking(restore).await.map_err(|e| self.unreadable(e))
    }

    /// Replays the log up to a revision.
    async fn session_at(&self, revision: Revision) -> Result<Option<PastSession>, EngineError> {
        // The whole log is read, because the messages after the revision are part of the result.
        let events = self.events(Revision::new(1), None).await?;
        let until = events.partition_point(|(at, _)| *at <= revision);
        // The log may be shorter than the revision. Without this check an older state would be returned.
        // For zero, the index wraps around to a number without an event.
        if events.get(until.wrapping_sub(1)).map(|(at, _)| *at) != Some(revision) {
            return Ok(None);
        }
        let owned = self.key.clone();
        let folded = spawn_blocking(move || {
            let mut events = events;
            let later = messages(&events.split_off(until));
            let log = events.iter().map(|(_, recorded)| recorded.clone());
            let mut session = Session::replay(owned, log)?;
            session.load_content(messages(&events));
            Ok(PastSession { session, later })
        });
        let past = join_blocking(folded).await;
        Ok(Some(
            past.map_err(|_: ReplayError| self.unreadable(NOT_CREATED))?,
        ))
    }

    /// Loads the contents of messages from a revision on.
    async fn load_content(
        &self,
        session: &mut Session,
        first: Revision,
    ) -> Result<(), EngineError> {
        let events = self.events(first, Some(session.revision())).await?;
        session.load_content(messages(&events));
        if session.transcript().is_fully_loaded() {
            return Ok(());
        }
        let error = DecodeError::Damaged("a message that its index names is missing");
        Err(self.unreadable(error))
    }

    /// Reads the events from `first` to `last`, or to the end of the log.
    async fn events(
        &self,
        first: Revision,
        last: Option<Revision>,
    ) -> Result<RevisionedEvents, EngineError> {
        let mut all = Vec::new();
        let mut after = Revision::new(first.get().saturating_sub(1));
        while last.is_none_or(|last| after < last) {
            let position = Position {
                incarnation: self.incarnation,
                ..Position::START
            };
            // A zero token is not compared, so the read checks the incarnation alone.
            let frames = self.store.read(self.key, position.at(after), READ_BYTES);
            let frames = frames.await?;
            let Some(frame) = frames.last() else {
                break;
            };
            after = frame.last();
            let decoded = spawn_blocking(move || decode_frames(&frames, last));
            all.append(
                &mut join_blocking(decoded)
                    .await
                    .map_err(|e| self.unreadable(e))?,
            );
        }
        // A frame holds all events of one append, so the first frame may begin before `first`.
        let before = all.partition_point(|(revision, _)| *revision < first);
        all.drain(..before);
        Ok(all)
    }

    fn unreadable(&self, error: DecodeError) -> EngineError {
        EngineError::Unreadable {
            key: self.key.clone(),
            error,
        }
    }
}

/// Decodes the events of frames up to a revision.
pub(super) fn decode_frames(
    frames: &[Frame],
    last: Option<Revision>,
) -> Result<RevisionedEvents, DecodeError> {
    let mut events = Vec::new();
    for frame in frames {
        if last.is_some_and(|last| frame.first > last) {
            break;
        }
        let decoded = decode_frame(&frame.bytes)?;
        if decoded.len() != frame.events as usize {
            return Err(DecodeError::Damaged(
                "a frame contains other events than its head states",
            ));
        }
        let revisions = (0..).map(|offset| frame.first.plus(offset));
        events.extend(revisions.zip(decoded));
    }
    Ok(events)
}

fn messages(events: &RevisionedEvents) -> Vec<Arc<Message>> {
    let appended = events
        .iter()
        .flat_map(|(_, recorded)| recorded.event.messages());
    appended
        .map(|appended| Arc::clone(&appended.message))
        .collect()
}

/// Awaits a blocking task. A panic of the task is resumed in the caller.
pub(super) async fn join_blocking<T>(work: JoinHandle<T>) -> T {
    match work.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
