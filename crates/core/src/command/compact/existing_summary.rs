//! Compactions whose summary exists already: session memory, or a prepared summary.

use super::finished_event::{CompactionMessages, CompactionSpec};
use super::preconditions::is_compaction_due;
use super::range::remaining_messages;
use crate::command::decision::SkipReason;
use crate::command::reject::Rejection;
use crate::event::{CompactionFinished, Strategy, Trigger};
use crate::ids::Timestamp;
use crate::levels::compaction::{KeepRule, MessagePartition, partition, without_pinned};
use crate::memory::MemoryContent;
use crate::session::Session;
use crate::summary::SummaryPart;

/// Replaces messages by the text of session memory.
pub(super) fn session_memory(
    session: &Session,
    asked: Trigger,
    made: &CompactionMessages,
    now: Timestamp,
) -> Result<Result<CompactionFinished, SkipReason>, Rejection> {
    let policy = &session.policy().session_memory;
    let Some(version) = session.memory_for_compaction() else {
        return Ok(Err(SkipReason::NothingEligible));
    };
    let tokens = session.kept_tokens();
    let kept = partition(
        session,
        KeepRule::Recent {
            after: version.covered_through,
            min_tokens: tokens.min,
            min_messages: policy.keep_min_messages,
            max_tokens: tokens.max,
        },
    )?;
    let summary = render_session_memory(session, &version.content);
    let what = CompactionSpec {
        key: session.compactions().next_key(),
        trigger: asked,
        strategy: Strategy::SessionMemory,
        summary: &summary,
        part: SummaryPart::Whole,
        must_keep: &[],
        partition: kept,
        adopted: None,
        before_tokens: None,
        dropped: None,
    };
    let Ok(compacted) = made.build_event(session, what)? else {
        return Ok(Err(SkipReason::TooLittleGain));
    };
    // A view that is still above the threshold would be compacted again immediately. A manual request is honored.
    if asked != Trigger::Manual && compacted.after_tokens >= session.thresholds().compact {
        return Ok(Err(SkipReason::TooLittleGain));
    }
    // Below the threshold, only the cost justifies a compaction. Its size is exact now.
    let is_for_cost = asked == Trigger::Auto && !is_compaction_due(session);
    if is_for_cost && !session.pays_for_view(compacted.ledger.all.total(), now) {
        return Ok(Err(SkipReason::TooLittleGain));
    }
    Ok(Ok(compacted))
}

/// Replaces messages by the prepared summary.
pub(super) fn prepared(
    session: &Session,
    asked: Trigger,
    made: &CompactionMessages,
) -> Result<Result<CompactionFinished, SkipReason>, Rejection> {
    let Some(prepared) = &session.compactions().prepared else {
        return Ok(Err(SkipReason::NothingEligible));
    };
    // Content may have been pinned since the preparation. Pinned messages do not leave.
    let leaving = without_pinned(session, &prepared.leaving)?;
    let partition = MessagePartition {
        kept: remaining_messages(session, &leaving),
        leaving,
    };
    let what = CompactionSpec {
        key: prepared.key,
        trigger: asked,
        strategy: prepared.strategy,
        summary: &prepared.text,
        part: SummaryPart::Whole,
        must_keep: &prepared.hooks.must_keep,
        partition,
        adopted: None,
        before_tokens: None,
        dropped: prepared.dropped,
    };
    let Ok(mut compacted) = made.build_event(session, what)? else {
        return Ok(Err(SkipReason::TooLittleGain));
    };
    // Many messages arrived since the preparation. The view would be compacted again immediately.
    if compacted.after_tokens >= session.thresholds().compact {
        return Ok(Err(SkipReason::TooLittleGain));
    }
    compacted.model.clone_from(&prepared.model);
    compacted.usage = prepared.usage;
    compacted.duration_ms = prepared.duration_ms;
    compacted.hooks.clone_from(&prepared.hooks.calls);
    Ok(Ok(compacted))
}

/// Renders session memory in the form in which it replaces messages.
pub(crate) fn render_session_memory(session: &Session, content: &MemoryContent) -> String {
    let latest = session.latest_request();
    let latest = latest.and_then(|at| session.transcript().content(at));
    let words = latest.and_then(|message| palimpsest_facts::user_text(message));
    palimpsest_facts::memory::stand_in(content, words.as_deref())
}
