//! The effects of levels in the form of the API.

use std::borrow::Cow;

use palimpsest_core::command::{SkipReason, SnipRejection};
use palimpsest_core::event::{
    CacheEditsIssued, ClearMode, ContentSnipped, ContextRestored, Event, ResultsCleared,
    ResultsPersisted, Trigger,
};
use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::levels::results::{StoredResult, reference};
use palimpsest_core::session::{CacheEditBatch, Session};
use palimpsest_core::view::Provider;
use palimpsest_proto::context::v1;
use serde::Serialize;

use super::FieldError;
use super::append_result::call_ref;
use super::cache_ledger;
use super::compaction;
use super::saturate_tokens;
use super::scalars::{export_message_id, export_millis};
use super::spans;

/// Returns the reference to a call's stored result, or an empty text.
pub fn reference_of(session: &Session, call: CallKey) -> String {
    let stored = session.stored_result(call);
    stored
        .map(|stored| reference_to(session, &stored.file))
        .unwrap_or_default()
}

/// Returns the reference to a file, as the model sees it.
pub fn reference_to(session: &Session, file: &str) -> String {
    let template = &session.policy().tool_results.reference_template;
    reference(template, session.key(), file)
}

/// Converts a stored result.
pub fn persisted_result(session: &Session, stored: &StoredResult) -> v1::PersistedResult {
    let call = session.calls().get(stored.call);
    v1::PersistedResult {
        call: Some(call_ref(session, stored.call)),
        tool_name: call.map(|call| call.name.to_string()).unwrap_or_default(),
        reference: reference_to(session, &stored.file),
        original_bytes: stored.bytes,
        original_tokens: stored.tokens,
        replacement_bytes: stored.replacement.len() as u64,
        replacement_tokens: stored.replacement_tokens,
        sha256: stored.sha256.to_vec().into(),
    }
}

/// Level 1. Results that the caller had already replaced were reported by `PersistToolResult`, so they are left
/// out.
pub(super) fn persisted(event: &ResultsPersisted, session: &Session) -> v1::ResultsPersisted {
    let new = event
        .results
        .iter()
        .filter(|stored| !stored.original_only_in_file);
    v1::ResultsPersisted {
        results: new
            .map(|stored| persisted_result(session, stored))
            .collect(),
    }
}

/// Converts a snip (level 2).
pub fn snipped(event: &ContentSnipped, session: &Session) -> v1::ContentSnipped {
    let turns = session.turns();
    let block = |(message, block): &(Ordinal, u16)| v1::BlockRef {
        message_id: export_message_id(session, *message),
        block_index: (*block).into(),
    };
    v1::ContentSnipped {
        turn_ids: event.turns.iter().map(|turn| turns.name(*turn)).collect(),
        message_ids: ids(session, &event.messages),
        blocks: event.blocks.iter().map(block).collect(),
        reason: event.reason.to_string(),
        hidden_paths: event.hidden_paths.iter().map(ToString::to_string).collect(),
    }
}

convert_enum! {
    fn clear_mode(ClearMode) -> v1::MicrocompactMode { Time, Size, Prune }
}

/// Converts a clear (level 3).
pub(super) fn cleared(event: &ResultsCleared, session: &Session) -> v1::ResultsCleared {
    let result = |stored| persisted_result(session, stored);
    v1::ResultsCleared {
        mode: clear_mode(event.mode).into(),
        calls: calls(session, &event.calls),
        persisted: event.stored.iter().map(result).collect(),
        hidden_paths: event.hidden_paths.iter().map(ToString::to_string).collect(),
    }
}

/// Converts a clear by cache edits (level 3).
pub(super) fn edits_issued(event: &CacheEditsIssued, session: &Session) -> v1::ResultsCleared {
    v1::ResultsCleared {
        mode: v1::MicrocompactMode::Cached.into(),
        calls: calls(session, &event.calls),
        ..v1::ResultsCleared::default()
    }
}

/// Converts an undo.
pub fn restored(event: &ContextRestored, session: &Session) -> v1::ContextRestored {
    let undone = event.undone.iter().rev();
    let known = undone.filter_map(|revision| session.view_change(*revision));
    v1::ContextRestored {
        to_revision: event.to.get(),
        undone: known.map(|change| cache_ledger::undone(&change)).collect(),
    }
}

/// Returns the tokens and the duration of a level's event, or `None` for other events. The result depends on the
/// event alone, so it never changes later.
pub fn level_effect(event: &Event) -> Option<v1::LevelEffect> {
    let freed = |trigger: v1::Trigger, before: u64, freed: u64| v1::LevelEffect {
        trigger: trigger.into(),
        before_tokens: saturate_tokens(before),
        after_tokens: saturate_tokens(before.saturating_sub(freed)),
        freed_tokens: saturate_tokens(freed),
        ..v1::LevelEffect::default()
    };
    Some(match event {
        Event::ContentSnipped(event) => freed(
            trigger(event.trigger),
            event.before_tokens,
            event.freed_tokens,
        ),
        Event::ResultsCleared(event) => {
            // A clear because of elapsed time has its own trigger in the contract.
            let trigger = match (event.trigger, event.mode) {
                (Trigger::Auto, ClearMode::Time) => v1::Trigger::Time,
                (other, _) => trigger(other),
            };
            freed(trigger, event.before_tokens, event.freed_tokens)
        }
        Event::SpansCollapsed(event) => freed(
            trigger(event.trigger),
            event.before_tokens,
            event.freed_tokens,
        ),
        Event::CompactionFinished(event) => {
            let (before, after) = (event.before_tokens, event.after_tokens);
            v1::LevelEffect {
                operation_id: event.key.to_string(),
                after_tokens: saturate_tokens(after),
                duration: Some(export_millis(event.duration_ms)),
                ..freed(trigger(event.trigger), before, before.saturating_sub(after))
            }
        }
        Event::CompactionStarted(event) => v1::LevelEffect {
            operation_id: event.key.to_string(),
            trigger: trigger(event.trigger).into(),
            before_tokens: saturate_tokens(event.before_tokens),
            ..v1::LevelEffect::default()
        },
        Event::CompactionFailed(event) => v1::LevelEffect {
            operation_id: event.key.to_string(),
            trigger: trigger(event.trigger).into(),
            duration: Some(export_millis(event.duration_ms)),
            ..v1::LevelEffect::default()
        },
        Event::SummaryPrepared(event) => v1::LevelEffect {
            operation_id: event.key.to_string(),
            // Only an automatic compaction is prepared.
            trigger: v1::Trigger::Auto.into(),
            duration: Some(export_millis(event.duration_ms)),
            ..v1::LevelEffect::default()
        },
        // Cache edits change the provider's prompt, not the view. So the view's tokens stay the same.
        Event::CacheEditsIssued(event) => v1::LevelEffect {
            after_tokens: saturate_tokens(event.before_tokens),
            ..freed(v1::Trigger::Auto, event.before_tokens, event.freed_tokens)
        },
        Event::ResultsPersisted(event) => {
            let saved = |stored: &StoredResult| {
                u64::from(stored.tokens.saturating_sub(stored.replacement_tokens))
            };
            // Results that exist only as files were replaced by the caller before, so they free nothing here.
            let new = event
                .results
                .iter()
                .filter(|stored| !stored.original_only_in_file);
            freed(v1::Trigger::Auto, event.before_tokens, new.map(saved).sum())
        }
        Event::ContextRestored(event) => {
            // A level cannot start an undo. It is always requested by a call.
            let (before, after) = (event.before_tokens, event.after_tokens);
            v1::LevelEffect {
                after_tokens: saturate_tokens(after),
                ..freed(v1::Trigger::Manual, before, before.saturating_sub(after))
            }
        }
        _ => return None,
    })
}

/// Returns the report of a level for a call, or `None` for events without a level.
pub fn stage(happened: &Event, session: &Session, dry_run: bool) -> Option<v1::LevelReport> {
    use v1::level_report::Detail;
    let (level, detail) = match happened {
        // Results that the caller replaced itself were reported before, so this event alone is no action of the
        // level.
        Event::ResultsPersisted(event)
            if event
                .results
                .iter()
                .all(|stored| stored.original_only_in_file) =>
        {
            return None;
        }
        Event::ResultsPersisted(event) => {
            let detail = Detail::ResultsPersisted(persisted(event, session));
            (v1::Level::ToolResultBudget, detail)
        }
        Event::CompactionFinished(event) => {
            let compacted = compaction::compacted(event, None, session, dry_run);
            (
                v1::Level::Compaction,
                Detail::Compaction(Box::new(compacted)),
            )
        }
        Event::CompactionFailed(event) => {
            let failed = compaction::failed_compaction(event, session);
            (v1::Level::Compaction, Detail::Compaction(Box::new(failed)))
        }
        Event::SpansCollapsed(event) => {
            let detail = Detail::SpansCollapsed(spans::collapsed(event, session));
            (v1::Level::Collapse, detail)
        }
        Event::ContentSnipped(event) => (
            v1::Level::Snip,
            Detail::ContentSnipped(snipped(event, session)),
        ),
        Event::ResultsCleared(event) => (
            v1::Level::Microcompact,
            Detail::ResultsCleared(cleared(event, session)),
        ),
        Event::CacheEditsIssued(event) => (
            v1::Level::Microcompact,
            Detail::ResultsCleared(edits_issued(event, session)),
        ),
        _ => return None,
    };
    let action = match happened {
        Event::CompactionFailed(_) => v1::LevelAction::Failed,
        _ if dry_run => v1::LevelAction::WouldApply,
        // The caller applies cache edits in its next request, so the level only advises them.
        Event::CacheEditsIssued(_) => v1::LevelAction::Advised,
        _ => v1::LevelAction::Applied,
    };
    Some(v1::LevelReport {
        level: level.into(),
        action: action.into(),
        effect: level_effect(happened),
        detail: Some(detail),
        ..v1::LevelReport::default()
    })
}

convert_enum! {
    /// Converts the reason for which a level did nothing.
    pub fn skip_reason(SkipReason) -> v1::SkipReason {
        Disabled, UnderThreshold, NothingEligible, TooLittleGain, TooLittleInput, AlreadyRunning,
        PausedAfterFailures, Irreducible, HeldAfterRestore, CollapseEnabled, HeldAfterVeto,
    }
}

/// Returns the report of a level that did nothing.
pub fn skipped(level: v1::Level, skip: SkipReason) -> v1::LevelReport {
    v1::LevelReport {
        level: level.into(),
        action: v1::LevelAction::Skipped.into(),
        skip_reason: skip_reason(skip).into(),
        ..v1::LevelReport::default()
    }
}

/// Converts the reason for which content was not snipped.
pub const fn snip_rejection_reason(refused: SnipRejection, is_turn: bool) -> v1::ErrorReason {
    match (refused, is_turn) {
        (SnipRejection::NotFound, true) => v1::ErrorReason::TurnNotFound,
        (SnipRejection::NotFound, false) => v1::ErrorReason::MessageNotFound,
        (SnipRejection::AlreadySnipped, true) => v1::ErrorReason::TurnAlreadySnipped,
        (SnipRejection::NotVisible(_), true) => v1::ErrorReason::TurnNotVisible,
        (SnipRejection::AlreadySnipped | SnipRejection::NotVisible(_), false) => {
            v1::ErrorReason::MessageNotVisible
        }
        (SnipRejection::IsCurrent, _) => v1::ErrorReason::TurnIsCurrent,
        (SnipRejection::Pinned, _) => v1::ErrorReason::Pinned,
    }
}

convert_enum! {
    pub(super) fn trigger(Trigger) -> v1::Trigger {
        Auto, Manual, Model, PromptTooLong,
    }
}

/// Validates the trigger of an adopted compaction.
pub fn trigger_from_proto(trigger: i32, field: &str) -> Result<Trigger, FieldError> {
    match v1::Trigger::try_from(trigger) {
        Ok(v1::Trigger::Unspecified | v1::Trigger::Auto) => Ok(Trigger::Auto),
        Ok(v1::Trigger::Manual) => Ok(Trigger::Manual),
        Ok(v1::Trigger::Model) => Ok(Trigger::Model),
        Ok(v1::Trigger::PromptTooLong) => Ok(Trigger::PromptTooLong),
        Ok(v1::Trigger::Time) => Err(FieldError::invalid(
            field,
            "must not be TIME: time never triggers a summary",
        )),
        Err(_) => Err(super::scalars::unknown(field)),
    }
}

fn ids(session: &Session, messages: &[Ordinal]) -> Vec<String> {
    let id = |message: &Ordinal| export_message_id(session, *message);
    messages.iter().map(id).collect()
}

fn calls(session: &Session, calls: &[CallKey]) -> Vec<v1::CallRef> {
    calls.iter().map(|call| call_ref(session, *call)).collect()
}

/// A block of cache edits in the provider's schema. A request may contain hundreds, so they are serialized without
/// an intermediate value.
#[derive(Serialize)]
struct EditsBlock<'s> {
    #[serde(rename = "type")]
    kind: &'static str,
    edits: Vec<Edit<'s>>,
}

#[derive(Serialize)]
struct Edit<'s> {
    #[serde(rename = "type")]
    kind: &'static str,
    cache_reference: Cow<'s, str>,
}

/// The fields that a tool result needs so that an edit can name it.
#[derive(Serialize)]
struct ReferenceFields<'s> {
    cache_reference: &'s str,
}

/// Returns the cache edits that one message carries.
pub fn cache_edit(session: &Session, pin: &CacheEditBatch, place: u32, new: bool) -> v1::CacheEdit {
    // No other provider has cache edits.
    let max_len = Provider::Anthropic.max_call_id_len();
    let edit = |call: &CallKey| Edit {
        kind: "delete",
        cache_reference: session.calls().wire_id(*call, max_len),
    };
    let block = EditsBlock {
        kind: "cache_edits",
        edits: pin.calls.iter().map(edit).collect(),
    };
    let reference = |edit: &Edit<'_>| {
        let fields = ReferenceFields {
            cache_reference: &edit.cache_reference,
        };
        // Strings always have a JSON form, so neither default below is used.
        v1::CacheReference {
            tool_use_id: edit.cache_reference.to_string(),
            merge_json: serde_json::to_vec(&fields).unwrap_or_default().into(),
        }
    };
    v1::CacheEdit {
        message_index: place,
        block_json: serde_json::to_vec(&block).unwrap_or_default().into(),
        calls: calls(session, &pin.calls),
        newly_added: new,
        references: block.edits.iter().map(reference).collect(),
    }
}

/// Returns the tokens that the provider removes because of the edits.
pub fn edited_tokens(session: &Session, pin: &CacheEditBatch) -> u32 {
    let size = |call: &CallKey| {
        session
            .calls()
            .get(*call)
            .map_or(0, |call| call.result_tokens)
    };
    pin.calls.iter().map(size).fold(0, u32::saturating_add)
}
