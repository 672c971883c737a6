//! Encoding of events.

use std::sync::Arc;

use palimpsest_core::event::{
    Event, MessagesAppended, PolicyChanged, RecordedEvent, SessionCreated, SessionRewound,
    SessionUpdated, ViewServed,
};
use palimpsest_core::ids::{Ordinal, SessionKey, Timestamp};
use palimpsest_core::policy::{Overlay, Policy};
use palimpsest_core::session::LastServed;

use super::appended::{read_message, write_message};
use super::error::{DecodeError, sixteens};
use super::persist_decisions::{read_decided, read_settled};
use super::stamp::{read_stamp, write_stamp};
use super::{
    compaction, hooks, levels, message, persist_decisions, session_memory, spans, state, v1, view,
    working,
};

pub(super) fn write(recorded: &RecordedEvent) -> v1::Recorded {
    use v1::recorded::Event as Stored;
    // The match is exhaustive, so a new event does not compile without an encoding.
    let event = match &recorded.event {
        Event::SessionCreated(event) => Stored::SessionCreated(v1::SessionCreated {
            implicit: event.implicit,
            rules: event.rules,
            policy: Some(write_policy(&event.policy)),
            title: event.title.to_string(),
            project_path: event.project_path.to_string(),
            branch: event.branch.to_string(),
            hold: event.hold.to_string(),
            parent: write_parent(event.parent.as_ref()),
            attributes: message::write_attributes(&event.attributes),
            request: event.request.as_ref().map(write_stamp),
        }),
        Event::SessionUpdated(event) => Stored::SessionUpdated(v1::SessionUpdated {
            title: event.title.as_deref().map(str::to_owned),
            project_path: event.project_path.as_deref().map(str::to_owned),
            branch: event.branch.as_deref().map(str::to_owned),
            hold: event.hold.as_deref().map(str::to_owned),
            attributes: event.attributes.as_ref().map(|all| v1::Attributes {
                items: message::write_attributes(all),
            }),
            request: event.request.as_ref().map(write_stamp),
        }),
        Event::MessagesAppended(event) => Stored::MessagesAppended(write_appended(event)),
        Event::ViewServed(event) => Stored::ViewServed(v1::ViewServed {
            pieces: Some(view::write_pieces(&event.pieces)),
            served: Some(view::write_served(&LastServed {
                target: event.target.clone(),
                window: event.window,
                overhead_tokens: event.overhead_tokens,
            })),
            tokens: event.tokens,
        }),
        Event::SessionRewound(event) => Stored::Rewound(v1::Rewound {
            to: event.to.map(Ordinal::get),
            left: event.left.iter().map(|left| left.get()).collect(),
            before_tokens: event.before_tokens,
            ledger: Some(state::write_ledger(&event.ledger)),
            change: Some(view::write_change(&event.change)),
            request: event.request.as_ref().map(write_stamp),
            freed_tokens: event.freed_tokens,
        }),
        Event::ResultsPersisted(event) => Stored::ResultsPersisted(levels::write_persisted(event)),
        Event::ContentSnipped(event) => Stored::ContentSnipped(levels::write_snipped(event)),
        Event::ResultsCleared(event) => Stored::ResultsCleared(levels::write_cleared(event)),
        Event::CacheEditsIssued(event) => Stored::CacheEditsIssued(levels::write_edits(event)),
        Event::ContextRestored(event) => Stored::Restored(levels::write_restored(event)),
        Event::CompactionStarted(event) => {
            Stored::CompactionStarted(compaction::write_started(event))
        }
        Event::CompactionFailed(event) => Stored::CompactionFailed(compaction::write_failed(event)),
        Event::CompactionShortened(event) => {
            Stored::CompactionShortened(compaction::write_shortened(event))
        }
        Event::HookCalled(event) => Stored::HookCalled(hooks::write_called(event)),
        Event::SummaryPrepared(event) => Stored::SummaryPrepared(compaction::write_prepared(event)),
        Event::Compacted(event) => Stored::Compacted(compaction::write_compacted(event)),
        Event::MemoryUpdateStarted(event) => {
            Stored::MemoryStarted(session_memory::write_started(*event))
        }
        Event::MemoryUpdated(event) => Stored::MemoryUpdated(session_memory::write_updated(event)),
        Event::MemoryUpdateFailed(event) => {
            Stored::MemoryFailed(session_memory::write_failed(event))
        }
        Event::MemoryFiled(event) => Stored::MemoryFiled(session_memory::write_filed(*event)),
        Event::WorkingStateUpdated(event) => {
            Stored::WorkingStateUpdated(working::write_updated(event))
        }
        Event::SpansStaged(event) => Stored::SpansStaged(spans::write_staged(event)),
        Event::SpansCollapsed(event) => Stored::SpansCollapsed(spans::write_collapsed(event)),
        Event::PolicyChanged(event) => Stored::PolicyChanged(v1::PolicyChanged {
            policy: Some(write_policy(&event.policy)),
        }),
        Event::PersistDecided(event) => {
            Stored::ResultOffered(persist_decisions::write_decided(event))
        }
        Event::PersistDecisionsConsumed(event) => {
            Stored::OffersSettled(persist_decisions::write_settled(event))
        }
    };
    v1::Recorded {
        at_ms: recorded.at.as_millis(),
        event: Some(event),
    }
}

pub(super) fn read(stored: v1::Recorded) -> Result<RecordedEvent, DecodeError> {
    use v1::recorded::Event as Stored;
    let event = match stored.event {
        Some(Stored::SessionCreated(event)) => Event::SessionCreated(SessionCreated {
            implicit: event.implicit,
            rules: event.rules,
            policy: Arc::new(read_policy(event.policy)?),
            title: event.title.into(),
            project_path: event.project_path.into(),
            branch: event.branch.into(),
            hold: event.hold.into(),
            parent: read_parent(&event.parent)?,
            attributes: message::read_attributes(event.attributes),
            request: read_stamp(event.request)?,
        }),
        Some(Stored::SessionUpdated(event)) => Event::SessionUpdated(SessionUpdated {
            title: event.title.map(String::into_boxed_str),
            project_path: event.project_path.map(String::into_boxed_str),
            branch: event.branch.map(String::into_boxed_str),
            hold: event.hold.map(String::into_boxed_str),
            attributes: event
                .attributes
                .map(|all| message::read_attributes(all.items)),
            request: read_stamp(event.request)?,
        }),
        Some(Stored::MessagesAppended(event)) => Event::MessagesAppended(read_appended(event)?),
        // The target and the window are stored in one message, which snapshots use too.
        Some(Stored::ViewServed(event)) => {
            let served = view::read_served(event.served)?;
            Event::ViewServed(ViewServed {
                pieces: view::read_pieces(event.pieces)?,
                target: served.target,
                window: served.window,
                overhead_tokens: served.overhead_tokens,
                tokens: event.tokens,
            })
        }
        Some(Stored::Rewound(event)) => Event::SessionRewound(SessionRewound {
            to: event.to.map(Ordinal::new),
            left: event.left.into_iter().map(Ordinal::new).collect(),
            before_tokens: event.before_tokens,
            freed_tokens: event.freed_tokens,
            ledger: state::read_ledger(event.ledger.unwrap_or_default()),
            change: view::read_change(event.change)?,
            request: read_stamp(event.request)?,
        }),
        Some(Stored::ResultsPersisted(event)) => {
            Event::ResultsPersisted(levels::read_persisted(event)?)
        }
        Some(Stored::ContentSnipped(event)) => Event::ContentSnipped(levels::read_snipped(event)?),
        Some(Stored::ResultsCleared(event)) => Event::ResultsCleared(levels::read_cleared(event)?),
        Some(Stored::CacheEditsIssued(event)) => {
            Event::CacheEditsIssued(levels::read_edits(event)?)
        }
        Some(Stored::Restored(event)) => Event::ContextRestored(levels::read_restored(event)?),
        Some(Stored::CompactionStarted(event)) => {
            Event::CompactionStarted(compaction::read_started(event)?)
        }
        Some(Stored::CompactionFailed(event)) => {
            Event::CompactionFailed(compaction::read_failed(event)?)
        }
        Some(Stored::CompactionShortened(event)) => {
            Event::CompactionShortened(compaction::read_shortened(event)?)
        }
        Some(Stored::HookCalled(event)) => Event::HookCalled(hooks::read_called(event)?),
        Some(Stored::SummaryPrepared(event)) => {
            Event::SummaryPrepared(compaction::read_prepared(event)?)
        }
        Some(Stored::Compacted(event)) => Event::Compacted(compaction::read_compacted(event)?),
        Some(Stored::MemoryStarted(event)) => {
            Event::MemoryUpdateStarted(session_memory::read_started(event))
        }
        Some(Stored::MemoryUpdated(event)) => {
            Event::MemoryUpdated(session_memory::read_updated(event)?)
        }
        Some(Stored::MemoryFailed(event)) => {
            Event::MemoryUpdateFailed(session_memory::read_failed(event))
        }
        Some(Stored::WorkingStateUpdated(event)) => {
            Event::WorkingStateUpdated(working::read_updated(event)?)
        }
        Some(Stored::MemoryFiled(event)) => Event::MemoryFiled(session_memory::read_filed(event)),
        Some(Stored::SpansStaged(event)) => Event::SpansStaged(spans::read_staged(event)?),
        Some(Stored::SpansCollapsed(event)) => Event::SpansCollapsed(spans::read_collapsed(event)?),
        Some(Stored::PolicyChanged(event)) => Event::PolicyChanged(PolicyChanged {
            policy: Arc::new(read_policy(event.policy)?),
        }),
        Some(Stored::ResultOffered(event)) => Event::PersistDecided(read_decided(event)?),
        Some(Stored::OffersSettled(event)) => Event::PersistDecisionsConsumed(read_settled(event)),
        None => {
            return Err(DecodeError::Damaged(
                "an event of a kind that this version does not know",
            ));
        }
    };
    Ok(RecordedEvent {
        at: Timestamp::from_millis(stored.at_ms),
        event,
    })
}

fn write_appended(event: &MessagesAppended) -> v1::MessagesAppended {
    let known_ids: Vec<u8> = event
        .known
        .iter()
        .flat_map(|(_, id)| *id.get().as_bytes())
        .collect();
    v1::MessagesAppended {
        messages: event.messages.iter().map(write_message).collect(),
        known_index: event.known.iter().map(|(index, _)| *index).collect(),
        known_ids: known_ids.into(),
        request: event.request.as_ref().map(write_stamp),
    }
}

fn read_appended(stored: v1::MessagesAppended) -> Result<MessagesAppended, DecodeError> {
    let known = sixteens(&stored.known_ids)?;
    if known.len() != stored.known_index.len() {
        return Err(DecodeError::Damaged("a list of known messages is cut"));
    }
    Ok(MessagesAppended {
        messages: stored
            .messages
            .into_iter()
            .map(read_message)
            .collect::<Result<_, DecodeError>>()?,
        known: stored
            .known_index
            .into_iter()
            .zip(known)
            .map(|(index, id)| Ok((index, message::message_id(&id)?)))
            .collect::<Result<_, DecodeError>>()?,
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_policy(policy: &Policy) -> v1::Policy {
    let fields = Overlay::of(policy);
    v1::Policy {
        json: serde_json::to_string(&fields).unwrap_or_default(),
    }
}

/// Decodes a policy. Records of older releases may lack fields. Missing fields take the values of the
/// preset.
pub(super) fn read_policy(stored: Option<v1::Policy>) -> Result<Policy, DecodeError> {
    let damaged = |()| DecodeError::Damaged("a policy cannot be read");
    let Some(stored) = stored else {
        return Ok(Policy::default());
    };
    let fields: Overlay = serde_json::from_str(&stored.json).map_err(|_| damaged(()))?;
    fields.restore_policy().map_err(|_| damaged(()))
}

pub(super) fn write_parent(parent: Option<&SessionKey>) -> String {
    parent.map(SessionKey::to_string).unwrap_or_default()
}

pub(super) fn read_parent(stored: &str) -> Result<Option<SessionKey>, DecodeError> {
    if stored.is_empty() {
        return Ok(None);
    }
    SessionKey::parse(stored)
        .map(Some)
        .map_err(|_| DecodeError::Damaged("the parent has no name"))
}
