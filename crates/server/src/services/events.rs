//! `ListEvents` and `WatchSession`: what happened, and what happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_stream::try_stream;
use palimpsest_core::event::{ChangeKind, Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::Session;
use palimpsest_engine::call::CurrentCall;
use palimpsest_engine::sessions::{READ_BYTES, SessionChange, SessionsError};
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
/// So many events are read at once where the latest come first, at least and at most; and so many bytes of them.
const MIN_STRETCH: u64 = 32;
const MAX_STRETCH: u64 = 1_024;
const STRETCH_BYTES: usize = 1024 * 1024;
/// Bytes of log that a watch converts at a time. The converted events stay in memory until the caller has read them.
const WATCH_BYTES: usize = 64 * 1024;
/// Event batches that are read and converted at the same time, over all calls.
pub(super) const MAX_BATCHES: usize = 4;
/// How often a watcher hears that the stream still lives.
const HEARTBEAT: Duration = Duration::from_secs(30);

pub(super) async fn list(
    service: &Service,
    request: ListEventsRequest,
) -> Result<ListEventsResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size)?;
    let digest = convert::body_digest(&request);
    let from = convert::page_token(&request.page_token, digest)?;
    let from = place(service, &key, from.as_ref()).await?;
    let kinds = convert::event_kinds(&request.kinds)?;
    let look = |_: &Session, position| position;
    let position = service.sessions.read_positioned(&key, look).await?;
    let head = position.revision;
    let floor = Revision::new(request.after_revision);
    let mut page = EventPage {
        events: Vec::new(),
        size,
        bytes: 0,
        max_bytes: limits.max_reply_bytes,
    };
    let next = if request.descending {
        let from = from.map_or(head, Revision::new);
        descend(service, &key, (floor, from), &kinds, &mut page).await?
    } else {
        let from = from.map_or(floor, Revision::new);
        ascend(service, &key, from, &kinds, &mut page).await?
    };
    // It was read in steps, and the store may have gone on from an earlier state of itself between two.
    service.sessions.confirm(&key, position).await?;
    Ok(ListEventsResponse {
        events: page.events,
        next_page_token: next
            .map(|next| convert::page_token_text(&PageCursor::Within(position, next.get()), digest))
            .unwrap_or_default(),
    })
}

struct EventPage {
    events: Vec<SessionEvent>,
    size: usize,
    bytes: usize,
    max_bytes: usize,
}

impl EventPage {
    /// Adds the events of one revision; false when they do not fit any more.
    fn add(&mut self, events: Vec<SessionEvent>) -> bool {
        let bytes: usize = events.iter().map(SessionEvent::encoded_len).sum();
        let is_full = self.events.len() >= self.size || self.bytes + bytes > self.max_bytes;
        if is_full && !self.events.is_empty() && !events.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.events.extend(events);
        true
    }
}

/// Events after `after`, oldest first; returns after which revision to go on, if more may follow.
async fn ascend(
    service: &Service,
    key: &SessionKey,
    mut after: Revision,
    kinds: &[EventKind],
    page: &mut EventPage,
) -> Result<Option<Revision>, ServiceError> {
    loop {
        let Some((batch, last)) = batch(service, key, (after, READ_BYTES), kinds).await? else {
            return Ok(None);
        };
        for (revision, events) in batch {
            if !page.add(events) {
                return Ok(Some(after));
            }
            after = revision;
        }
        after = last;
    }
}

/// Events as callers see them, each run with its revision.
type Batch = Vec<(Revision, Vec<SessionEvent>)>;

/// The next events after a revision, up to so many bytes of log, and the last revision among them. None at the end.
async fn batch(
    service: &Service,
    key: &SessionKey,
    (after, bytes): (Revision, usize),
    kinds: &[EventKind],
) -> Result<Option<(Batch, Revision)>, ServiceError> {
    let _turn = CurrentCall::wait(service.event_batches.next(&key.project)).await;
    let recorded = service.sessions.events(key, after, bytes).await?;
    let Some(last) = recorded.last().map(|(revision, _)| *revision) else {
        return Ok(None);
    };
    let events = public(service, key, recorded, kinds).await?;
    Ok(Some((events, last)))
}

/// Events from `range.1` down to after `range.0`, latest first; returns from which revision to go on.
async fn descend(
    service: &Service,
    key: &SessionKey,
    (floor, mut from): (Revision, Revision),
    kinds: &[EventKind],
    page: &mut EventPage,
) -> Result<Option<Revision>, ServiceError> {
    // The log is read forwards: a stretch before the last one at a time, longer each time while it fits one read.
    let mut stretch = (page.size as u64).clamp(MIN_STRETCH, MAX_STRETCH);
    let mut longest = MAX_STRETCH;
    while from > floor {
        let begin = from.get().saturating_sub(stretch).max(floor.get());
        let turn = CurrentCall::wait(service.event_batches.next(&key.project)).await;
        let (recorded, fits) = before(service, key, (Revision::new(begin), from)).await?;
        if recorded.is_empty() {
            return Ok(None);
        }
        if !fits {
            longest = (recorded.len() as u64).min(stretch);
        }
        stretch = (stretch * 2).min(longest);
        let events = public(service, key, recorded, kinds).await?;
        drop(turn);
        for (revision, mut events) in events.into_iter().rev() {
            events.reverse();
            if !page.add(events) {
                return Ok(Some(revision));
            }
            from = Revision::new(revision.get() - 1);
        }
    }
    Ok(None)
}

/// The last events after one revision and up to another, oldest first: as many as one read gives. Whether these are all.
async fn before(
    service: &Service,
    key: &SessionKey,
    (begin, last): (Revision, Revision),
) -> Result<(Vec<(Revision, RecordedEvent)>, bool), ServiceError> {
    let mut after = begin;
    let mut fits = true;
    loop {
        let recorded = service.sessions.events(key, after, STRETCH_BYTES).await?;
        let Some((reached, _)) = recorded.last() else {
            return Ok((Vec::new(), fits));
        };
        if *reached >= last {
            let within = recorded.into_iter().filter(|(at, _)| *at <= last);
            return Ok((within.collect(), fits));
        }
        fits = false;
        after = *reached;
    }
}

/// Recorded events as callers see them, those of the wanted kinds.
async fn public(
    service: &Service,
    key: &SessionKey,
    recorded: Vec<(Revision, RecordedEvent)>,
    kinds: &[EventKind],
) -> Result<Batch, ServiceError> {
    let earlier = earlier_policies(service, key, &recorded, kinds).await?;
    let tell = |session: &Session| {
        let tell = |(revision, recorded): &(Revision, RecordedEvent)| {
            let earlier = earlier.get(revision).map(|policy| &**policy);
            let mut events = convert::events(recorded, *revision, session, earlier);
            events.retain(|event| kinds.is_empty() || kinds.contains(&convert::event_kind(event)));
            (*revision, events)
        };
        recorded.iter().map(tell).collect()
    };
    Ok(service.sessions.read(key, tell).await?)
}

/// The policies that changes of it took the place of, by the revisions of the changes.
async fn earlier_policies(
    service: &Service,
    key: &SessionKey,
    recorded: &[(Revision, RecordedEvent)],
    kinds: &[EventKind],
) -> Result<BTreeMap<Revision, Arc<Policy>>, ServiceError> {
    let mut earlier = BTreeMap::new();
    if !kinds.is_empty() && !kinds.contains(&EventKind::PolicyChanged) {
        return Ok(earlier);
    }
    let mut last = None;
    for (revision, recorded) in recorded {
        let Some(policy) = set_policy(&recorded.event) else {
            continue;
        };
        if matches!(recorded.event, Event::PolicyChanged(_)) {
            let before = match last.take() {
                Some(before) => Some(before),
                None => policy_before(service, key, *revision).await?,
            };
            earlier.extend(before.map(|before| (*revision, before)));
        }
        last = Some(Arc::clone(policy));
    }
    Ok(earlier)
}

/// The policy that a session had before an event. Only events that changed its view can have set it,
/// and its creation.
async fn policy_before(
    service: &Service,
    key: &SessionKey,
    revision: Revision,
) -> Result<Option<Arc<Policy>>, ServiceError> {
    let changes = |session: &Session| {
        let changes = session.view_changes().iter();
        let of_policy = changes.filter(|change| change.kind == ChangeKind::PolicyChanged);
        of_policy.map(|change| change.revision).collect::<Vec<_>>()
    };
    let changes = service.sessions.read(key, changes).await?;
    let before = changes.into_iter().filter(|at| *at < revision).rev();
    for at in before.chain([Revision::new(1)]) {
        let recorded = service.sessions.event(key, at).await?;
        if let Some(policy) = recorded.as_ref().and_then(|it| set_policy(&it.event)) {
            return Ok(Some(Arc::clone(policy)));
        }
    }
    Ok(None)
}

fn set_policy(event: &Event) -> Option<&Arc<Policy>> {
    match event {
        Event::SessionCreated(event) => Some(&event.policy),
        Event::PolicyChanged(event) => Some(&event.policy),
        _ => None,
    }
}

pub(super) async fn watch(
    service: &Service,
    request: WatchSessionRequest,
) -> Result<ReplyStream<WatchSessionResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let kinds = convert::event_kinds(&request.kinds)?;
    // First the watcher, then the revision: nothing can happen in between unseen.
    let mut watcher = service.sessions.watch(&key);
    let of = service.sessions.position(&key).await?;
    let mut seen = request.after_revision.map_or(of.revision, Revision::new);
    let service = service.clone();
    let stream = try_stream! {
        // Told at once, then whenever there was something, and now and then.
        let mut heartbeat = Instant::now();
        loop {
            // An earlier session of the name has nothing to do with a later one.
            let now = service.sessions.position(&key).await.map_err(status)?;
            if now.incarnation != of.incarnation {
                Err(status(SessionsError::NotFound(key.clone())))?;
            }
            while seen < now.revision {
                let next = batch(&service, &key, (seen, WATCH_BYTES), &kinds).await;
                let Some((events, last)) = next.map_err(Status::from)? else {
                    break;
                };
                for (revision, events) in events {
                    for event in events {
                        yield WatchSessionResponse {
                            event: Some(event),
                            revision: revision.get(),
                            caught_up: false,
                        };
                    }
                }
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
                change = watcher.changed() => News::Change(change),
                () = service.draining.cancelled() => News::Draining,
                () = sleep_until(heartbeat) => News::None,
            };
            match news {
                News::Change(change) if change.deleted => {
                    Err(status(SessionsError::NotFound(key.clone())))?;
                }
                News::Draining => {
                    let retry_after = Duration::from_secs(1);
                    Err(Status::from(ServiceError::ShuttingDown { retry_after }))?;
                }
                News::Change(_) | News::None => {}
            }
        }
    };
    Ok(Box::pin(stream))
}

/// What a watcher waited for.
enum News {
    Change(SessionChange),
    Draining,
    None,
}

fn status(error: SessionsError) -> Status {
    ServiceError::from(error).into()
}
