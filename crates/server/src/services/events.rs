//! `ListEvents` and `WatchSession`: reads recorded events and streams new ones.

use std::time::Duration;

use async_stream::try_stream;
use palimpsest_core::command::Rejection;
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::Session;
use palimpsest_engine::EngineError;
use palimpsest_engine::history::{EventPage, EventReader};
use palimpsest_engine::sessions::SessionChange;
use palimpsest_proto::context::v1::{
    EventKind, ListEventsRequest, ListEventsResponse, SessionEvent, WatchSessionRequest,
    WatchSessionResponse,
};
use prost::Message as _;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::Service;
use super::context::ReplyStream;
use super::messages::place;
use crate::convert::{self, PageCursor};
use crate::errors::ServiceError;

const DEFAULT_PAGE: u32 = 100;
/// Bytes of log that a watch converts at a time: 64 KiB. The converted events stay in memory until the caller has
/// read them.
const WATCH_BYTES: usize = 64 * 1024;
/// The interval of heartbeats on a watch stream: 30 s.
const HEARTBEAT: Duration = Duration::from_secs(30);

pub(super) async fn list(
    service: &Service,
    request: ListEventsRequest,
) -> Result<ListEventsResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size);
    let digest = convert::body_digest(&request);
    let from = convert::page_token(&request.page_token, digest)?;
    let from = place(service, &key, from.as_ref()).await?;
    let kinds = convert::event_kinds(&request.kinds)?;
    // The position identifies the history from which the whole page must come.
    let look = |_: &Session, position| position;
    let position = service.sessions.read_positioned(&key, look).await?;
    let head = position.revision;
    let floor = Revision::new(request.after_revision);
    let reader = reader(key, kinds);
    let mut page = EventPage::new(size, limits.max_reply_bytes, SessionEvent::encoded_len);
    let next = if request.descending {
        let from = from.map_or(head, Revision::new);
        reader.descend(service, (floor, from), &mut page).await?
    } else {
        let from = from.map_or(floor, Revision::new);
        reader.ascend(service, from, &mut page).await?
    };
    // The events were read in several steps. `confirm` fails if another history has replaced the session meanwhile.
    service.sessions.confirm(&reader.key, position).await?;
    Ok(ListEventsResponse {
        events: page.events,
        next_page_token: next
            .map(|next| convert::page_token_text(&PageCursor::Within(position, next.get()), digest))
            .unwrap_or_default(),
    })
}

/// Returns the reader of the requested kinds in the form of the API. No kinds select all.
fn reader(
    key: SessionKey,
    kinds: Vec<EventKind>,
) -> EventReader<
    impl Fn(&Session, Revision, &RecordedEvent, Option<&Policy>) -> Vec<SessionEvent> + Send + Sync,
> {
    EventReader {
        key,
        // Earlier policies are shown only in events of this kind. Others need no further reads.
        with_policies: kinds.is_empty() || kinds.contains(&EventKind::PolicyChanged),
        convert: move |session: &Session,
                       revision: Revision,
                       recorded: &RecordedEvent,
                       earlier: Option<&Policy>| {
            let mut events = convert::events(recorded, revision, session, earlier);
            events.retain(|event| kinds.is_empty() || kinds.contains(&convert::event_kind(event)));
            events
        },
    }
}

pub(super) async fn watch(
    service: &Service,
    request: WatchSessionRequest,
) -> Result<ReplyStream<WatchSessionResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let kinds = convert::event_kinds(&request.kinds)?;
    // The watcher is created before the revision is read, so no change in between is missed.
    let mut watcher = service.sessions.watch(&key);
    let of = service.sessions.position(&key).await?;
    let mut seen = request.after_revision.map_or(of.revision, Revision::new);
    is_recorded(seen, of.revision)?;
    let service = service.clone();
    let reader = reader(key.clone(), kinds);
    let stream = try_stream! {
        // A heartbeat is sent at once, after each batch of events and at least every [`HEARTBEAT`].
        let mut heartbeat = Instant::now();
        loop {
            // A session that was deleted and created again under the same name has another history.
            let now = service.sessions.position(&key).await.map_err(status)?;
            if now.incarnation != of.incarnation {
                Err(status(EngineError::SessionNotFound(key.clone())))?;
            }
            is_recorded(seen, now.revision).map_err(Status::from)?;
            while seen < now.revision {
                let next = reader.batch(&service, seen, WATCH_BYTES).await;
                let Some((events, last)) = next.map_err(status)? else {
                    break;
                };
                for (revision, events) in events {
                    let count = events.len();
                    for (nth, event) in events.into_iter().enumerate() {
                        // A revision counts as read with its last event, so that a client that resumes misses none.
                        let open = u64::from(nth + 1 < count);
                        yield WatchSessionResponse {
                            event: Some(event),
                            revision: revision.get() - open,
                            caught_up: false,
                        };
                    }
                }
                // Revisions without an event of the requested kinds advance the position too.
                seen = last;
                heartbeat = Instant::now();
            }
            if heartbeat <= Instant::now() {
                heartbeat = Instant::now() + HEARTBEAT;
                yield WatchSessionResponse {
                    event: None,
                    revision: seen.get(),
                    caught_up: true,
                };
            }
            let news = tokio::select! {
                change = watcher.changed() => WatchSignal::Change(change),
                () = service.draining.cancelled() => WatchSignal::Draining,
                () = sleep_until(heartbeat) => WatchSignal::None,
            };
            match news {
                WatchSignal::Change(change) if change.deleted => {
                    Err(status(EngineError::SessionNotFound(key.clone())))?;
                }
                WatchSignal::Draining => {
                    let retry_after = Duration::from_secs(1);
                    Err(Status::from(ServiceError::shutting_down(retry_after)))?;
                }
                WatchSignal::Change(_) | WatchSignal::None => {}
            }
        }
    };
    Ok(Box::pin(stream))
}

/// The reason for which a watch wakes up.
enum WatchSignal {
    Change(SessionChange),
    Draining,
    None,
}

/// Checks that a session has the revision up to which a watch has read it. A session that was created again, or that
/// lost its latest events in a failover, does not have it. Its next events would be missed without a word.
fn is_recorded(revision: Revision, current: Revision) -> Result<(), ServiceError> {
    if revision > current {
        return Err(Rejection::RevisionNotFound { revision, current }.into());
    }
    Ok(())
}

fn status(error: EngineError) -> Status {
    ServiceError::from(error).into()
}
