//! Encoding of events.

use std::sync::Arc;

use palimpsest_core::event::{
    Attributes, Event, MessagesAppended, PolicyChanged, RecordedEvent, SessionCreated,
    SessionUpdated, ViewServed,
};
use palimpsest_core::policy::{Overlay, Policy};
use palimpsest_core::session::LastServed;
use palimpsest_core::tokens::RequestParts;

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

/// Stores the payload of each event as one alternative of the proto's `oneof`. Both matches are exhaustive, so an event
/// without an encoding does not compile.
macro_rules! stored_events {
    ({ $($event:ident),* $(,)? } renamed { $($name:ident = $stored:ident),* $(,)? }) => {
        fn write_event(event: &Event) -> v1::recorded::Event {
            match event {
                $(Event::$event(event) => v1::recorded::Event::$event(event.to_proto()),)*
                $(Event::$name(event) => v1::recorded::Event::$stored(event.to_proto()),)*
            }
        }

        fn read_event(stored: v1::recorded::Event) -> Result<Event, DecodeError> {
            Ok(match stored {
                $(v1::recorded::Event::$event(stored) => Event::$event(StoredAs::from_proto(stored)?),)*
                $(v1::recorded::Event::$stored(stored) => Event::$name(StoredAs::from_proto(stored)?),)*
            })
        }
    };
}

stored_events! {
    {
        SessionCreated, SessionUpdated, MessagesAppended, ViewServed, PolicyChanged, ResultsPersisted,
        ContentSnipped, ResultsCleared, CacheEditsIssued, SpansStaged, SpansCollapsed, MemoryUpdated,
        CompactionStarted, CompactionFailed, CompactionShortened, SummaryPrepared, HookCalled,
        WorkingStateUpdated, ArraySynced,
    }
    renamed {
        SessionRewound = Rewound, ContextRestored = Restored, PersistDecided = ResultOffered,
        PersistDecisionsConsumed = OffersSettled, MemoryUpdateStarted = MemoryStarted,
        MemoryUpdateFailed = MemoryFailed, MemoryFileWritten = MemoryFiled, CompactionFinished = Compacted,
    }
}

impl StoredAs<v1::Recorded> for RecordedEvent {
    fn to_proto(&self) -> v1::Recorded {
        v1::Recorded {
            at_ms: self.at.to_proto(),
            by: self.by.as_deref().unwrap_or_default().to_owned(),
            event: Some(write_event(&self.event)),
        }
    }

    fn from_proto(stored: v1::Recorded) -> Result<Self, DecodeError> {
        let event = stored.event.ok_or(DecodeError::Damaged(
            "an event of a kind that this version does not know",
        ))?;
        Ok(Self {
            at: StoredAs::from_proto(stored.at_ms)?,
            by: (!stored.by.is_empty()).then(|| stored.by.into()),
            event: read_event(event)?,
        })
    }
}

stored_struct! {
    SessionCreated = SessionCreated {
        implicit, policy, title, project_path, branch, hold, parent, forked_from, scope, attributes, request,
    }
    renamed { rules_version = rules }
}

stored_struct! {
    SessionUpdated = SessionUpdated { title, project_path, branch, hold, attributes, request }
}

stored_struct! { PolicyChanged = PolicyChanged { policy } }

/// Attributes that replace all earlier ones. The extra message tells an empty list from an unchanged one.
impl StoredAs<v1::Attributes> for Attributes {
    fn to_proto(&self) -> v1::Attributes {
        v1::Attributes {
            items: self.to_proto(),
        }
    }

    fn from_proto(stored: v1::Attributes) -> Result<Self, DecodeError> {
        StoredAs::from_proto(stored.items)
    }
}

/// Appended messages, with the ids of known messages as one byte string.
impl StoredAs<v1::MessagesAppended> for MessagesAppended {
    fn to_proto(&self) -> v1::MessagesAppended {
        let (index, ids): (Vec<u32>, Vec<_>) = self.duplicates.iter().copied().unzip();
        v1::MessagesAppended {
            messages: self.messages.to_proto(),
            known_index: index,
            known_ids: ids.to_proto(),
            request: self.request.to_proto(),
            keeps_ids: self.keeps_ids,
        }
    }

    fn from_proto(stored: v1::MessagesAppended) -> Result<Self, DecodeError> {
        let ids = Vec::from_proto(stored.known_ids)?;
        if ids.len() != stored.known_index.len() {
            return Err(DecodeError::Damaged("a list of known messages is cut"));
        }
        Ok(Self {
            messages: StoredAs::from_proto(stored.messages)?,
            duplicates: stored.known_index.into_iter().zip(ids).collect(),
            keeps_ids: stored.keeps_ids,
            request: StoredAs::from_proto(stored.request)?,
        })
    }
}

stored_struct! {
    RequestParts = RequestParts { system, tools, memory, messages, results, attachments }
}

/// A served view. Its target and its window are stored in one message, which snapshots use too.
impl StoredAs<v1::ViewServed> for ViewServed {
    fn to_proto(&self) -> v1::ViewServed {
        let served = LastServed {
            target: self.target.clone(),
            window: self.window,
            overhead_tokens: self.overhead_tokens,
        };
        v1::ViewServed {
            pieces: self.pieces.to_proto(),
            served: served.to_proto(),
            tokens: self.tokens,
            parts: (!self.parts.is_empty()).then(|| self.parts.to_proto()),
            saved_tokens: self.saved_tokens,
            rewritten_tokens: self.rewritten_tokens,
        }
    }

    fn from_proto(stored: v1::ViewServed) -> Result<Self, DecodeError> {
        let served = LastServed::from_proto(stored.served)?;
        Ok(Self {
            pieces: StoredAs::from_proto(stored.pieces)?,
            target: served.target,
            window: served.window,
            overhead_tokens: served.overhead_tokens,
            tokens: stored.tokens,
            parts: stored
                .parts
                .map(StoredAs::from_proto)
                .transpose()?
                .unwrap_or_default(),
            saved_tokens: stored.saved_tokens,
            rewritten_tokens: stored.rewritten_tokens,
        })
    }
}

/// A policy, as JSON. Records of older releases may lack fields. Missing fields take the values of the preset.
impl StoredAs<Option<v1::Policy>> for Arc<Policy> {
    fn to_proto(&self) -> Option<v1::Policy> {
        let fields = Overlay::of(self);
        Some(v1::Policy {
            // The fields are JSON values already, so the conversion to text cannot fail.
            json: serde_json::to_string(&fields).unwrap_or_default(),
        })
    }

    fn from_proto(stored: Option<v1::Policy>) -> Result<Self, DecodeError> {
        let Some(stored) = stored else {
            return Ok(Self::default());
        };
        let fields: Option<Overlay> = serde_json::from_str(&stored.json).ok();
        let policy = fields.and_then(|fields| fields.restore_policy().ok());
        policy
            .map(Arc::new)
            .ok_or(DecodeError::Damaged("a policy cannot be read"))
    }
}
