//! Encoding of compactions (level 5).

use palimpsest_core::event::{
    CompactionFailed, CompactionFailureReason, CompactionFinished, CompactionShortened,
    CompactionStarted, SummaryPrepared,
};
use palimpsest_core::message::Usage;
use palimpsest_core::session::{
    CompactionBoundary, Compactions, DroppedContent, PreparedSummary, RunningCompaction, Strategy,
};
use palimpsest_core::summary::SummaryPart;

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    Strategy = Strategy { SessionMemory, Model, Extractive, Delegated, DropOldest }
    or "a compaction without a strategy"
}

stored_enum! {
    CompactionFailureReason = WhyFailed {
        ModelUnavailable, PromptTooLong, Empty, Refused, Truncated, Incomplete, NotSmaller, HookVetoed,
        HookFailed, RangeChanged, Expired, DelegateFailed, InputUnreadable,
    }
    or "a failure without a reason"
}

stored_enum! { SummaryPart = SummaryPart { Whole = Unspecified, Beginning, End } }

stored_struct! {
    DroppedContent = Dropped { messages, rounds, tokens, first, last }
    or "a shorter input without the dropped content"
}

stored_struct! {
    CompactionStarted = CompactionStarted {
        key, strategy, part, leaving, before_tokens, ahead, instructions, request,
    }
    renamed { trigger = asked, deadline = expires_ms }
}

stored_struct! {
    CompactionFailed = CompactionFailed { key, strategy, detail, hooks, request, commit }
    renamed { trigger = asked, started = started_ms, reason = why, duration_ms = took_ms }
}

stored_struct! {
    CompactionShortened = CompactionShortened { key, attempt, dropped, request, commit }
}

stored_struct! {
    SummaryPrepared = SummaryPrepared { key, text, strategy, model, dropped }
    renamed { duration_ms = took_ms }
    inlined {
        usage: Usage { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens },
    }
    or default
}

stored_struct! {
    CompactionFinished = Compacted {
        key, strategy, messages, leaving, kept, before_tokens, after_tokens, ledger, change, model, dropped,
        hooks, request, commit, hidden_paths,
    }
    renamed {
        trigger = asked, removed_calls = gone, duration_ms = took_ms,
        attachments = attached,
    }
    inlined {
        usage: Usage { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens },
    }
}

/// A prepared summary of a snapshot. It contains the event, so that both have one stored form.
impl StoredAs<v1::PreparedSummary> for PreparedSummary {
    fn to_proto(&self) -> v1::PreparedSummary {
        let event = SummaryPrepared {
            key: self.key,
            text: self.text.clone(),
            strategy: self.strategy,
            model: self.model.clone(),
            usage: self.usage,
            dropped: self.dropped,
            duration_ms: self.duration_ms,
        };
        v1::PreparedSummary {
            summary: event.to_proto(),
            leaving: self.leaving.to_proto(),
            pieces: self.pieces,
            hooks: self.hooks.to_proto(),
        }
    }

    fn from_proto(stored: v1::PreparedSummary) -> Result<Self, DecodeError> {
        let event = SummaryPrepared::from_proto(stored.summary)?;
        Ok(Self {
            key: event.key,
            leaving: StoredAs::from_proto(stored.leaving)?,
            pieces: stored.pieces,
            text: event.text,
            strategy: event.strategy,
            model: event.model,
            usage: event.usage,
            dropped: event.dropped,
            duration_ms: event.duration_ms,
            hooks: StoredAs::from_proto(stored.hooks)?,
        })
    }
}

// A running compaction is part of the snapshot, so that a restarted process finds and expires it.
stored_struct! {
    RunningCompaction = RunningCompaction {
        key, strategy, part, leaving, ahead, instructions, attempt, dropped, hooks, request,
    }
    renamed { trigger = asked, started_at = at_ms, deadline = expires_ms, pieces_at_start = pieces, range_changed = touched }
}

stored_struct! {
    CompactionBoundary = Boundary {
        revision, key, strategy, summary, kept, before_tokens, after_tokens, attached, discovered,
    }
    renamed { trigger = asked, created_at = at_ms, message = mark, replaced_count = left, last_replaced = last_left }
}

stored_struct! {
    Compactions = Compactions { running, boundaries, prepared }
    renamed {
        consecutive_failures = failures, held_after_restore = held, irreducible_tokens = floor,
        next_number = next, prepare_failed = ahead_failed, held_after_veto = vetoed,
    }
    or default
}
