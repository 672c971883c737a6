//! The intake of a whole array: the caller sends its complete conversation, and the session takes the difference.
//!
//! The core plans the difference, and the steps of the plan are commands of one transaction. An array of another
//! conversation goes to a lane, which is a session of its own beside the named one.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use palimpsest_core::array::{
    ArrayOutcome, CallerArray, Element, Hints, Identity, Incoming, Link, OwnCompaction,
    PlacedMessages, PlannedChange, ResponseUse, ReturnedSummary, SyncPlan, add_response,
    is_unchanged, lane, plan, recorded, with_joined,
};
use palimpsest_core::command::{
    Append, AppendSource, Command, ConfirmResponse, CreateSession, ExternalSummary, Rejection,
    ReplacedResponse, SyncArray,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Ordinal, SessionId, SessionKey};
use palimpsest_core::message::{Block, Digest, Message, Role};
use palimpsest_core::session::{ContentNotLoaded, Session};

use super::past::{Known, Past};
use super::{Adoption, AppendStatus, Appended, Intake, Turn, TurnCall, TurnOutcome, turn};
use crate::change::{RewindInput, RewindTarget};
use crate::clock::IdSource;
use crate::compaction::CompactionError;
use crate::sessions::{MissingSession, PastSession, Transaction};
use crate::{Engine, EngineError};

/// Maximum depth of lanes for one array.
const MAX_LANES: usize = 3;

/// A whole array of a caller.
#[derive(Debug)]
pub struct SyncInput {
    /// The messages of the array in order, each with a new id and its time.
    pub elements: Arc<[Element]>,
    /// The last summary of the service that the caller sends back. No element contains it.
    pub returned: Option<ReturnedSummary>,
    /// True if the model request defines tools.
    pub has_tools: bool,
    /// True if the caller sends side requests without tools under the name of the session.
    pub side_requests: bool,
    /// True if the caller states that the array begins with its own summary.
    pub caller_compacted: bool,
    /// The condition for the first result that is stored.
    pub first_store: FirstStore,
    /// The complete last response of the model, if known. It has the usage.
    pub last_response: Vec<Arc<Message>>,
    /// The source of further ids.
    pub ids: Arc<IdSource>,
    /// The id for the boundary message of an adopted summary.
    pub mark: MessageId,
}

/// The use of a whole array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncedArray {
    /// The relation of the array to the known one.
    pub outcome: ArrayOutcome,
    /// Number of operator messages before the conversation. The view does not contain them.
    pub lead: usize,
    /// Number of messages of the array that were appended.
    pub appended: usize,
}

/// The condition for the first stored result of a session (level 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstStore {
    /// The size of the result alone decides.
    #[default]
    Large,
    /// An unchanged array gets its first change only where that pays at once: the provider's cache has its prefix, and
    /// the first change breaks it.
    PaysAtOnce,
}

/// Runs a turn for a whole array of a named session. Returns the session that took it: the named one, or a lane of it.
pub async fn sync<T>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    call: &TurnCall,
    input: &SyncInput,
    finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<(SessionKey, Turn<T>), CompactionError> {
    let mut key = key.clone();
    let mut missing = missing.clone();
    let mut lanes = 0;
    loop {
        let address = Address {
            identity: Identity::Named,
            // A lane takes side requests, so none of its own requests is one.
            side_requests: input.side_requests && lanes == 0,
        };
        let addressed = (input, address);
        match sync_into(engine, &key, &missing, call, addressed, &finish).await? {
            Ok(done) => return Ok((key, done)),
            Err(Rejection::OtherArray { lane, is_branch }) if lanes < MAX_LANES => {
                missing = lane_of(engine, &key, &missing, is_branch).await?;
                key = lane_key(&key, &lane)?;
                lanes += 1;
            }
            Err(rejection) => return Err(EngineError::Rejected(rejection).into()),
        }
    }
}

/// The relation of an array to the session that gets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    /// The origin of the session's name.
    pub(super) identity: Identity,
    /// True if the array can be a side request.
    pub(super) side_requests: bool,
}

/// Runs a turn for a whole array in one session, and loads the content that the plan needs. Returns the rejection if the
/// session does not take the array.
pub(super) async fn sync_into<T>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    call: &TurnCall,
    (input, address): (&SyncInput, Address),
    finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
) -> Result<Result<Turn<T>, Rejection>, CompactionError> {
    // The loop ends: a layout is loaded once, and `load_originals` rejects a message that it has loaded before.
    let mut past = Past::default();
    loop {
        let intake = |transaction: &mut Transaction<'_>| input.run(transaction, address, &past);
        let rejection = match turn(engine, key, missing, call, intake, &finish).await {
            Ok(done) => return Ok(Ok(done)),
            Err(CompactionError::Engine(EngineError::Rejected(rejection))) => rejection,
            Err(error) => return Err(error),
        };
        match rejection {
            Rejection::OriginalNotLoaded { id } => past.load_originals(engine, key, id).await?,
            // The last message that stays is hidden behind a summary, so its earlier layout is read from the log.
            Rejection::MessageNotVisible { id, .. } if past.layout.is_none() => {
                let target = rewind(RewindTarget::To(id));
                let before = target.before_collapse(&engine.sessions, key).await?;
                past.layout = Some((id, before.ok_or(EngineError::Rejected(rejection))?));
            }
            rejection => return Ok(Err(rejection)),
        }
    }
}

fn lane_key(key: &SessionKey, lane: &str) -> Result<SessionKey, EngineError> {
    let id = SessionId::new(&format!("{}.{lane}", key.session));
    let id = id.map_err(|_| {
        let what = "leaves no space for the name of a lane: use a shorter name";
        EngineError::Rejected(Rejection::invalid("session".to_owned(), what))
    })?;
    Ok(SessionKey {
        project: key.project.clone(),
        session: id,
    })
}

/// Returns the options of a new lane: the policy of the session. A branch is a conversation like the session itself, and
/// any other lane counts as a subagent of it.
async fn lane_of(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    is_branch: bool,
) -> Result<MissingSession, EngineError> {
    let policy = engine
        .sessions
        .read(key, |session| session.policy().clone());
    let policy = match policy.await {
        Ok(policy) => policy,
        // A side request can be the first one under the name. Its lane has no parent then.
        Err(EngineError::SessionNotFound(_)) => return Ok(missing.clone()),
        Err(error) => return Err(error),
    };
    Ok(MissingSession::Create(CreateSession {
        policy: Arc::new(policy),
        parent: (!is_branch).then(|| key.clone()),
        implicit: true,
        ..CreateSession::default()
    }))
}

fn rewind(target: RewindTarget) -> RewindInput {
    RewindInput {
        target,
        expected_revision: None,
        request: None,
    }
}

impl SyncInput {
    /// Plans the array and carries out the plan in a transaction.
    fn run(
        &self,
        transaction: &mut Transaction<'_>,
        address: Address,
        past: &Past,
    ) -> Result<Intake, Rejection> {
        let incoming = Incoming::new(&self.elements, self.has_tools);
        let Some(session) = transaction.session() else {
            // A dry run on a missing session.
            return Ok(AppendStatus::Now(Appended::of(transaction)).into());
        };
        let known = Known::new(session, past);
        let not_loaded = |error| known.rejection(error);
        let array = if session.array().is_current() {
            session.array().clone()
        } else {
            recorded(session, &incoming, &known).map_err(not_loaded)?
        };
        let array = with_joined(&array, &incoming, &known).map_err(not_loaded)?;
        let completed = self.completed(session, &array, &known);
        let (elements, tip) = completed.map_err(not_loaded)?;
        let incoming = Incoming::new(&elements, self.has_tools);
        let own = OwnCompaction::find(session, &array, &incoming, &known).map_err(not_loaded)?;
        let hints = Hints {
            side_requests: address.side_requests,
            caller_compacted: self.caller_compacted,
            own_compaction: own.as_ref(),
            ..Hints::default()
        };
        let planned = plan(&array, &incoming, address.identity, &hints, &known);
        let change = match planned.map_err(not_loaded)? {
            SyncPlan::Change(change) => change,
            SyncPlan::Fork { links } => return Err(fork(session, &array.links[..links])),
            SyncPlan::OtherArray { abandoned } => {
                return Err(Rejection::OtherArray {
                    lane: lane(&incoming, abandoned),
                    is_branch: abandoned.is_some(),
                });
            }
        };
        // Read before the first step, because a step can end the wait for recorded responses.
        let messages = change.messages(&array, &incoming, &known);
        let mut messages = messages.map_err(not_loaded)?;
        let extends_view = !change.rewinds && change.adoption.is_none();
        add_response(&mut messages, &self.last_response, extends_view);
        self.renew_ids(session, &mut messages);
        // A session that is found by its name has no tips, and a tip is a digest of the whole array.
        let has_tips = session.tips().scope.is_some();
        let tip = has_tips.then(|| tip.or_else(|| incoming.tip())).flatten();
        if !self.permits_storing(session, &messages) {
            transaction.keep_results_inline();
        }
        let appended = messages.len();
        let steps = Steps {
            incoming,
            tip,
            array: &array,
            change: &change,
            messages: &messages,
        };
        self.carry_out(transaction, &steps, past.layout.as_ref())?;
        Ok(Intake {
            appended: AppendStatus::Now(Appended::of(transaction)),
            array: Some(SyncedArray {
                outcome: change.outcome,
                lead: incoming.lead.len(),
                appended,
            }),
        })
    }

    /// Returns true if results among new messages may be stored (level 1).
    fn permits_storing(&self, session: &Session, messages: &[Arc<Message>]) -> bool {
        let blocks = messages.iter().flat_map(|message| &message.blocks);
        let results = blocks.filter_map(|block| match block {
            Block::ToolResult(result) => Some(u64::from(session.counter().result(result))),
            _ => None,
        });
        // The tokens that leave cost at least as much as the prefix that is written again.
        let pays = || results.sum::<u64>() >= session.tokens().tokens;
        self.first_store == FirstStore::Large || pays() || !is_unchanged(session)
    }

    /// Gives a new id to each message that the session has already: an element keeps its id while its bytes are known, and
    /// a rewound message can arrive again.
    fn renew_ids(&self, session: &Session, messages: &mut [Arc<Message>]) {
        for message in messages {
            if session.transcript().find(message.id).is_some() {
                Arc::make_mut(message).id = self.ids.message_id();
            }
        }
    }

    /// Runs the steps of a plan.
    fn carry_out(
        &self,
        transaction: &mut Transaction<'_>,
        steps: &Steps<'_>,
        past: Option<&(MessageId, PastSession)>,
    ) -> Result<(), Rejection> {
        let Steps {
            incoming,
            tip,
            array,
            change,
            messages,
        } = *steps;
        if change.rewinds {
            rewind_links(transaction, &array.links, change.keep, past)?;
        }
        let summary = match &change.adoption {
            None => None,
            Some(adoption) => {
                let leaving = adoption.leaving.clone();
                let message = &incoming.rest[adoption.summary].message;
                self.adopt(transaction, (&array.links, leaving), message)?
            }
        };
        if let ResponseUse::Confirmed { response } = change.response {
            transaction.run(Command::ConfirmResponse(ConfirmResponse {
                response: Some(response),
            }))?;
        }
        let first = messages.first().map(|message| message.id);
        let count = messages.len();
        append(transaction, messages, replaced(array, change, count))?;
        let Some(session) = transaction.session() else {
            return Ok(());
        };
        let transcript = session.transcript();
        let end = Ordinal::new(u32::try_from(transcript.len()).unwrap_or(u32::MAX));
        let placed = PlacedMessages {
            summary: summary.unwrap_or(end),
            appended: first.and_then(|id| transcript.find(id)).unwrap_or(end),
        };
        // The array is recorded last, because its links contain the ordinals of the appended messages.
        let array = change.apply(array, &incoming, &placed);
        transaction.run(Command::SyncArray(SyncArray { array, tip }))?;
        Ok(())
    }

    /// Replaces the messages of links by the caller's summary. Returns the message that is the element of the summary.
    fn adopt(
        &self,
        transaction: &mut Transaction<'_>,
        (links, leaving): (&[Link], Range<usize>),
        summary: &Arc<Message>,
    ) -> Result<Option<Ordinal>, Rejection> {
        let Some(session) = transaction.session() else {
            return Ok(None);
        };
        let transcript = session.transcript();
        let id = |ordinal: Ordinal| Some(transcript.get(ordinal)?.id);
        let stays = |(index, _): &(usize, &Link)| !leaving.contains(index);
        let staying = || links.iter().enumerate().filter(stays).map(|(_, link)| link);
        let is_hidden = |link: &Link| !transcript.is_in_view(link.message);
        let has_hidden = staying().any(is_hidden);
        // The session's own summary stands for these messages and for others, so the view stays as it is.
        if has_hidden && links[leaving.clone()].iter().all(is_hidden) {
            return Ok(links[leaving].first().map(|link| link.message));
        }
        // The session's own summary is in no link. It leaves with the last of the messages that it replaced.
        let linked: HashSet<Ordinal> = links.iter().map(|link| link.message).collect();
        let is_own = |ordinal: &Ordinal| {
            let is_shown = session.is_framing(*ordinal) && transcript.is_in_view(*ordinal);
            is_shown && !linked.contains(ordinal)
        };
        let own = transcript.entries().map(|(ordinal, _)| ordinal);
        let own = own.filter(|ordinal| !has_hidden && is_own(ordinal));
        // After an earlier summary, the links are not in the order of the transcript.
        let of_caller = links[leaving.clone()].iter().map(|link| link.message);
        let all: Vec<Ordinal> = of_caller.chain(own).collect();
        let (first, last) = (all.iter().min().copied(), all.iter().max().copied());
        let is_between = |link: &&Link| Some(link.message) > first && Some(link.message) < last;
        let adoption = Adoption {
            trigger: Trigger::Auto,
            summary: Box::new(ExternalSummary {
                summary: Arc::clone(summary),
                first: first.and_then(id),
                last: last.and_then(id),
                kept: (staying().filter(is_between))
                    .filter_map(|link| id(link.message))
                    .collect(),
                before_tokens: None,
                mark: self.mark,
            }),
        };
        adoption.run(transaction, None, None)?;
        let session = transaction.session();
        Ok(session.and_then(|session| session.transcript().find(summary.id)))
    }
}

/// The steps that carry out a plan.
#[derive(Clone, Copy)]
struct Steps<'a> {
    incoming: Incoming<'a>,
    /// The tip of the array. `None` for a session that is found by its name.
    tip: Option<Digest>,
    array: &'a CallerArray,
    change: &'a PlannedChange,
    /// The messages to append.
    messages: &'a [Arc<Message>],
}

/// Returns the rejection of an array that shares links with the session. Without a common response, they can be equal by
/// chance: many conversations begin with the same question.
fn fork(session: &Session, shared: &[Link]) -> Rejection {
    let has_response = shared.iter().any(|link| link.role == Role::Assistant);
    let last = shared.last().filter(|_| has_response);
    let entry = last.and_then(|last| session.transcript().get(last.message));
    Rejection::ArrayForks {
        shared: entry.map(|entry| entry.id),
    }
}

/// Removes the messages of the links after the first `keep` ones.
fn rewind_links(
    transaction: &mut Transaction<'_>,
    links: &[Link],
    keep: usize,
    past: Option<&(MessageId, PastSession)>,
) -> Result<(), Rejection> {
    let id = |link: &Link| {
        let transcript = transaction.session()?.transcript();
        Some(transcript.get(link.message)?.id)
    };
    let (kept, left) = links.split_at(keep);
    let is_framing = |link: &&Link| {
        let session = transaction.session();
        session.is_some_and(|session| session.is_framing(link.message))
    };
    // A summary was added after the messages that follow it, so it is the last one only at the end of the links.
    let last = match kept.last() {
        Some(last) if !is_framing(&last) => kept
            .iter()
            .filter(|link| !is_framing(link))
            .max_by_key(|link| link.message),
        last => last,
    };
    let target = match last {
        Some(last) => id(last).map(RewindTarget::To),
        None => left.first().and_then(id).map(RewindTarget::Before),
    };
    let Some(target) = target else {
        return Ok(());
    };
    let past = past.filter(|(id, _)| target == RewindTarget::To(*id));
    rewind(target).run(transaction, past.map(|(_, past)| past))?;
    Ok(())
}

/// Returns the messages at the start of an append that are the caller's version of a recorded response.
fn replaced(array: &CallerArray, change: &PlannedChange, count: usize) -> Option<ReplacedResponse> {
    let ResponseUse::Replaced { response, elements } = change.response else {
        return None;
    };
    let recorded = array.responses.get(response)?.first()?.message;
    Some(ReplacedResponse {
        recorded,
        messages: elements.min(count),
    })
}

/// Appends messages of an array. An array can have more messages than one append.
fn append(
    transaction: &mut Transaction<'_>,
    messages: &[Arc<Message>],
    mut replaced: Option<ReplacedResponse>,
) -> Result<(), Rejection> {
    let limit = transaction.max_messages().max(1);
    for part in messages.chunks(limit) {
        transaction.run(Command::Append(Append {
            messages: part.to_vec(),
            source: AppendSource::Array {
                // Only the first part begins with the caller's version of the response.
                replaced: replaced.take(),
            },
            expected_revision: None,
            request: None,
        }))?;
    }
    Ok(())
}
