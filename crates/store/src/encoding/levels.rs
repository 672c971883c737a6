//! Encoding of events and state of the levels.

use palimpsest_core::event::{
    CacheEditsIssued, ClearMode, ContentSnipped, ContextRestored, ResultsCleared, ResultsPersisted,
    Trigger,
};
use palimpsest_core::ids::{CallKey, Ordinal, Revision, TurnNumber};
use palimpsest_core::levels::results::StoredResult;
use palimpsest_core::message::Digest;
use palimpsest_core::session::{CachePin, PinPlace};

use super::error::{DecodeError, sixteen};
use super::stamp::{read_stamp, write_stamp};
use super::state::{
    read_call_state, read_ledger, read_pending, read_sizes, write_call_state, write_ledger,
    write_pending, write_sizes,
};
use super::view::{block, read_change, write_change};
use super::{message, v1};

const CUT: DecodeError = DecodeError::Damaged("a list in an event is cut");

pub(super) fn write_stored(stored: &StoredResult) -> v1::StoredResult {
    v1::StoredResult {
        call: stored.call.get(),
        file: stored.file.to_string(),
        sha256: bytes::Bytes::copy_from_slice(&stored.sha256),
        bytes: stored.bytes,
        tokens: stored.tokens,
        text: stored.text.to_string(),
        text_tokens: stored.text_tokens,
        only_file: stored.only_file,
    }
}

pub(super) fn read_stored(stored: v1::StoredResult) -> Result<StoredResult, DecodeError> {
    let sha256: &[u8] = &stored.sha256;
    Ok(StoredResult {
        call: CallKey::new(stored.call),
        file: stored.file.into(),
        sha256: sha256.try_into().map_err(|_| CUT)?,
        bytes: stored.bytes,
        tokens: stored.tokens,
        text: stored.text.into(),
        text_tokens: stored.text_tokens,
        only_file: stored.only_file,
    })
}

pub(super) fn write_persisted(event: &ResultsPersisted) -> v1::ResultsPersisted {
    v1::ResultsPersisted {
        results: event.results.iter().map(write_stored).collect(),
        sizes: Some(write_sizes(&event.sizes)),
        before_tokens: event.before_tokens,
    }
}

pub(super) fn read_persisted(
    stored: v1::ResultsPersisted,
) -> Result<ResultsPersisted, DecodeError> {
    Ok(ResultsPersisted {
        results: all_stored(stored.results)?,
        sizes: read_sizes(stored.sizes)?,
        before_tokens: stored.before_tokens,
    })
}

pub(super) fn write_snipped(event: &ContentSnipped) -> v1::ContentSnipped {
    v1::ContentSnipped {
        asked: write_trigger(event.trigger).into(),
        turns: event.turns.iter().map(|turn| turn.get()).collect(),
        messages: ordinals(&event.messages),
        block_of: event.blocks.iter().map(|(of, _)| of.get()).collect(),
        blocks: event
            .blocks
            .iter()
            .map(|(_, block)| (*block).into())
            .collect(),
        reason: event.reason.to_string(),
        before_tokens: event.before_tokens,
        freed_tokens: event.freed_tokens,
        sizes: Some(write_sizes(&event.sizes)),
        gone: calls(&event.gone),
        change: Some(write_change(&event.change)),
        request: event.request.as_ref().map(write_stamp),
    }
}

pub(super) fn read_snipped(stored: v1::ContentSnipped) -> Result<ContentSnipped, DecodeError> {
    if stored.block_of.len() != stored.blocks.len() {
        return Err(CUT);
    }
    let blocks = stored.block_of.iter().zip(&stored.blocks);
    Ok(ContentSnipped {
        trigger: read_trigger(stored.asked()),
        turns: stored
            .turns
            .iter()
            .map(|turn| TurnNumber::new(*turn).ok_or(CUT))
            .collect::<Result<_, _>>()?,
        blocks: blocks
            .map(|(of, at)| Ok((Ordinal::new(*of), block(*at)?)))
            .collect::<Result<_, DecodeError>>()?,
        messages: stored.messages.into_iter().map(Ordinal::new).collect(),
        reason: stored.reason.into(),
        before_tokens: stored.before_tokens,
        freed_tokens: stored.freed_tokens,
        sizes: read_sizes(stored.sizes)?,
        gone: stored.gone.into_iter().map(CallKey::new).collect(),
        change: read_change(stored.change)?,
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_cleared(event: &ResultsCleared) -> v1::ResultsCleared {
    let mode = match event.mode {
        ClearMode::Time => v1::ClearMode::Time,
        ClearMode::Size => v1::ClearMode::Size,
        ClearMode::Prune => v1::ClearMode::Prune,
    };
    v1::ResultsCleared {
        mode: mode.into(),
        asked: write_trigger(event.trigger).into(),
        calls: calls(&event.calls),
        saved: event.saved.iter().map(write_stored).collect(),
        hidden_paths: event.hidden_paths.iter().map(ToString::to_string).collect(),
        before_tokens: event.before_tokens,
        freed_tokens: event.freed_tokens,
        sizes: Some(write_sizes(&event.sizes)),
        change: Some(write_change(&event.change)),
        request: event.request.as_ref().map(write_stamp),
    }
}

pub(super) fn read_cleared(stored: v1::ResultsCleared) -> Result<ResultsCleared, DecodeError> {
    Ok(ResultsCleared {
        mode: match stored.mode() {
            v1::ClearMode::Time => ClearMode::Time,
            v1::ClearMode::Size => ClearMode::Size,
            v1::ClearMode::Prune => ClearMode::Prune,
            v1::ClearMode::Unspecified => return Err(CUT),
        },
        trigger: read_trigger(stored.asked()),
        calls: stored.calls.into_iter().map(CallKey::new).collect(),
        saved: all_stored(stored.saved)?,
        hidden_paths: stored.hidden_paths.into_iter().map(Into::into).collect(),
        before_tokens: stored.before_tokens,
        freed_tokens: stored.freed_tokens,
        sizes: read_sizes(stored.sizes)?,
        change: read_change(stored.change)?,
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_edits(event: &CacheEditsIssued) -> v1::CacheEditsIssued {
    v1::CacheEditsIssued {
        calls: calls(&event.calls),
        message: event.message.get(),
        place: event.place.map(|place| place.message),
        place_target: event.place.map(place_target).unwrap_or_default(),
        before_tokens: event.before_tokens,
        freed_tokens: event.freed_tokens,
    }
}

pub(super) fn read_edits(stored: v1::CacheEditsIssued) -> Result<CacheEditsIssued, DecodeError> {
    let (before_tokens, freed_tokens) = (stored.before_tokens, stored.freed_tokens);
    let CachePin {
        message,
        calls,
        place,
    } = read_pin(stored)?;
    Ok(CacheEditsIssued {
        calls,
        message,
        place,
        before_tokens,
        freed_tokens,
    })
}

pub(super) fn write_pin(pin: &CachePin) -> v1::CacheEditsIssued {
    v1::CacheEditsIssued {
        calls: calls(&pin.calls),
        message: pin.message.get(),
        place: pin.place.map(|place| place.message),
        place_target: pin.place.map(place_target).unwrap_or_default(),
        ..v1::CacheEditsIssued::default()
    }
}

pub(super) fn read_pin(stored: v1::CacheEditsIssued) -> Result<CachePin, DecodeError> {
    let place = match stored.place {
        None => None,
        Some(message) => Some(PinPlace {
            target: Digest::from_bytes(sixteen(&stored.place_target)?),
            message,
        }),
    };
    Ok(CachePin {
        calls: stored.calls.into_iter().map(CallKey::new).collect(),
        message: Ordinal::new(stored.message),
        place,
    })
}

fn place_target(place: PinPlace) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(place.target.as_bytes())
}

pub(super) fn write_restored(event: &ContextRestored) -> v1::Restored {
    let mut standings = v1::Standings::default();
    for (ordinal, standing) in &event.standings {
        let (standing, of) = message::write_visibility(*standing);
        standings.message.push(ordinal.get());
        standings.standing.push(standing.into());
        standings.of.push(of);
    }
    let mut states = v1::CallStates::default();
    for (call, state) in &event.calls {
        let (state, message, block) = write_call_state(*state);
        states.call.push(call.get());
        states.state.push(state.into());
        states.result_message.push(message);
        states.result_block.push(block);
    }
    v1::Restored {
        to: event.to.get(),
        undone: event.undone.iter().map(|revision| revision.get()).collect(),
        before_tokens: event.before_tokens,
        standings: Some(standings),
        sizes: Some(write_sizes(&event.sizes)),
        calls: Some(states),
        pending: event.pending.iter().map(write_pending).collect(),
        ledger: Some(write_ledger(&event.ledger)),
        change: Some(write_change(&event.change)),
        request: event.request.as_ref().map(write_stamp),
        after_tokens: event.after_tokens,
    }
}

pub(super) fn read_restored(stored: v1::Restored) -> Result<ContextRestored, DecodeError> {
    // Lists are stored as columns. Columns of different lengths mean that the record is damaged.
    let places = stored.standings.unwrap_or_default();
    let standing = |(index, ordinal): (usize, &u32)| {
        let standing = *places.standing.get(index).ok_or(CUT)?;
        let standing = v1::Standing::try_from(standing).map_err(|_| CUT)?;
        let of = *places.of.get(index).ok_or(CUT)?;
        Ok((
            Ordinal::new(*ordinal),
            message::read_visibility(standing, of)?,
        ))
    };
    let states = stored.calls.unwrap_or_default();
    let state = |(index, call): (usize, &u32)| {
        let state = read_call_state(
            *states.state.get(index).ok_or(CUT)?,
            *states.result_message.get(index).ok_or(CUT)?,
            *states.result_block.get(index).ok_or(CUT)?,
        )?;
        Ok((CallKey::new(*call), state))
    };
    Ok(ContextRestored {
        to: Revision::new(stored.to),
        undone: stored.undone.into_iter().map(Revision::new).collect(),
        before_tokens: stored.before_tokens,
        after_tokens: stored.after_tokens,
        standings: places
            .message
            .iter()
            .enumerate()
            .map(standing)
            .collect::<Result<_, DecodeError>>()?,
        sizes: read_sizes(stored.sizes)?,
        calls: states
            .call
            .iter()
            .enumerate()
            .map(state)
            .collect::<Result<_, DecodeError>>()?,
        pending: stored
            .pending
            .iter()
            .map(read_pending)
            .collect::<Result<_, DecodeError>>()?,
        ledger: read_ledger(stored.ledger.unwrap_or_default()),
        change: read_change(stored.change)?,
        request: read_stamp(stored.request)?,
    })
}

fn all_stored(stored: Vec<v1::StoredResult>) -> Result<Vec<StoredResult>, DecodeError> {
    stored.into_iter().map(read_stored).collect()
}

pub(super) fn ordinals(messages: &[Ordinal]) -> Vec<u32> {
    messages.iter().map(|message| message.get()).collect()
}

pub(super) fn calls(calls: &[CallKey]) -> Vec<u32> {
    calls.iter().map(|call| call.get()).collect()
}

pub(super) fn write_trigger(asked: Trigger) -> v1::Asked {
    match asked {
        Trigger::Auto => v1::Asked::Unspecified,
        Trigger::Manual => v1::Asked::Manual,
        Trigger::Model => v1::Asked::Model,
        Trigger::PromptTooLong => v1::Asked::Provider,
    }
}

pub(super) fn read_trigger(stored: v1::Asked) -> Trigger {
    match stored {
        v1::Asked::Unspecified => Trigger::Auto,
        v1::Asked::Manual => Trigger::Manual,
        v1::Asked::Model => Trigger::Model,
        v1::Asked::Provider => Trigger::PromptTooLong,
    }
}
