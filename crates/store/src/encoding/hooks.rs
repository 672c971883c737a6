//! Encoding of hook calls during compactions.

use palimpsest_core::event::HookCalled;
use palimpsest_core::session::{CompactionHooks, Hook, HookCall, HookResult};

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    Hook = Hook { PreCompact, PostCompact, SessionStart }
    or "a call of an unknown hook"
}

stored_enum! {
    HookResult = HookResult { Continued, Vetoed, FailedContinued, FailedStopped }
    or "a hook call with an unknown result"
}

stored_struct! {
    HookCall = HookCall { hook, result, detail }
    renamed { messages = message_ids, duration_ms = took_ms }
    or default
}

stored_struct! { HookCalled = HookCalled { key, call, instructions, must_keep } }

stored_struct! { CompactionHooks = Hooks { calls, instructions, must_keep } }

/// The hook state of a compaction. It is absent without hook calls, which is the case for most sessions.
impl StoredAs<Option<v1::Hooks>> for CompactionHooks {
    fn to_proto(&self) -> Option<v1::Hooks> {
        (*self != Self::default()).then(|| self.to_proto())
    }

    fn from_proto(stored: Option<v1::Hooks>) -> Result<Self, DecodeError> {
        Self::from_proto(stored.unwrap_or_default())
    }
}
