//! Encoding of compactions (level 5).

use palimpsest_core::event::{
    CompactionFailed, CompactionFailureReason, CompactionFinished, CompactionShortened,
    CompactionStarted, SummaryPrepared,
};
use palimpsest_core::message::Usage;
use palimpsest_core::session::{
    Boundary, Compactions, DroppedContent, PreparedSummary, RunningCompaction, Strategy,
};

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
        HookFailed, RangeChanged, Expired, DelegateFailed,
    }
    or "a failure without a reason"
}

stored_struct! {
    DroppedContent = Dropped { messages, rounds, tokens, first, last }
    or "a shorter input without the dropped content"
}

stored_struct! {
    CompactionStarted = CompactionStarted {
        key, strategy, leaving, before_tokens, ahead, instructions, request,
    }
    renamed { trigger = asked, expires = expires_ms }
}

stored_struct! {
    CompactionFailed = CompactionFailed { key, strategy, why, detail, took_ms, hooks, request, commit }
    renamed { trigger = asked, started = started_ms }
}

stored_struct! {
    CompactionShortened = CompactionShortened { key, attempt, dropped, request, commit }
}

stored_struct! {
    SummaryPrepared = SummaryPrepared { key, text, strategy, model, dropped, took_ms }
    inlined {
        usage: Usage { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens },
    }
    or default
}

stored_struct! {
    CompactionFinished = Compacted {
        key, strategy, messages, leaving, kept, gone, before_tokens, after_tokens, ledger, change, model,
        took_ms, dropped, hooks, request, attached, commit,
    }
    renamed { trigger = asked }
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
            took_ms: self.took_ms,
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
            took_ms: event.took_ms,
            hooks: StoredAs::from_proto(stored.hooks)?,
        })
    }
}

// A running compaction is part of the snapshot, so that a restarted process finds and expires it.
stored_struct! {
    RunningCompaction = RunningCompaction {
        key, strategy, leaving, pieces, touched, ahead, instructions, attempt, dropped, hooks, request,
    }
    renamed { trigger = asked, at = at_ms, expires = expires_ms }
}

stored_struct! {
    Boundary = Boundary {
        revision, key, strategy, mark, summary, kept, left, last_left, before_tokens, after_tokens,
        attached, discovered,
    }
    renamed { trigger = asked, at = at_ms }
}

stored_struct! {
    Compactions = Compactions {
        running, boundaries, failures, held, floor, next, prepared, ahead_failed, vetoed,
    }
    or default
}
