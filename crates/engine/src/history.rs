//! Recorded events of a session, read in pages in both directions.
//!
//! A caller converts each recorded event to any number of events of its own form.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::event::{ChangeKind, Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::Session;

use crate::call::CurrentCall;
use crate::sessions::READ_BYTES;
use crate::{Engine, EngineError};

/// Bounds of one read in descending order: the minimum and maximum number of events, and the maximum bytes.
const MIN_STRETCH: u64 = 32;
const MAX_STRETCH: u64 = 1_024;
const STRETCH_BYTES: usize = 1024 * 1024;
/// The maximum number of event batches that all calls read and convert at the same time.
pub(crate) const MAX_BATCHES: usize = 4;

/// A page of events.
#[derive(Debug)]
pub struct EventPage<E> {
    /// The events.
    pub events: Vec<E>,
    size: usize,
    bytes: usize,
    max_bytes: usize,
    size_of: fn(&E) -> usize,
}

impl<E> EventPage<E> {
    /// Creates an empty page of at most `size` events and `max_bytes` bytes. `size_of` measures an event in bytes.
    pub const fn new(size: usize, max_bytes: usize, size_of: fn(&E) -> usize) -> Self {
        Self {
            events: Vec::new(),
            size,
            bytes: 0,
            max_bytes,
            size_of,
        }
    }

    /// Adds the events of one revision. Returns false if they exceed the page's limits. The first events are always
    /// added.
    fn add(&mut self, events: Vec<E>) -> bool {
        let bytes: usize = events.iter().map(self.size_of).sum();
        let is_full = self.events.len() >= self.size || self.bytes + bytes > self.max_bytes;
        if is_full && !self.events.is_empty() && !events.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.events.extend(events);
        true
    }
}

/// Events in the caller's form, grouped by the revision of their recorded event.
pub type EventBatch<E> = Vec<(Revision, Vec<E>)>;

/// Reads the events of a session.
#[derive(Debug, Clone)]
pub struct EventReader<C> {
    /// The session.
    pub key: SessionKey,
    /// True if `convert` needs the policy before a change of the policy.
    pub with_policies: bool,
    /// Converts a recorded event. The last argument is the policy that the event replaced.
    pub convert: C,
}

impl<E, C> EventReader<C>
where
    C: Fn(&Session, Revision, &RecordedEvent, Option<&Policy>) -> Vec<E>,
{
    /// Reads events after `after`, oldest first. Returns the revision after which the next page continues, or `None`
    /// at the end.
    pub async fn ascend(
        &self,
        engine: &Engine,
        mut after: Revision,
        page: &mut EventPage<E>,
    ) -> Result<Option<Revision>, EngineError> {
        loop {
            let Some((batch, last)) = self.batch(engine, after, READ_BYTES).await? else {
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

    /// Reads and converts the events after a revision, up to `bytes` bytes of log. Also returns the last revision
    /// read. Returns `None` at the end of the log.
    pub async fn batch(
        &self,
        engine: &Engine,
        after: Revision,
        bytes: usize,
    ) -> Result<Option<(EventBatch<E>, Revision)>, EngineError> {
        // A batch is decoded in memory, so the number of concurrent batches is limited.
        let _turn = CurrentCall::pause_while(engine.event_batches.next(&self.key.project)).await;
        let recorded = engine.sessions.events(&self.key, after, bytes).await?;
        let Some(last) = recorded.last().map(|(revision, _)| *revision) else {
            return Ok(None);
        };
        let events = self.convert(engine, recorded).await?;
        Ok(Some((events, last)))
    }

    /// Reads events from revision `from` down to the one after `floor`, latest first. Returns the revision at which
    /// the next page continues, or `None` at the end.
    pub async fn descend(
        &self,
        engine: &Engine,
        (floor, mut from): (Revision, Revision),
        page: &mut EventPage<E>,
    ) -> Result<Option<Revision>, EngineError> {
        // The log can be read only forwards. Each step reads a stretch of events before the last one. The stretch
        // doubles as long as it fits into one read.
        let mut stretch = (page.size as u64).clamp(MIN_STRETCH, MAX_STRETCH);
        let mut longest = MAX_STRETCH;
        while from > floor {
            let begin = from.get().saturating_sub(stretch).max(floor.get());
            let turn = CurrentCall::pause_while(engine.event_batches.next(&self.key.project)).await;
            let (recorded, fits) = self
                .read_before(engine, (Revision::new(begin), from))
                .await?;
            if recorded.is_empty() {
                return Ok(None);
            }
            // The read did not cover the stretch, so longer stretches would not fit either.
            if !fits {
                longest = (recorded.len() as u64).min(stretch);
            }
            stretch = (stretch * 2).min(longest);
            let events = self.convert(engine, recorded).await?;
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
    async fn read_before(
        &self,
        engine: &Engine,
        (begin, last): (Revision, Revision),
    ) -> Result<(Vec<(Revision, RecordedEvent)>, bool), EngineError> {
        let mut after = begin;
        let mut fits = true;
        loop {
            // A read returns the beginning of the range, and the page needs its end. The loop therefore keeps the last
            // read only.
            let recorded = engine.sessions.events(&self.key, after, STRETCH_BYTES);
            let recorded = recorded.await?;
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

    async fn convert(
        &self,
        engine: &Engine,
        recorded: Vec<(Revision, RecordedEvent)>,
    ) -> Result<EventBatch<E>, EngineError> {
        let earlier = self.earlier_policies(engine, &recorded).await?;
        let convert = |session: &Session| {
            let convert = |(revision, recorded): &(Revision, RecordedEvent)| {
                let earlier = earlier.get(revision).map(|policy| &**policy);
                let events = (self.convert)(session, *revision, recorded, earlier);
                (*revision, events)
            };
            recorded.iter().map(convert).collect()
        };
        engine.sessions.read(&self.key, convert).await
    }

    /// Returns, for each policy change, the policy that it replaced, by the revision of the change.
    async fn earlier_policies(
        &self,
        engine: &Engine,
        recorded: &[(Revision, RecordedEvent)],
    ) -> Result<BTreeMap<Revision, Arc<Policy>>, EngineError> {
        let mut earlier = BTreeMap::new();
        if !self.with_policies {
            return Ok(earlier);
        }
        let mut last = None;
        for (revision, recorded) in recorded {
            let Some(policy) = set_policy(&recorded.event) else {
                continue;
            };
            if matches!(recorded.event, Event::PolicyChanged(_)) {
                // Only the first policy change of a batch needs a read. Each later one replaces a policy of this batch.
                let before = match last.take() {
                    Some(before) => Some(before),
                    None => policy_before(engine, &self.key, *revision).await?,
                };
                earlier.extend(before.map(|before| (*revision, before)));
            }
            last = Some(Arc::clone(policy));
        }
        Ok(earlier)
    }
}

/// Returns the policy of a session before an event. Only the creation and policy changes set a policy, and the
/// index of view-changing events lists the latter.
async fn policy_before(
    engine: &Engine,
    key: &SessionKey,
    revision: Revision,
) -> Result<Option<Arc<Policy>>, EngineError> {
    let changes = |session: &Session| {
        let changes = session.view_changes().iter();
        let of_policy = changes.filter(|change| change.kind == ChangeKind::PolicyChanged);
        of_policy.map(|change| change.revision).collect::<Vec<_>>()
    };
    let changes = engine.sessions.read(key, changes).await?;
    let before = changes.into_iter().filter(|at| *at < revision).rev();
    for at in before.chain([Revision::new(1)]) {
        let recorded = engine.sessions.event(key, at).await?;
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
