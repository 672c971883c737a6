//! `ListEvents` and `WatchSession`: reads recorded events and streams new ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_stream::try_stream;
use palimpsest_core::event::{ChangeKind, Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::Session;
use palimpsest_engine::EngineError;
use palimpsest_engine::call::CurrentCall;
use palimpsest_engine::sessions::{READ_BYTES, SessionChange};
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
/// Bounds of one read in descending order: the minimum and maximum number of events, and the maximum bytes.
const MIN_STRETCH: u64 = 32;
const MAX_STRETCH: u64 = 1_024;
const STRETCH_BYTES: usize = 1024 * 1024;
/// Bytes of log that a watch converts at a time: 64 KiB. The converted events stay in memory until the caller has
/// read them.
const WATCH_BYTES: usize = 64 * 1024;
/// The maximum number of event batches that all calls read and convert at the same time.
pub(super) const MAX_BATCHES: usize = 4;
/// The interval of heartbeats on a watch stream: 30 s.
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
    // The position identifies the history from which the whole page must come.
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
    // The events were read in several steps. `confirm` fails if another history has replaced the session meanwhile.
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
    /// Adds the events of one revision. Returns false if they exceed the page's limits. The first events are always
    /// added.
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

/// Reads events after `after`, oldest first. Returns the revision after which the next page continues, or `None` at
/// the end.
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

/// Events in the form of the API, grouped by the revision of their log event.
type Batch = Vec<(Revision, Vec<SessionEvent>)>;

/// Reads and converts the events after a revision, up to `bytes` bytes of log. Also returns the last revision read.
/// Returns `None` at the end of the log.
async fn batch(
    service: &Service,
    key: &SessionKey,
    (after, bytes): (Revision, usize),
    kinds: &[EventKind],
) -> Result<Option<(Batch, Revision)>, ServiceError> {
    // A batch is decoded in memory, so the number of concurrent batches is limited.
    let _turn = CurrentCall::wait(service.event_batches.next(&key.project)).await;
    let recorded = service.sessions.events(key, after, bytes).await?;
    let Some(last) = recorded.last().map(|(revision, _)| *revision) else {
        return Ok(None);
    };
    let events = public(service, key, recorded, kinds).await?;
    Ok(Some((events, last)))
}

/// Reads events from revision `range.1` down to the one after `range.0`, latest first. Returns the revision at
/// which the next page continues, or `None` at the end.
async fn descend(
    service: &Service,
    key: &SessionKey,
    (floor, mut from): (Revision, Revision),
    kinds: &[EventKind],
    page: &mut EventPage,
) -> Result<Option<Revision>, ServiceError> {
    // The log can be read only forwards. Each step reads a stretch of events before the last one. The stretch
    // doubles as long as it fits into one read.
    let mut stretch = (page.size as u64).clamp(MIN_STRETCH, MAX_STRETCH);
    let mut longest = MAX_STRETCH;
    while from > floor {
        let begin = from.get().saturating_sub(stretch).max(floor.get());
        let turn = CurrentCall::wait(service.event_batches.next(&key.project)).await;
        let (recorded, fits) = before(service, key, (Revision::new(begin), from)).await?;
        if recorded.is_empty() {
            return Ok(None);
        }
        // The read did not cover the stretch, so longer stretches would not fit either.
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

/// Returns the last events after `begin` and up to `last`, oldest first, as many as one read returns. The flag is
/// true if these are all.
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

/// Converts recorded events of the requested kinds to the form of the API. No kinds select all.
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

/// Returns, for each policy change, the policy that it replaced, by the revision of the change.
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
    // Earlier policies are shown only in events of this kind. Others need no further reads.
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

/// Returns the policy of a session before an event. Only the creation and policy changes set a policy, and the
/// index of view-changing events lists the latter.
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
    // The watcher is created before the revision is read, so no change in between is missed.
    let mut watcher = service.sessions.watch(&key);
    let of = service.sessions.position(&key).await?;
    let mut seen = request.after_revision.map_or(of.revision, Revision::new);
    let service = service.clone();
    let stream = try_stream! {
        // A heartbeat is sent at once, after each batch of events and at least every [`HEARTBEAT`].
        let mut heartbeat = Instant::now();
        loop {
            // A session that was deleted and created again under the same name has another history.
            let now = service.sessions.position(&key).await.map_err(status)?;
            if now.incarnation != of.incarnation {
                Err(status(EngineError::SessionNotFound(key.clone())))?;
            }
            while seen < now.revision {
                let next = batch(&service, &key, (seen, WATCH_BYTES), &kinds).await;
                let Some((events, last)) = next.map_err(Status::from)? else {
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
                change = watcher.changed() => News::Change(change),
                () = service.draining.cancelled() => News::Draining,
                () = sleep_until(heartbeat) => News::None,
            };
            match news {
                News::Change(change) if change.deleted => {
                    Err(status(EngineError::SessionNotFound(key.clone())))?;
                }
                News::Draining => {
                    let retry_after = Duration::from_secs(1);
                    Err(Status::from(ServiceError::shutting_down(retry_after)))?;
                }
                News::Change(_) | News::None => {}
            }
        }
    };
    Ok(Box::pin(stream))
}

/// The reason for which a watch wakes up.
enum News {
    Change(SessionChange),
    Draining,
    None,
}

fn status(error: EngineError) -> Status {
    ServiceError::from(error).into()
}
