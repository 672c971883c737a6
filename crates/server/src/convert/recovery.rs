//! Recovery reports in the form of the API.

use palimpsest_core::event::ChangeKind;
use palimpsest_core::ids::{Ordinal, Revision};
use palimpsest_core::levels::recovery::{
    ContentRef, MessageRange, RecoveryHandle, RecoveryIndex, RemovedContent,
};
use palimpsest_core::policy::ModelTool;
use palimpsest_core::session::Session;
use palimpsest_proto::context::v1;

use super::append_result::call_ref;
use super::cache_ledger::change_kind;
use super::saturate_tokens;
use super::scalars::export_message_id;

/// The maximum number of items in one report.
const MAX_ITEMS: usize = 100;

/// Returns the report of removed content, oldest first.
pub fn recovery_report(
    session: &Session,
    recovery: &RecoveryIndex<'_>,
    departed: &[RemovedContent],
) -> v1::RecoveryReport {
    let is_reachable =
        |departed: &&RemovedContent| recovery.handle(departed.content) != RecoveryHandle::None;
    v1::RecoveryReport {
        items: items(session, recovery, departed),
        total_items: count(departed.len()),
        total_tokens: departed.iter().map(|departed| departed.tokens).sum(),
        visible_handles: count(departed.iter().filter(is_reachable).count()),
        ..v1::RecoveryReport::default()
    }
}

/// Adds the returned content to a report.
pub fn returned(
    report: &mut v1::RecoveryReport,
    session: &Session,
    recovery: &RecoveryIndex<'_>,
    departed: &[RemovedContent],
) {
    report.returned_items = items(session, recovery, departed);
    report.total_returned_items = count(departed.len());
}

/// Returns the latest items, up to the maximum.
fn items(
    session: &Session,
    recovery: &RecoveryIndex<'_>,
    departed: &[RemovedContent],
) -> Vec<v1::RemovedItem> {
    // The oldest removal is first, so a long report keeps the end of the list.
    let latest = departed.len().saturating_sub(MAX_ITEMS);
    let item = |departed| item(session, recovery, departed);
    departed[latest..].iter().map(item).collect()
}

fn item(
    session: &Session,
    recovery: &RecoveryIndex<'_>,
    departed: &RemovedContent,
) -> v1::RemovedItem {
    let change = departed.cause.and_then(|cause| session.view_change(cause));
    // Content without a view-changing event was stored by level 1.
    let level = match change.map(|change| change.kind) {
        None => v1::Level::ToolResultBudget,
        Some(ChangeKind::ContentSnipped) => v1::Level::Snip,
        Some(ChangeKind::ResultsCleared) => v1::Level::Microcompact,
        Some(ChangeKind::SpansCollapsed) => v1::Level::Collapse,
        Some(ChangeKind::Compacted) => v1::Level::Compaction,
        // These events belong to no level.
        Some(ChangeKind::Restored | ChangeKind::Rewound | ChangeKind::PolicyChanged) => {
            v1::Level::Unspecified
        }
    };
    let cause = change.map_or(v1::EventKind::ResultsPersisted, |change| {
        change_kind(change.kind)
    });
    let (handle_kind, handle) = match recovery.handle(departed.content) {
        RecoveryHandle::None => (v1::RecoveryHandleKind::Unspecified, String::new()),
        RecoveryHandle::Reference(reference) => (v1::RecoveryHandleKind::Reference, reference),
        RecoveryHandle::CallId(id) => (v1::RecoveryHandleKind::CallId, id),
        RecoveryHandle::Placeholder(span) => {
            (v1::RecoveryHandleKind::Placeholder, span.to_string())
        }
    };
    let tool_use = recovery
        .tool_call(departed.content)
        .map(|call| v1::ModelToolUse {
            tool: model_tool(call.tool).into(),
            name: call.name,
            input_json: call.input.to_string().into(),
        });
    v1::RemovedItem {
        level: level.into(),
        cause: cause.into(),
        cause_revision: departed.cause.map_or(0, Revision::get),
        tokens: saturate_tokens(departed.tokens),
        handle_kind: handle_kind.into(),
        handle,
        tool_use,
        restore_to_revision: recovery.restore_revision(departed).map_or(0, Revision::get),
        ..what(session, recovery, departed.content)
    }
}

/// Returns the kind of the content and its position in the transcript.
fn what(session: &Session, recovery: &RecoveryIndex<'_>, what: ContentRef) -> v1::RemovedItem {
    let id = |message: Ordinal| export_message_id(session, message);
    let row = |kind: v1::RemovedItemKind, row: MessageRange| v1::RemovedItem {
        kind: kind.into(),
        first_message_id: id(row.first),
        last_message_id: id(row.last),
        messages: row.count,
        ..v1::RemovedItem::default()
    };
    let part = |kind: v1::RemovedItemKind, (message, block): (Ordinal, u16)| v1::RemovedItem {
        kind: kind.into(),
        first_message_id: id(message),
        last_message_id: id(message),
        block_index: Some(block.into()),
        ..v1::RemovedItem::default()
    };
    match what {
        ContentRef::Turn(turn, messages) => v1::RemovedItem {
            turn_id: session.turns().name(turn),
            ..row(v1::RemovedItemKind::Turn, messages)
        },
        // A single message is reported as a message, not as a span.
        ContentRef::Messages(messages) if messages.count == 1 => {
            row(v1::RemovedItemKind::Message, messages)
        }
        ContentRef::Messages(messages) | ContentRef::Span(_, messages) => {
            row(v1::RemovedItemKind::Span, messages)
        }
        ContentRef::Block(message, block) => part(v1::RemovedItemKind::Block, (message, block)),
        ContentRef::Result(call) => {
            let place = recovery.result_position(call);
            let of_place = place.map(|place| part(v1::RemovedItemKind::ToolResult, place));
            v1::RemovedItem {
                call: Some(call_ref(session, call)),
                ..of_place.unwrap_or_default()
            }
        }
    }
}

convert_enum! {
    /// Converts one of the service's tools.
    pub fn model_tool(ModelTool) -> v1::ModelTool {
        Snip, ReadToolResult, ReadTranscript, SearchTranscript,
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
