//! Session events in the form of the API.

use palimpsest_core::event::{self, Event, RecordedEvent};
use palimpsest_core::ids::{Ordinal, Revision};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::view::PieceForm;
use palimpsest_proto::context::v1;
use v1::session_event::Event as Out;

use super::append_result::call_ref;
use super::compaction;
use super::filter::known;
use super::memory;
use super::policy::{changed_paths, policy};
use super::scalars::{export_message_id, export_timestamp};
use super::spans;
use super::target::export_target;
use super::tokens::{last_place, request_parts};
use super::transcript::export_usage;
use super::{FieldError, saturate_tokens};
use super::{hooks, levels, persist_decisions, working_state};

/// Converts a recorded event. The result is usually one event, two if serving interrupted calls, and none if a
/// request changed nothing. `earlier` is the policy before a policy change. Without it, the changed settings are
/// not listed.
pub fn events(
    recorded: &RecordedEvent,
    revision: Revision,
    session: &Session,
    earlier: Option<&Policy>,
) -> Vec<v1::SessionEvent> {
    let request = recorded.event.request();
    let request_id = request
        .map(|stamp| stamp.id.to_string())
        .unwrap_or_default();
    let mut effect = levels::level_effect(&recorded.event);
    let happened = match &recorded.event {
        Event::SessionCreated(event) => vec![Out::SessionCreated(created(event))],
        Event::SessionUpdated(event) => updated(event),
        Event::CompactionStarted(event) => {
            vec![Out::LevelStarted(compaction::started(event, session))]
        }
        Event::CompactionFailed(event) => {
            vec![Out::LevelFailed(compaction::failed(event, session))]
        }
        Event::CompactionFinished(event) => {
            let when = (recorded.at, revision);
            vec![Out::Compacted(Box::new(compaction::watched_compaction(
                event, when, session,
            )))]
        }
        Event::HookCalled(event) => vec![Out::HookCalled(hooks::called(event))],
        Event::MemoryUpdateStarted(event) => {
            vec![Out::MemoryUpdateStarted(memory::started(*event))]
        }
        Event::MemoryUpdated(event) => {
            vec![Out::MemoryUpdated(memory::updated(event, session))]
        }
        Event::MemoryUpdateFailed(event) => {
            vec![Out::MemoryUpdateFailed(memory::failed(event, recorded.at))]
        }
        Event::WorkingStateUpdated(event) => working_state::updated(event)
            .map(Out::WorkingStateUpdated)
            .into_iter()
            .collect(),
        Event::SpansStaged(event) => vec![Out::SpansStaged(spans::staged(event, session))],
        Event::SpansCollapsed(event) => {
            vec![Out::SpansCollapsed(spans::collapsed(event, session))]
        }
        Event::PolicyChanged(event) => vec![Out::PolicyChanged(Box::new(v1::PolicyChanged {
            paths: earlier
                .map(|earlier| changed_paths(earlier, &event.policy))
                .unwrap_or_default(),
            policy: Some(policy(&event.policy)),
        }))],
        Event::MessagesAppended(event) => appended(event, session),
        Event::ViewServed(event) => served(event, session),
        Event::ResultsPersisted(event) => {
            let persisted = levels::persisted(event, session);
            let news = !persisted.results.is_empty();
            news.then_some(Out::ResultsPersisted(persisted))
                .into_iter()
                .collect()
        }
        Event::PersistDecided(event) => {
            persist_decisions::persisted_event(&event.decision, session)
                .into_iter()
                .collect()
        }
        // These events are internal steps. Other events report their effects.
        Event::PersistDecisionsConsumed(_)
        | Event::ArraySynced(_)
        | Event::MemoryFileWritten(_)
        | Event::CompactionShortened(_) => Vec::new(),
        Event::SummaryPrepared(event) => vec![Out::SummaryPrepared(compaction::prepared(event))],
        Event::ContentSnipped(event) => vec![Out::ContentSnipped(levels::snipped(event, session))],
        Event::ResultsCleared(event) => vec![Out::ResultsCleared(levels::cleared(event, session))],
        Event::CacheEditsIssued(event) => {
            vec![Out::CacheEditsIssued(levels::edits_issued(event, session))]
        }
        Event::ContextRestored(event) => {
            vec![Out::ContextRestored(levels::restored(event, session))]
        }
        Event::SessionRewound(event) => {
            // A rewind belongs to no level, so `level_effect` does not cover it.
            effect = Some(rewind_effect(event));
            vec![Out::SessionRewound(rewound(event, session))]
        }
    };
    happened
        .into_iter()
        .map(|event| v1::SessionEvent {
            revision: revision.get(),
            time: Some(export_timestamp(recorded.at)),
            request_id: request_id.clone(),
            credential: recorded.by.as_deref().unwrap_or_default().to_owned(),
            epoch: session.epoch_at(revision).get().into(),
            effect: effect.clone(),
            event: Some(event),
        })
        .collect()
}

fn created(event: &event::SessionCreated) -> v1::SessionCreated {
    v1::SessionCreated {
        implicit: event.implicit,
        parent_session: event
            .parent
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        forked_from: event
            .forked_from
            .as_ref()
            .map(super::session_out::fork_origin),
    }
}

fn updated(event: &event::SessionUpdated) -> Vec<Out> {
    let changed = [
        ("title", event.title.is_some()),
        ("project_path", event.project_path.is_some()),
        ("branch", event.branch.is_some()),
        ("hold", event.hold.is_some()),
        ("attributes", event.attributes.is_some()),
    ];
    let paths: Vec<String> = changed
        .into_iter()
        .filter(|(_, is_changed)| *is_changed)
        .map(|(path, _)| path.to_owned())
        .collect();
    if paths.is_empty() {
        return Vec::new();
    }
    vec![Out::SessionUpdated(v1::SessionUpdated { paths })]
}

fn appended(event: &event::MessagesAppended, session: &Session) -> Vec<Out> {
    // An append of duplicates only is recorded for its request stamp and adds no message.
    let Some(first) = event.messages.first() else {
        return Vec::new();
    };
    let first = session.transcript().find(first.message.id);
    let tokens = event.messages.iter().map(|appended| appended.size.tokens);
    let messages = event.messages.iter();
    let mut usages = messages.filter_map(|appended| appended.message.usage.as_ref());
    let re_emitted = event
        .messages
        .iter()
        .filter(|appended| matches!(appended.visibility, Visibility::Reemission(_)));
    vec![Out::MessagesAppended(v1::MessagesAppended {
        message_ids: event
            .messages
            .iter()
            .map(|appended| appended.message.id.to_string())
            .collect(),
        first_ordinal: first.map_or(0, |first| u64::from(first.get()) + 1),
        re_emission_ids: re_emitted
            .map(|appended| appended.message.id.to_string())
            .collect(),
        tokens: tokens.fold(0, u32::saturating_add),
        // The prompt of the last response contains the earlier ones, so its usage stands for all.
        usage: usages.next_back().map(export_usage),
    })]
}

fn served(event: &event::ViewServed, session: &Session) -> Vec<Out> {
    // No event of its own records an interruption. Applying the pieces of a served view interrupts the calls.
    let interrupted: Vec<v1::CallRef> = event
        .pieces
        .iter()
        .filter_map(|piece| match piece.form {
            PieceForm::Interrupted(call) => Some(call_ref(session, call)),
            _ => None,
        })
        .collect();
    let last = last_place(&event.pieces);
    let mut all = Vec::new();
    // The interruption comes first, because the served view already contains its results.
    if !interrupted.is_empty() {
        all.push(Out::CallsInterrupted(v1::CallsInterrupted {
            calls: interrupted,
        }));
    }
    all.push(Out::ViewServed(v1::ViewServed {
        target: Some(export_target(&event.target, event.window)),
        last_message_id: export_message_id(session, last),
        tokens: saturate_tokens(event.tokens),
        breakdown: (!event.parts.is_empty()).then(|| request_parts(&event.parts)),
        saved_tokens: saturate_tokens(event.saved_tokens),
        rewritten_tokens: saturate_tokens(event.rewritten_tokens),
    }));
    all
}

/// Converts a rewind.
pub fn rewound(event: &event::SessionRewound, session: &Session) -> v1::SessionRewound {
    let transcript = session.transcript();
    let id = |ordinal: Ordinal| transcript.get(ordinal).map(|entry| entry.id.to_string());
    v1::SessionRewound {
        to_message_id: event.to.and_then(id).unwrap_or_default(),
        message_ids: event.removed.iter().copied().filter_map(id).collect(),
    }
}

/// Returns the tokens that a rewind freed.
pub fn rewind_effect(event: &event::SessionRewound) -> v1::LevelEffect {
    let freed = event.freed_tokens;
    v1::LevelEffect {
        trigger: v1::Trigger::Manual.into(),
        before_tokens: saturate_tokens(event.before_tokens),
        after_tokens: saturate_tokens(event.before_tokens.saturating_sub(freed)),
        freed_tokens: saturate_tokens(freed),
        ..v1::LevelEffect::default()
    }
}

/// Returns the kind of an event, for filters.
pub const fn event_kind(event: &v1::SessionEvent) -> v1::EventKind {
    use v1::EventKind as Kind;
    match &event.event {
        None => Kind::Unspecified,
        Some(Out::SessionCreated(_)) => Kind::SessionCreated,
        Some(Out::SessionUpdated(_)) => Kind::SessionUpdated,
        Some(Out::PolicyChanged(_)) => Kind::PolicyChanged,
        Some(Out::MessagesAppended(_)) => Kind::MessagesAppended,
        Some(Out::CallsInterrupted(_)) => Kind::CallsInterrupted,
        Some(Out::ViewServed(_)) => Kind::ViewServed,
        Some(Out::LevelStarted(_)) => Kind::LevelStarted,
        Some(Out::LevelFailed(_)) => Kind::LevelFailed,
        Some(Out::ResultsPersisted(_)) => Kind::ResultsPersisted,
        Some(Out::ContentSnipped(_)) => Kind::ContentSnipped,
        Some(Out::ResultsCleared(_)) => Kind::ResultsCleared,
        Some(Out::SpansStaged(_)) => Kind::SpansStaged,
        Some(Out::SpansCollapsed(_)) => Kind::SpansCollapsed,
        Some(Out::Compacted(_)) => Kind::Compacted,
        Some(Out::ContextRestored(_)) => Kind::ContextRestored,
        Some(Out::SessionRewound(_)) => Kind::SessionRewound,
        Some(Out::MemoryUpdateStarted(_)) => Kind::MemoryUpdateStarted,
        Some(Out::MemoryUpdated(_)) => Kind::MemoryUpdated,
        Some(Out::MemoryUpdateFailed(_)) => Kind::MemoryUpdateFailed,
        Some(Out::WorkingStateUpdated(_)) => Kind::WorkingStateUpdated,
        Some(Out::HookCalled(_)) => Kind::HookCalled,
        Some(Out::CacheEditsIssued(_)) => Kind::CacheEditsIssued,
        Some(Out::SummaryPrepared(_)) => Kind::SummaryPrepared,
    }
}

/// Validates the event kinds in the field `kinds`. An empty list selects all.
pub fn event_kinds(kinds: &[i32]) -> Result<Vec<v1::EventKind>, FieldError> {
    known(kinds, "kinds")
}
