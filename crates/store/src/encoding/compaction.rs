//! Encoding of compactions (level 5).

use palimpsest_core::event::{
    AppendedMessage, CompactionFailed, CompactionFailureReason, CompactionFinished,
    CompactionShortened, CompactionStarted, SummaryPrepared,
};
use palimpsest_core::ids::{CallKey, CompactionKey, Ordinal, Revision, Timestamp};
use palimpsest_core::message::Usage;
use palimpsest_core::session::{
    Boundary, Compactions, DroppedContent, PreparedSummary, RunningCompaction, Strategy,
};

use super::appended::{read_message, write_message};
use super::error::DecodeError;
use super::hooks;
use super::levels::{calls, ordinals, read_trigger, write_trigger};
use super::stamp::{read_stamp, write_stamp};
use super::state::{read_ledger, write_ledger};
use super::view::{read_change, write_change};
use super::{v1, working};

const fn write_strategy(strategy: Strategy) -> v1::Strategy {
    match strategy {
        Strategy::SessionMemory => v1::Strategy::SessionMemory,
        Strategy::Model => v1::Strategy::Model,
        Strategy::Extractive => v1::Strategy::Extractive,
        Strategy::Delegated => v1::Strategy::Delegated,
        Strategy::DropOldest => v1::Strategy::DropOldest,
    }
}

const fn read_strategy(stored: v1::Strategy) -> Result<Strategy, DecodeError> {
    Ok(match stored {
        v1::Strategy::SessionMemory => Strategy::SessionMemory,
        v1::Strategy::Model => Strategy::Model,
        v1::Strategy::Extractive => Strategy::Extractive,
        v1::Strategy::Delegated => Strategy::Delegated,
        v1::Strategy::DropOldest => Strategy::DropOldest,
        v1::Strategy::Unspecified => {
            return Err(DecodeError::Damaged("a compaction without a strategy"));
        }
    })
}

const fn write_why(why: CompactionFailureReason) -> v1::WhyFailed {
    match why {
        CompactionFailureReason::ModelUnavailable => v1::WhyFailed::ModelUnavailable,
        CompactionFailureReason::PromptTooLong => v1::WhyFailed::PromptTooLong,
        CompactionFailureReason::Empty => v1::WhyFailed::Empty,
        CompactionFailureReason::Refused => v1::WhyFailed::Refused,
        CompactionFailureReason::Truncated => v1::WhyFailed::Truncated,
        CompactionFailureReason::Incomplete => v1::WhyFailed::Incomplete,
        CompactionFailureReason::NotSmaller => v1::WhyFailed::NotSmaller,
        CompactionFailureReason::HookVetoed => v1::WhyFailed::HookVetoed,
        CompactionFailureReason::HookFailed => v1::WhyFailed::HookFailed,
        CompactionFailureReason::RangeChanged => v1::WhyFailed::RangeChanged,
        CompactionFailureReason::Expired => v1::WhyFailed::Expired,
        CompactionFailureReason::DelegateFailed => v1::WhyFailed::DelegateFailed,
    }
}

const fn read_why(stored: v1::WhyFailed) -> Result<CompactionFailureReason, DecodeError> {
    Ok(match stored {
        v1::WhyFailed::ModelUnavailable => CompactionFailureReason::ModelUnavailable,
        v1::WhyFailed::PromptTooLong => CompactionFailureReason::PromptTooLong,
        v1::WhyFailed::Empty => CompactionFailureReason::Empty,
        v1::WhyFailed::Refused => CompactionFailureReason::Refused,
        v1::WhyFailed::Truncated => CompactionFailureReason::Truncated,
        v1::WhyFailed::Incomplete => CompactionFailureReason::Incomplete,
        v1::WhyFailed::NotSmaller => CompactionFailureReason::NotSmaller,
        v1::WhyFailed::HookVetoed => CompactionFailureReason::HookVetoed,
        v1::WhyFailed::HookFailed => CompactionFailureReason::HookFailed,
        v1::WhyFailed::RangeChanged => CompactionFailureReason::RangeChanged,
        v1::WhyFailed::Expired => CompactionFailureReason::Expired,
        v1::WhyFailed::DelegateFailed => CompactionFailureReason::DelegateFailed,
        v1::WhyFailed::Unspecified => {
            return Err(DecodeError::Damaged("a failure without a reason"));
        }
    })
}

fn read_ordinals(stored: Vec<u32>) -> Vec<Ordinal> {
    stored.into_iter().map(Ordinal::new).collect()
}

pub(super) fn write_started(event: &CompactionStarted) -> v1::CompactionStarted {
    v1::CompactionStarted {
        key: event.key.get(),
        asked: write_trigger(event.trigger).into(),
        strategy: write_strategy(event.strategy).into(),
        expires_ms: event.expires.as_millis(),
        leaving: ordinals(&event.leaving),
        before_tokens: event.before_tokens,
        ahead: event.ahead,
        instructions: event.instructions.as_deref().map(str::to_owned),
        request: event.request.as_ref().map(write_stamp),
    }
}

pub(super) fn read_started(
    stored: v1::CompactionStarted,
) -> Result<CompactionStarted, DecodeError> {
    Ok(CompactionStarted {
        key: CompactionKey::new(stored.key),
        trigger: read_trigger(stored.asked()),
        strategy: read_strategy(stored.strategy())?,
        expires: Timestamp::from_millis(stored.expires_ms),
        leaving: read_ordinals(stored.leaving),
        before_tokens: stored.before_tokens,
        ahead: stored.ahead,
        instructions: stored.instructions.map(String::into_boxed_str),
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_failed(event: &CompactionFailed) -> v1::CompactionFailed {
    v1::CompactionFailed {
        key: event.key.get(),
        asked: write_trigger(event.trigger).into(),
        why: write_why(event.why).into(),
        detail: event.detail.to_string(),
        took_ms: event.took_ms,
        hooks: hooks::write_calls(&event.hooks),
        request: event.request.as_ref().map(write_stamp),
        commit: event.commit.as_ref().map(write_stamp),
    }
}

pub(super) fn read_failed(stored: v1::CompactionFailed) -> Result<CompactionFailed, DecodeError> {
    Ok(CompactionFailed {
        key: CompactionKey::new(stored.key),
        trigger: read_trigger(stored.asked()),
        why: read_why(stored.why())?,
        detail: stored.detail.into(),
        took_ms: stored.took_ms,
        hooks: hooks::read_calls(stored.hooks)?,
        request: read_stamp(stored.request)?,
        commit: read_stamp(stored.commit)?,
    })
}

const fn write_dropped(dropped: DroppedContent) -> v1::Dropped {
    v1::Dropped {
        messages: dropped.messages,
        rounds: dropped.rounds,
        tokens: dropped.tokens,
        first: dropped.first.get(),
        last: dropped.last.get(),
    }
}

const fn read_dropped(stored: v1::Dropped) -> DroppedContent {
    DroppedContent {
        messages: stored.messages,
        rounds: stored.rounds,
        tokens: stored.tokens,
        first: Ordinal::new(stored.first),
        last: Ordinal::new(stored.last),
    }
}

pub(super) fn write_shortened(event: &CompactionShortened) -> v1::CompactionShortened {
    v1::CompactionShortened {
        key: event.key.get(),
        attempt: event.attempt,
        dropped: Some(write_dropped(event.dropped)),
        request: event.request.as_ref().map(write_stamp),
        commit: event.commit.as_ref().map(write_stamp),
    }
}

pub(super) fn read_shortened(
    stored: v1::CompactionShortened,
) -> Result<CompactionShortened, DecodeError> {
    let dropped = stored.dropped.map(read_dropped);
    Ok(CompactionShortened {
        key: CompactionKey::new(stored.key),
        attempt: stored.attempt,
        dropped: dropped.ok_or(DecodeError::Damaged("a shorter input that lacks nothing"))?,
        request: read_stamp(stored.request)?,
        commit: read_stamp(stored.commit)?,
    })
}

pub(super) fn write_prepared(event: &SummaryPrepared) -> v1::SummaryPrepared {
    v1::SummaryPrepared {
        key: event.key.get(),
        text: event.text.to_string(),
        strategy: write_strategy(event.strategy).into(),
        model: event.model.to_string(),
        input_tokens: event.usage.input_tokens,
        cache_read_tokens: event.usage.cache_read_tokens,
        cache_write_tokens: event.usage.cache_write_tokens,
        output_tokens: event.usage.output_tokens,
        dropped: event.dropped.map(write_dropped),
        took_ms: event.took_ms,
    }
}

pub(super) fn read_prepared(stored: v1::SummaryPrepared) -> Result<SummaryPrepared, DecodeError> {
    Ok(SummaryPrepared {
        key: CompactionKey::new(stored.key),
        strategy: read_strategy(stored.strategy())?,
        text: stored.text.into(),
        model: stored.model.into(),
        usage: Usage {
            input_tokens: stored.input_tokens,
            cache_read_tokens: stored.cache_read_tokens,
            cache_write_tokens: stored.cache_write_tokens,
            output_tokens: stored.output_tokens,
        },
        dropped: stored.dropped.map(read_dropped),
        took_ms: stored.took_ms,
    })
}

/// Encodes a prepared summary for a snapshot.
fn write_waiting(prepared: &PreparedSummary) -> v1::PreparedSummary {
    let event = SummaryPrepared {
        key: prepared.key,
        text: prepared.text.clone(),
        strategy: prepared.strategy,
        model: prepared.model.clone(),
        usage: prepared.usage,
        dropped: prepared.dropped,
        took_ms: prepared.took_ms,
    };
    v1::PreparedSummary {
        summary: Some(write_prepared(&event)),
        leaving: ordinals(&prepared.leaving),
        pieces: prepared.pieces,
        hooks: hooks::write(&prepared.hooks),
    }
}

fn read_waiting(stored: v1::PreparedSummary) -> Result<PreparedSummary, DecodeError> {
    let event = read_prepared(stored.summary.unwrap_or_default())?;
    Ok(PreparedSummary {
        key: event.key,
        leaving: read_ordinals(stored.leaving),
        pieces: stored.pieces,
        text: event.text,
        strategy: event.strategy,
        model: event.model,
        usage: event.usage,
        dropped: event.dropped,
        took_ms: event.took_ms,
        hooks: hooks::read(stored.hooks)?,
    })
}

pub(super) fn write_compacted(event: &CompactionFinished) -> v1::Compacted {
    v1::Compacted {
        key: event.key.get(),
        asked: write_trigger(event.trigger).into(),
        strategy: write_strategy(event.strategy).into(),
        messages: event.messages.iter().map(write_message).collect(),
        leaving: ordinals(&event.leaving),
        kept: ordinals(&event.kept),
        gone: calls(&event.gone),
        before_tokens: event.before_tokens,
        after_tokens: event.after_tokens,
        ledger: Some(write_ledger(&event.ledger)),
        change: Some(write_change(&event.change)),
        model: event.model.to_string(),
        input_tokens: event.usage.input_tokens,
        cache_read_tokens: event.usage.cache_read_tokens,
        cache_write_tokens: event.usage.cache_write_tokens,
        output_tokens: event.usage.output_tokens,
        took_ms: event.took_ms,
        dropped: event.dropped.map(write_dropped),
        hooks: hooks::write_calls(&event.hooks),
        request: event.request.as_ref().map(write_stamp),
        attached: working::write_attached(&event.attached),
        commit: event.commit.as_ref().map(write_stamp),
    }
}

pub(super) fn read_compacted(stored: v1::Compacted) -> Result<CompactionFinished, DecodeError> {
    let (asked, strategy) = (
        read_trigger(stored.asked()),
        read_strategy(stored.strategy())?,
    );
    // Fields that later releases added are optional, so older records decode to their defaults.
    let messages: Result<Vec<AppendedMessage>, DecodeError> =
        stored.messages.into_iter().map(read_message).collect();
    Ok(CompactionFinished {
        key: CompactionKey::new(stored.key),
        trigger: asked,
        strategy,
        messages: messages?,
        leaving: read_ordinals(stored.leaving),
        kept: read_ordinals(stored.kept),
        gone: stored.gone.into_iter().map(CallKey::new).collect(),
        before_tokens: stored.before_tokens,
        after_tokens: stored.after_tokens,
        ledger: read_ledger(stored.ledger.unwrap_or_default()),
        change: read_change(stored.change)?,
        model: stored.model.into(),
        usage: Usage {
            input_tokens: stored.input_tokens,
            cache_read_tokens: stored.cache_read_tokens,
            cache_write_tokens: stored.cache_write_tokens,
            output_tokens: stored.output_tokens,
        },
        took_ms: stored.took_ms,
        dropped: stored.dropped.map(read_dropped),
        hooks: hooks::read_calls(stored.hooks)?,
        request: read_stamp(stored.request)?,
        attached: working::read_attached(stored.attached)?,
        commit: read_stamp(stored.commit)?,
    })
}

pub(super) fn write(compactions: &Compactions) -> v1::Compactions {
    v1::Compactions {
        // A running compaction is part of the snapshot, so that a restarted process finds and expires it.
        running: compactions
            .running
            .as_ref()
            .map(|running| v1::RunningCompaction {
                key: running.key.get(),
                asked: write_trigger(running.trigger).into(),
                strategy: write_strategy(running.strategy).into(),
                at_ms: running.at.as_millis(),
                expires_ms: running.expires.as_millis(),
                leaving: ordinals(&running.leaving),
                pieces: running.pieces,
                touched: running.touched,
                ahead: running.ahead,
                instructions: running.instructions.as_deref().map(str::to_owned),
                attempt: running.attempt,
                dropped: running.dropped.map(write_dropped),
                hooks: hooks::write(&running.hooks),
                request: running.request.as_ref().map(write_stamp),
            }),
        boundaries: compactions.boundaries.iter().map(write_boundary).collect(),
        failures: compactions.failures,
        held: compactions.held,
        floor: compactions.floor,
        next: compactions.next,
        prepared: compactions.prepared.as_ref().map(write_waiting),
        ahead_failed: compactions.ahead_failed,
        vetoed: compactions.vetoed,
    }
}

fn write_boundary(boundary: &Boundary) -> v1::Boundary {
    v1::Boundary {
        revision: boundary.revision.get(),
        key: boundary.key.get(),
        asked: write_trigger(boundary.trigger).into(),
        strategy: write_strategy(boundary.strategy).into(),
        at_ms: boundary.at.as_millis(),
        mark: boundary.mark.get(),
        summary: boundary.summary.map(Ordinal::get),
        kept: ordinals(&boundary.kept),
        left: boundary.left,
        last_left: boundary.last_left.map(Ordinal::get),
        before_tokens: boundary.before_tokens,
        after_tokens: boundary.after_tokens,
        attached: working::write_attached(&boundary.attached),
        discovered: boundary
            .discovered
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

pub(super) fn read(stored: Option<v1::Compactions>) -> Result<Compactions, DecodeError> {
    let stored = stored.unwrap_or_default();
    // The explicit error type is needed for the `?` operators in the closures.
    let running = |running: v1::RunningCompaction| {
        Ok::<_, DecodeError>(RunningCompaction {
            key: CompactionKey::new(running.key),
            trigger: read_trigger(running.asked()),
            strategy: read_strategy(running.strategy())?,
            at: Timestamp::from_millis(running.at_ms),
            expires: Timestamp::from_millis(running.expires_ms),
            leaving: read_ordinals(running.leaving),
            pieces: running.pieces,
            touched: running.touched,
            ahead: running.ahead,
            instructions: running.instructions.map(String::into_boxed_str),
            attempt: running.attempt,
            dropped: running.dropped.map(read_dropped),
            hooks: hooks::read(running.hooks)?,
            request: read_stamp(running.request)?,
        })
    };
    let boundary = |boundary: v1::Boundary| {
        Ok::<_, DecodeError>(Boundary {
            revision: Revision::new(boundary.revision),
            key: CompactionKey::new(boundary.key),
            trigger: read_trigger(boundary.asked()),
            strategy: read_strategy(boundary.strategy())?,
            at: Timestamp::from_millis(boundary.at_ms),
            mark: Ordinal::new(boundary.mark),
            summary: boundary.summary.map(Ordinal::new),
            kept: read_ordinals(boundary.kept),
            left: boundary.left,
            last_left: boundary.last_left.map(Ordinal::new),
            before_tokens: boundary.before_tokens,
            after_tokens: boundary.after_tokens,
            attached: working::read_attached(boundary.attached)?,
            discovered: boundary.discovered.into_iter().map(Into::into).collect(),
        })
    };
    Ok(Compactions {
        running: stored.running.map(running).transpose()?,
        boundaries: stored
            .boundaries
            .into_iter()
            .map(boundary)
            .collect::<Result<_, _>>()?,
        failures: stored.failures,
        held: stored.held,
        floor: stored.floor,
        next: stored.next,
        prepared: stored.prepared.map(read_waiting).transpose()?,
        ahead_failed: stored.ahead_failed,
        vetoed: stored.vetoed,
    })
}
