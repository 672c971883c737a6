//! Compactions (level 5) in the form of the API.

use std::time::Duration;

use palimpsest_core::event::{
    CompactionFailed, CompactionFailureReason, CompactionFinished, CompactionStarted, Event,
    SummaryPrepared,
};
use palimpsest_core::ids::{Ordinal, Revision, Timestamp};
use palimpsest_core::message::{Block, MessageKind, Usage};
use palimpsest_core::session::{CompactionBoundary, DroppedContent, Session, Strategy};
use palimpsest_proto::context::v1;
use palimpsest_summarize::{ChatMessage, Role};

use super::hooks::outcomes;
use super::levels::trigger;
use super::saturate_tokens;
use super::scalars::{export_message_id, export_millis, export_timestamp};
use super::transcript::export_usage;
use super::working_state::attachment;

convert_enum! {
    pub(super) fn strategy(Strategy) -> v1::CompactionStrategy {
        SessionMemory, Model, Extractive, Delegated, DropOldest,
    }
}

convert_enum! {
    /// Converts the reason for which a compaction failed.
    pub fn failure_reason(CompactionFailureReason) -> v1::CompactionFailureReason {
        ModelUnavailable, PromptTooLong, Empty = SummaryEmpty, Refused = SummaryRefused,
        Truncated = SummaryTruncated, Incomplete = SummaryIncomplete, NotSmaller, HookVetoed, HookFailed,
        RangeChanged, Expired, DelegateFailed, InputUnreadable,
    }
}

pub(super) fn started(event: &CompactionStarted, session: &Session) -> v1::LevelStarted {
    v1::LevelStarted {
        level: v1::Level::Compaction.into(),
        first_message_id: export_message_id(session, event.leaving.first().copied()),
        last_message_id: export_message_id(session, event.leaving.last().copied()),
    }
}

/// Converts the end of a compaction that prepared a summary.
pub(super) fn prepared(event: &SummaryPrepared) -> v1::SummaryPrepared {
    v1::SummaryPrepared {
        strategy: strategy(event.strategy).into(),
        model: event.model.to_string(),
    }
}

/// Converts a failed compaction. The number of consecutive failures is the session's current one.
pub(super) fn failed(event: &CompactionFailed, session: &Session) -> v1::LevelFailed {
    v1::LevelFailed {
        level: v1::Level::Compaction.into(),
        failure: Some(failure(event, session)),
    }
}

fn failure(event: &CompactionFailed, session: &Session) -> v1::CompactionFailure {
    let failures = session.compactions().consecutive_failures;
    v1::CompactionFailure {
        reason: failure_reason(event.reason).into(),
        detail: event.detail.to_string(),
        consecutive_failures: failures,
        auto_paused: is_paused(session),
    }
}

/// Returns true if automatic compaction is paused after too many failures.
pub(super) fn is_paused(session: &Session) -> bool {
    let policy = &session.policy().autocompact;
    session.compactions().is_paused(policy)
}

/// Converts the event that ended a compaction. Returns `None` for other events.
pub fn compaction(event: &Event, session: &Session) -> Option<v1::Compaction> {
    match event {
        Event::CompactionFinished(event) => Some(compacted(event, None, session, false)),
        Event::CompactionFailed(event) => Some(failed_compaction(event, session)),
        _ => None,
    }
}

/// Returns the running compaction, if any.
pub fn running_compaction(session: &Session) -> Option<v1::Compaction> {
    let running = session.compactions().running.as_ref()?;
    let state = if running.is_delegated() {
        v1::CompactionState::AwaitingSummary
    } else {
        v1::CompactionState::Running
    };
    Some(v1::Compaction {
        compaction_id: running.key.to_string(),
        state: state.into(),
        strategy: strategy(running.strategy).into(),
        trigger: trigger(running.trigger).into(),
        start_time: Some(export_timestamp(running.started_at)),
        dropped: running
            .dropped
            .map(|dropped| self::dropped(dropped, session)),
        hook_outcomes: outcomes(&running.hooks.calls),
        ..v1::Compaction::default()
    })
}

/// Converts content that a summary's input did not contain.
fn dropped(dropped: DroppedContent, session: &Session) -> v1::DroppedContent {
    v1::DroppedContent {
        messages: dropped.messages,
        rounds: dropped.rounds,
        tokens: dropped.tokens,
        first_message_id: export_message_id(session, dropped.first),
        last_message_id: export_message_id(session, dropped.last),
    }
}

/// Converts the turns of a request to a model.
pub fn turns(turns: &[ChatMessage]) -> Vec<v1::Message> {
    let message = |turn: &ChatMessage| {
        let role = match turn.role {
            Role::User => v1::Role::User,
            Role::Assistant => v1::Role::Assistant,
        };
        v1::Message {
            role: role.into(),
            blocks: vec![v1::Block {
                block: Some(v1::block::Block::Text(v1::TextBlock {
                    text: turn.text.clone(),
                })),
                ..v1::Block::default()
            }],
            ..v1::Message::default()
        }
    };
    turns.iter().map(message).collect()
}

pub(super) fn failed_compaction(event: &CompactionFailed, session: &Session) -> v1::Compaction {
    v1::Compaction {
        compaction_id: event.key.to_string(),
        state: v1::CompactionState::Failed.into(),
        strategy: event.strategy.map(strategy).unwrap_or_default().into(),
        trigger: trigger(event.trigger).into(),
        start_time: event.started.map(export_timestamp),
        duration: Some(export_millis(event.duration_ms)),
        failure: Some(failure(event, session)),
        hook_outcomes: outcomes(&event.hooks),
        ..v1::Compaction::default()
    }
}

/// Converts a compaction that took effect, or would in a dry run.
pub(super) fn compacted(
    event: &CompactionFinished,
    at: Option<Timestamp>,
    session: &Session,
    dry_run: bool,
) -> v1::Compaction {
    let made = session.compactions().boundaries.iter();
    // The latest boundary is usually the requested one.
    let boundary = made.rev().find(|boundary| boundary.key == event.key);
    // Without the time of the event, its boundary has the time. A dry run has started no compaction.
    let at = at.or(boundary
        .filter(|_| !dry_run)
        .map(|boundary| boundary.created_at));
    let of_kind = |kind: MessageKind| {
        event
            .messages
            .iter()
            .filter(move |one| one.message.kind == kind)
    };
    let summary = of_kind(MessageKind::Summary).next();
    let text = summary.and_then(|one| match one.message.blocks.first() {
        Some(Block::Text { text, .. }) => Some(text.to_string()),
        _ => None,
    });
    let state = if dry_run {
        v1::CompactionState::DryRun
    } else {
        v1::CompactionState::Succeeded
    };
    let mut compaction = v1::Compaction {
        compaction_id: event.key.to_string(),
        state: state.into(),
        strategy: strategy(event.strategy).into(),
        trigger: trigger(event.trigger).into(),
        start_time: at.map(|at| {
            // The event has only its end and its duration, so the start is computed.
            export_timestamp(at.minus(Duration::from_millis(event.duration_ms)))
        }),
        duration: Some(export_millis(event.duration_ms)),
        boundary: boundary.map(|one| self::boundary(one, session)),
        // A dry run queries no model, so the text of a model's summary is unknown.
        summary: text
            .filter(|_| {
                !(dry_run && matches!(event.strategy, Strategy::Model | Strategy::Delegated))
            })
            .unwrap_or_default(),
        model: event.model.to_string(),
        attachments: event
            .attachments
            .iter()
            .map(|one| attachment(one, session))
            .collect(),
        dropped: event.dropped.map(|dropped| self::dropped(dropped, session)),
        hook_outcomes: outcomes(&event.hooks),
        hidden_paths: event.hidden_paths.iter().map(ToString::to_string).collect(),
        ..v1::Compaction::default()
    };
    // Strategies without a model have no usage to report.
    if !event.model.is_empty() || event.usage != Usage::default() {
        compaction.usage = Some(export_usage(&event.usage));
    }
    // A dry run commits no messages, so their ids must not be returned.
    if let (true, Some(boundary)) = (dry_run, &mut compaction.boundary) {
        boundary.message_id.clear();
        boundary.summary_message_id.clear();
        for attachment in &mut compaction.attachments {
            attachment.message_id.clear();
        }
    }
    compaction
}

/// Returns true if kept messages precede the summary. Pinned messages and the rest of their rounds keep their
/// position and are ignored.
fn is_preceded(boundary: &CompactionBoundary, session: &Session) -> bool {
    let pieces = session.sealed().pieces().iter();
    let mut before = pieces.take_while(|piece| Some(piece.message) != boundary.summary);
    before.any(|piece| {
        let entry = session.transcript().get(piece.message);
        piece.form.is_shown()
            && entry.is_some_and(|entry| !entry.role.is_system())
            && !is_of_a_pin(session, piece.message)
    })
}

/// Returns true if the message is pinned, or has a call or result whose counterpart is pinned.
fn is_of_a_pin(session: &Session, message: Ordinal) -> bool {
    let pins = session.pins();
    if pins.is_empty() {
        return false;
    }
    let calls = session.calls().iter().map(|(_, call)| call);
    // A pin keeps the call and its result together, because a provider rejects one without the other.
    let mut others = calls.filter_map(|call| {
        let (result, _) = call.result()?;
        match message {
            at if at == call.message => Some(result),
            at if at == result => Some(call.message),
            _ => None,
        }
    });
    pins.pin_of_message(message).is_some()
        || others.any(|other| pins.pin_of_message(other).is_some())
}

fn boundary(boundary: &CompactionBoundary, session: &Session) -> v1::Boundary {
    let id = |message: Option<Ordinal>| export_message_id(session, message);
    let starts = session.turns().starts().iter();
    let last_user = starts.rev().find(|start| **start < boundary.message);
    v1::Boundary {
        message_id: id(Some(boundary.message)),
        trigger: trigger(boundary.trigger).into(),
        strategy: strategy(boundary.strategy).into(),
        create_time: Some(export_timestamp(boundary.created_at)),
        before_tokens: saturate_tokens(boundary.before_tokens),
        after_tokens: saturate_tokens(boundary.after_tokens),
        freed_tokens: saturate_tokens(boundary.before_tokens.saturating_sub(boundary.after_tokens)),
        summarized_messages: boundary.replaced_count,
        summary_message_id: id(boundary.summary),
        last_summarized_message_id: id(boundary.last_replaced),
        last_user_message_id: id(last_user.copied()),
        first_kept_message_id: id(boundary.kept.first().copied()),
        last_kept_message_id: id(boundary.kept.last().copied()),
        kept_message_ids: boundary.kept.iter().map(|at| id(Some(*at))).collect(),
        discovered_tools: boundary
            .discovered
            .iter()
            .map(ToString::to_string)
            .collect(),
        kept_before: is_preceded(boundary, session),
    }
}

/// Converts a finished compaction for event streams, which contain no texts.
pub(super) fn watched_compaction(
    event: &CompactionFinished,
    (at, _): (Timestamp, Revision),
    session: &Session,
) -> v1::Compaction {
    v1::Compaction {
        summary: String::new(),
        ..compacted(event, Some(at), session, false)
    }
}
