//! A session out of its log: the last snapshot, the events after it, and as much content as the session
//! needs to go on. The rest is read when somebody asks for it.

use std::sync::Arc;

use palimpsest_core::event::Recorded;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::Message;
use palimpsest_core::session::{ReplayError, Session, Snapshot};
use palimpsest_store::encoding::{DecodeError, decode_frame, decode_snapshot};
use palimpsest_store::{Frame, SessionLog};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};

use super::counting::prepare;
use super::handle::Loaded;
use super::{READ_BYTES, SessionsError};

/// How many messages of its end a session holds at first: enough for the next turns.
const HELD_MESSAGES: usize = 32;

/// How many sessions are read at one time for each core, and at least. It is decoding that takes the time.
const FOR_EACH_CORE: usize = 2;
const LEAST: usize = 4;

type Events = Vec<(Revision, Recorded)>;

/// Reads sessions, a few at one time: while it is read, a session takes many times the bytes of its log, and
/// no cache counts them.
pub(super) struct Reader {
    log: Arc<dyn SessionLog>,
    room: Semaphore,
}

impl Reader {
    pub(super) fn new(log: Arc<dyn SessionLog>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            log,
            room: Semaphore::new((cores * FOR_EACH_CORE).max(LEAST)),
        }
    }

    /// A session; none when there is no log.
    pub(super) async fn load(&self, key: &SessionKey) -> Result<Option<Loaded>, SessionsError> {
        let _room = self.room.acquire().await;
        load(&*self.log, key).await
    }

    /// The contents that a session does not hold.
    pub(super) async fn fill(
        &self,
        key: &SessionKey,
        session: &mut Session,
    ) -> Result<(), SessionsError> {
        let Some(first) = session.transcript().first_unheld() else {
            return Ok(());
        };
        let _room = self.room.acquire().await;
        fill(&*self.log, key, session, first).await
    }

    /// A session as it was at a revision. None when its log is shorter.
    pub(super) async fn past(
        &self,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<Option<Past>, SessionsError> {
        let _room = self.room.acquire().await;
        past(&*self.log, key, revision).await
    }
}

async fn load(log: &dyn SessionLog, key: &SessionKey) -> Result<Option<Loaded>, SessionsError> {
    let Some(head) = log.head(key).await? else {
        return Ok(None);
    };
    let snapshot = log.snapshot(key).await?;
    let session = match snapshot {
        None => {
            let events = events(log, key, Revision::new(1), None).await?;
            let log = events.into_iter().map(|(_, recorded)| recorded);
            Session::replay(key.clone(), log).map_err(|_| {
                let error = DecodeError::Damaged("it does not begin with the session's creation");
                unreadable(key, error)
            })?
        }
        Some(snapshot) => {
            let owned = key.clone();
            let decoded = spawn_blocking(move || decode_snapshot(owned, &snapshot.bytes));
            let snapshot = joined(decoded).await.map_err(|e| unreadable(key, e))?;
            from_snapshot(log, key, snapshot).await?
        }
    };
    prepare(session.counter()).await;
    Ok(Some(Loaded {
        session,
        tail_bytes: head.tail_bytes,
        snapshot_bytes: Arc::new(head.snapshot.map_or(0, |mark| mark.bytes).into()),
    }))
}

async fn from_snapshot(
    log: &dyn SessionLog,
    key: &SessionKey,
    snapshot: Snapshot,
) -> Result<Session, SessionsError> {
    let at = snapshot.revision;
    let needed = snapshot.needed(HELD_MESSAGES);
    let from = needed.tail.unwrap_or(at.plus(1));
    let mut end = events(log, key, from, None).await?;
    let mut contents = Vec::new();
    if let Some(lead) = needed.lead.filter(|lead| *lead.start() < from) {
        let (first, last) = lead.into_inner();
        contents = messages(&events(log, key, first, Some(last)).await?);
    }
    let later = end.partition_point(|(revision, _)| *revision <= at);
    let later = end.split_off(later);
    contents.extend(messages(&end));
    let restore = spawn_blocking(move || {
        let mut session = snapshot.restore(contents).ok_or(DecodeError::Damaged(
            "a message that its snapshot names is missing",
        ))?;
        for (_, recorded) in later {
            session
                .apply(&recorded)
                .map_err(|_| DecodeError::Damaged("it creates the session twice"))?;
        }
        Ok(session)
    });
    joined(restore).await.map_err(|e| unreadable(key, e))
}

/// A session as it was, and the messages that came since.
#[derive(Debug)]
pub struct Past {
    /// The session.
    pub session: Session,
    /// The messages.
    pub later: Vec<Arc<Message>>,
}

/// Folds a session's log up to a revision.
async fn past(
    log: &dyn SessionLog,
    key: &SessionKey,
    revision: Revision,
) -> Result<Option<Past>, SessionsError> {
    let events = events(log, key, Revision::new(1), None).await?;
    let until = events.partition_point(|(at, _)| *at <= revision);
    if events.get(until.wrapping_sub(1)).map(|(at, _)| *at) != Some(revision) {
        return Ok(None);
    }
    let owned = key.clone();
    let folded = spawn_blocking(move || {
        let mut events = events;
        let later = messages(&events.split_off(until));
        let log = events.iter().map(|(_, recorded)| recorded.clone());
        let mut session = Session::replay(owned, log)?;
        session.fill(messages(&events));
        Ok(Past { session, later })
    });
    let past = joined(folded).await.map_err(|_: ReplayError| {
        unreadable(
            key,
            DecodeError::Damaged("it does not begin with the session's creation"),
        )
    })?;
    Ok(Some(past))
}

/// Reads the contents from a revision on.
async fn fill(
    log: &dyn SessionLog,
    key: &SessionKey,
    session: &mut Session,
    first: Revision,
) -> Result<(), SessionsError> {
    let events = events(log, key, first, Some(session.revision())).await?;
    session.fill(messages(&events));
    if session.transcript().is_whole() {
        return Ok(());
    }
    let error = DecodeError::Damaged("a message that its index names is missing");
    Err(unreadable(key, error))
}

/// The events from one revision to another, or to the end.
async fn events(
    log: &dyn SessionLog,
    key: &SessionKey,
    first: Revision,
    last: Option<Revision>,
) -> Result<Events, SessionsError> {
    let mut all = Vec::new();
    let mut after = Revision::new(first.get().saturating_sub(1));
    while last.is_none_or(|last| after < last) {
        let frames = log.read(key, after, READ_BYTES).await?;
        let Some(frame) = frames.last() else {
            break;
        };
        after = frame.last();
        let decoded = spawn_blocking(move || decode_frames(&frames, last));
        all.append(&mut joined(decoded).await.map_err(|e| unreadable(key, e))?);
    }
    let before = all.partition_point(|(revision, _)| *revision < first);
    all.drain(..before);
    Ok(all)
}

/// The events of some frames up to a revision.
pub(super) fn decode_frames(
    frames: &[Frame],
    last: Option<Revision>,
) -> Result<Events, DecodeError> {
    let mut events = Vec::new();
    for frame in frames {
        if last.is_some_and(|last| frame.first > last) {
            break;
        }
        let decoded = decode_frame(&frame.bytes)?;
        if decoded.len() != frame.events as usize {
            return Err(DecodeError::Damaged(
                "a frame holds other events than it says",
            ));
        }
        let revisions = (0..).map(|offset| frame.first.plus(offset));
        events.extend(revisions.zip(decoded));
    }
    Ok(events)
}

fn messages(events: &Events) -> Vec<Arc<Message>> {
    let appended = events
        .iter()
        .flat_map(|(_, recorded)| recorded.event.messages());
    appended
        .map(|appended| Arc::clone(&appended.message))
        .collect()
}

fn unreadable(key: &SessionKey, error: DecodeError) -> SessionsError {
    SessionsError::Unreadable {
        key: key.clone(),
        error,
    }
}

/// Waits for work on a blocking thread. Its panic is this task's.
pub(super) async fn joined<T>(work: JoinHandle<T>) -> T {
    match work.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
