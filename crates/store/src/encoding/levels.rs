//! Encoding of events and state of the levels.

use palimpsest_core::event::{
    CacheEditsIssued, ClearMode, ContentSnipped, ContextRestored, ResultsCleared, ResultsPersisted,
    SessionRewound, Trigger,
};
use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::levels::results::StoredResult;
use palimpsest_core::session::{ArrayPosition, CacheEditBatch, CallState, Visibility};

use super::error::DecodeError;
use super::message::{read_visibility, write_visibility};
use super::state::{read_call_state, write_call_state};
use super::stored_as::{StoredAs, cell};
use super::v1;

// An unspecified trigger is the automatic one, which is the most frequent.
stored_enum! {
    Trigger = Asked { Auto = Unspecified, Manual, Model, PromptTooLong = Provider }
}

stored_enum! {
    ClearMode = ClearMode { Time, Size, Prune }
    or "a clear of an unknown mode"
}

stored_struct! {
    StoredResult = StoredResult { call, file, sha256, bytes, tokens }
    renamed { replacement = text, replacement_tokens = text_tokens, original_only_in_file = only_file }
}

stored_struct! {
    ResultsPersisted = ResultsPersisted { results, sizes, before_tokens }
}

stored_struct! {
    ContentSnipped = ContentSnipped {
        turns, messages, reason, before_tokens, freed_tokens, sizes, change, request, hidden_paths,
    }
    renamed { trigger = asked, removed_calls = gone }
    paired { blocks = block_of + blocks }
}

stored_struct! {
    ResultsCleared = ResultsCleared {
        mode, calls, hidden_paths, before_tokens, freed_tokens, sizes, change, request,
    }
    renamed { trigger = asked, stored = saved }
}

stored_struct! {
    SessionRewound = Rewound { to, before_tokens, freed_tokens, ledger, change, request }
    renamed { removed = left }
}

stored_struct! {
    ContextRestored = Restored {
        to, undone, before_tokens, after_tokens, sizes, calls, remapped, pending, ledger, change, request,
    }
    renamed { visibilities = standings }
}

/// A cache edit. A snapshot stores it in the same form, without the tokens.
impl StoredAs<v1::CacheEditsIssued> for CacheEditsIssued {
    fn to_proto(&self) -> v1::CacheEditsIssued {
        v1::CacheEditsIssued {
            calls: self.calls.to_proto(),
            message: self.message.to_proto(),
            place: self.position.map(|place| place.message),
            place_target: self
                .position
                .map(|place| place.target.to_proto())
                .unwrap_or_default(),
            before_tokens: self.before_tokens,
            freed_tokens: self.freed_tokens,
        }
    }

    fn from_proto(stored: v1::CacheEditsIssued) -> Result<Self, DecodeError> {
        let place = match stored.place {
            None => None,
            Some(message) => Some(ArrayPosition {
                target: StoredAs::from_proto(stored.place_target)?,
                message,
            }),
        };
        Ok(Self {
            calls: StoredAs::from_proto(stored.calls)?,
            message: StoredAs::from_proto(stored.message)?,
            position: place,
            before_tokens: stored.before_tokens,
            freed_tokens: stored.freed_tokens,
        })
    }
}

impl StoredAs<v1::CacheEditsIssued> for CacheEditBatch {
    fn to_proto(&self) -> v1::CacheEditsIssued {
        let event = CacheEditsIssued {
            calls: self.calls.clone(),
            message: self.message,
            position: self.position,
            before_tokens: 0,
            freed_tokens: 0,
        };
        event.to_proto()
    }

    fn from_proto(stored: v1::CacheEditsIssued) -> Result<Self, DecodeError> {
        let event = CacheEditsIssued::from_proto(stored)?;
        Ok(Self {
            message: event.message,
            calls: event.calls,
            position: event.position,
        })
    }
}

/// The visibility of messages, as columns.
impl StoredAs<Option<v1::Standings>> for Vec<(Ordinal, Visibility)> {
    fn to_proto(&self) -> Option<v1::Standings> {
        let mut stored = v1::Standings::default();
        for (message, visibility) in self {
            let (standing, of) = write_visibility(*visibility);
            stored.message.push(message.get());
            stored.standing.push(standing);
            stored.of.push(of);
        }
        Some(stored)
    }

    fn from_proto(stored: Option<v1::Standings>) -> Result<Self, DecodeError> {
        let stored = stored.unwrap_or_default();
        let rows = 0..stored.message.len();
        rows.map(|row| {
            let visibility = read_visibility(cell(&stored.standing, row)?, cell(&stored.of, row)?)?;
            Ok((cell(&stored.message, row)?, visibility))
        })
        .collect()
    }
}

/// The states of calls, as columns.
impl StoredAs<Option<v1::CallStates>> for Vec<(CallKey, CallState)> {
    fn to_proto(&self) -> Option<v1::CallStates> {
        let mut stored = v1::CallStates::default();
        for (call, state) in self {
            let (state, message, block) = write_call_state(*state);
            stored.call.push(call.get());
            stored.state.push(state);
            stored.result_message.push(message);
            stored.result_block.push(block);
        }
        Some(stored)
    }

    fn from_proto(stored: Option<v1::CallStates>) -> Result<Self, DecodeError> {
        let stored = stored.unwrap_or_default();
        let rows = 0..stored.call.len();
        rows.map(|row| {
            let state = read_call_state(
                cell(&stored.state, row)?,
                cell(&stored.result_message, row)?,
                cell(&stored.result_block, row)?,
            )?;
            Ok((cell(&stored.call, row)?, state))
        })
        .collect()
    }
}
