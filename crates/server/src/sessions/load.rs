//! A session out of its log: the last snapshot, the contents that the view still needs, and the
//! events after it.

use palimpsest_core::event::{Event, Recorded};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::{Session, Snapshot};
use palimpsest_store::encoding::{DecodeError, decode_frame, decode_snapshot};
use palimpsest_store::{Frame, SessionLog};
use tokio::task::{JoinHandle, spawn_blocking};

use super::handle::Loaded;
use super::{READ_BYTES, SessionsError};

/// Reads a session; none when there is no log.
pub(super) async fn load(
    log: &dyn SessionLog,
    key: &SessionKey,
) -> Result<Option<Loaded>, SessionsError> {
    let Some(head) = log.head(key).await? else {
        return Ok(None);
    };
    let snapshot = log.snapshot(key).await?;
    let unreadable = |error| SessionsError::Unreadable {
        key: key.clone(),
        error,
    };
    let snapshot = match snapshot {
        Some(snapshot) => {
            let owned = key.clone();
            let decoded = spawn_blocking(move || decode_snapshot(owned, &snapshot.bytes));
            Some(joined(decoded).await.map_err(unreadable)?)
        }
        None => None,
    };
    // A session that needs no content begins with the events after its snapshot.
    let from = snapshot.as_ref().map_or(Revision::new(1), |snapshot| {
        snapshot.first_needed().unwrap_or(snapshot.revision.plus(1))
    });
    let frames = read_all(log, key, Revision::new(from.get() - 1)).await?;
    let owned = key.clone();
    let session = joined(spawn_blocking(move || restore(owned, snapshot, &frames)))
        .await
        .map_err(unreadable)?;
    Ok(Some(Loaded {
        session,
        tail_bytes: head.tail_bytes,
        snapshot_bytes: head.snapshot.map_or(0, |mark| mark.bytes),
    }))
}

async fn read_all(
    log: &dyn SessionLog,
    key: &SessionKey,
    mut after: Revision,
) -> Result<Vec<Frame>, SessionsError> {
    let mut all = Vec::new();
    loop {
        let frames = log.read(key, after, READ_BYTES).await?;
        let Some(last) = frames.last() else {
            return Ok(all);
        };
        after = last.last();
        all.extend(frames);
    }
}

fn restore(
    key: SessionKey,
    snapshot: Option<Snapshot>,
    frames: &[Frame],
) -> Result<Session, DecodeError> {
    let events = decode_frames(frames)?;
    let damaged = |_| DecodeError::Damaged("it does not begin with the session's creation");
    let Some(snapshot) = snapshot else {
        let log = events.into_iter().map(|(_, recorded)| recorded);
        return Session::replay(key, log).map_err(damaged);
    };
    let at = snapshot.revision;
    let (covered, later): (Vec<_>, Vec<_>) = events
        .into_iter()
        .partition(|(revision, _)| *revision <= at);
    let contents = covered
        .into_iter()
        .filter_map(|(_, recorded)| match recorded.event {
            Event::MessagesAppended(event) => Some(event.messages),
            _ => None,
        })
        .flatten()
        .map(|appended| appended.message);
    let mut session = snapshot.restore(contents).ok_or(DecodeError::Damaged(
        "a message that its snapshot names is missing",
    ))?;
    for (_, recorded) in later {
        session.apply(&recorded).map_err(damaged)?;
    }
    Ok(session)
}

/// The events of some frames, with their revisions.
pub(super) fn decode_frames(frames: &[Frame]) -> Result<Vec<(Revision, Recorded)>, DecodeError> {
    let mut events = Vec::new();
    for frame in frames {
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

/// Waits for work on a blocking thread. Its panic is this task's.
pub(super) async fn joined<T>(work: JoinHandle<T>) -> T {
    match work.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
