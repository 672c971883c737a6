//! Encoding of hook calls during compactions.

use palimpsest_core::event::HookCalled;
use palimpsest_core::ids::CompactionKey;
use palimpsest_core::session::{CompactionHooks, Hook, HookCall, HookResult};

use super::error::{DecodeError, sixteens};
use super::{message, v1};

fn write_call(call: &HookCall) -> v1::HookCall {
    let ids = call.messages.iter().flat_map(|id| *id.get().as_bytes());
    v1::HookCall {
        hook: match call.hook {
            Hook::PreCompact => v1::Hook::PreCompact,
            Hook::PostCompact => v1::Hook::PostCompact,
            Hook::SessionStart => v1::Hook::SessionStart,
        }
        .into(),
        result: match call.result {
            HookResult::Continued => v1::HookResult::Continued,
            HookResult::Vetoed => v1::HookResult::Vetoed,
            HookResult::FailedContinued => v1::HookResult::FailedContinued,
            HookResult::FailedStopped => v1::HookResult::FailedStopped,
        }
        .into(),
        detail: call.detail.to_string(),
        took_ms: call.took_ms,
        message_ids: ids.collect::<Vec<u8>>().into(),
    }
}

fn read_call(stored: v1::HookCall) -> Result<HookCall, DecodeError> {
    let unknown = DecodeError::Damaged("a hook's call of an unknown kind");
    let ids = sixteens(&stored.message_ids)?;
    Ok(HookCall {
        hook: match stored.hook() {
            v1::Hook::PreCompact => Hook::PreCompact,
            v1::Hook::PostCompact => Hook::PostCompact,
            v1::Hook::SessionStart => Hook::SessionStart,
            v1::Hook::Unspecified => return Err(unknown),
        },
        result: match stored.result() {
            v1::HookResult::Continued => HookResult::Continued,
            v1::HookResult::Vetoed => HookResult::Vetoed,
            v1::HookResult::FailedContinued => HookResult::FailedContinued,
            v1::HookResult::FailedStopped => HookResult::FailedStopped,
            v1::HookResult::Unspecified => return Err(unknown),
        },
        detail: stored.detail.into(),
        took_ms: stored.took_ms,
        messages: ids
            .iter()
            .map(|id| message::message_id(id))
            .collect::<Result<_, _>>()?,
    })
}

pub(super) fn write_calls(calls: &[HookCall]) -> Vec<v1::HookCall> {
    calls.iter().map(write_call).collect()
}

pub(super) fn read_calls(stored: Vec<v1::HookCall>) -> Result<Vec<HookCall>, DecodeError> {
    stored.into_iter().map(read_call).collect()
}

pub(super) fn write_called(event: &HookCalled) -> v1::HookCalled {
    v1::HookCalled {
        key: event.key.get(),
        call: Some(write_call(&event.call)),
        instructions: event.instructions.as_deref().map(str::to_owned),
        must_keep: event.must_keep.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn read_called(stored: v1::HookCalled) -> Result<HookCalled, DecodeError> {
    Ok(HookCalled {
        key: CompactionKey::new(stored.key),
        call: read_call(stored.call.unwrap_or_default())?,
        instructions: stored.instructions.map(String::into_boxed_str),
        must_keep: stored.must_keep.into_iter().map(Into::into).collect(),
    })
}

/// Encodes the hook state of a compaction. Returns `None` without hook calls, which is the case for
/// most sessions.
pub(super) fn write(hooks: &CompactionHooks) -> Option<v1::Hooks> {
    (*hooks != CompactionHooks::default()).then(|| v1::Hooks {
        calls: write_calls(&hooks.calls),
        instructions: hooks.instructions.as_deref().map(str::to_owned),
        must_keep: hooks.must_keep.iter().map(ToString::to_string).collect(),
    })
}

pub(super) fn read(stored: Option<v1::Hooks>) -> Result<CompactionHooks, DecodeError> {
    let stored = stored.unwrap_or_default();
    Ok(CompactionHooks {
        calls: read_calls(stored.calls)?,
        instructions: stored.instructions.map(String::into_boxed_str),
        must_keep: stored.must_keep.into_iter().map(Into::into).collect(),
    })
}
