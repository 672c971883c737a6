//! Transcript messages: originals, and their state in the view.

use std::collections::HashMap;

use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::message::{Block, Message, Usage};
use palimpsest_core::session::{CallState, Calls, Session, TranscriptEntry, Visibility};
use palimpsest_core::view::{DropReason, MarkerReason, PieceForm, Provider, WireBlock};
use palimpsest_proto::context::v1;

use super::append_result::{tool_call, turn_id};
use super::blocks_out::{self, BlockAudience};
use super::levels::{reference_of, reference_to};
use super::saturate_tokens;
use super::scalars::{export_kind, export_origin, export_role, export_timestamp};

/// The form of a message's content in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentForm {
    /// Typed blocks.
    Typed,
    /// The provider's JSON.
    Json(Provider),
    /// No content.
    Omitted,
}

/// The blocks that the view shows in a form other than the original, by message. Built once per page, because it
/// reads the whole view.
#[derive(Debug, Clone, Default)]
pub struct BlockStatuses(HashMap<Ordinal, Vec<v1::BlockStatus>>);

impl BlockStatuses {
    /// Collects the statuses of the last served view.
    pub fn of(session: &Session) -> Self {
        let mut statuses: HashMap<Ordinal, Vec<v1::BlockStatus>> = HashMap::new();
        for piece in session.sealed().pieces() {
            // Repairs are reported separately.
            let (shown, reference) = match piece.form {
                PieceForm::Marker(MarkerReason::Snipped)
                | PieceForm::SnippedResult(_)
                | PieceForm::SnippedCall(_)
                | PieceForm::Dropped(DropReason::Snipped) => {
                    (v1::BlockVisibility::Snipped, String::new())
                }
                PieceForm::Marker(MarkerReason::Media(_)) | PieceForm::Cleared(_) => {
                    (v1::BlockVisibility::Cleared, String::new())
                }
                PieceForm::Stored(call) => {
                    // After a rewind, a call can have a second stored result, so the block decides.
                    let stored = session.stored_results().at(piece.message, piece.block);
                    let reference = stored.map(|stored| reference_to(session, &stored.file));
                    let reference = reference.unwrap_or_else(|| reference_of(session, call));
                    (v1::BlockVisibility::Persisted, reference)
                }
                _ => continue,
            };
            let of_message = statuses.entry(piece.message).or_default();
            of_message.push(v1::BlockStatus {
                block_index: piece.block.into(),
                visibility: shown.into(),
                reference,
            });
        }
        Self(statuses)
    }
}

/// Converts the visibility of a message.
pub const fn visibility(standing: Visibility) -> v1::Visibility {
    match standing {
        Visibility::Visible => v1::Visibility::Visible,
        Visibility::TranscriptOnly => v1::Visibility::TranscriptOnly,
        Visibility::Reemission(_) => v1::Visibility::ReEmission,
        Visibility::Rewound => v1::Visibility::Rewound,
        Visibility::Snipped => v1::Visibility::Snipped,
        Visibility::Collapsed => v1::Visibility::Collapsed,
        Visibility::Compacted => v1::Visibility::Compacted,
        Visibility::Withdrawn => v1::Visibility::Withdrawn,
        Visibility::Unconfirmed => v1::Visibility::Unconfirmed,
    }
}

/// Converts a transcript message. `message` is the original, which may no longer be in memory. `arrived` is the
/// time of its append.
pub fn transcript_message(
    session: &Session,
    (ordinal, entry): (Ordinal, &TranscriptEntry),
    message: &Message,
    content: ContentForm,
    statuses: &BlockStatuses,
) -> v1::TranscriptMessage {
    let calls = session.calls();
    // Statuses describe pieces of the view, so only visible messages have them.
    let statuses = match entry.visibility {
        Visibility::Visible => statuses.0.get(&ordinal).cloned().unwrap_or_default(),
        _ => Vec::new(),
    };
    v1::TranscriptMessage {
        id: entry.id.to_string(),
        // Ordinals start at 1 in the contract and at 0 in the code.
        ordinal: u64::from(ordinal.get()) + 1,
        revision: entry.revision.get(),
        message: match content {
            ContentForm::Typed => Some(original(ordinal, message, calls)),
            ContentForm::Json(_) | ContentForm::Omitted => None,
        },
        messages_json: match content {
            ContentForm::Json(provider) => json_messages(message, provider),
            ContentForm::Typed | ContentForm::Omitted => Vec::new(),
        },
        metadata: Some(metadata(message)),
        visibility: visibility(entry.visibility).into(),
        block_statuses: statuses,
        turn_id: turn_id(session, ordinal),
        tokens: entry.size.tokens,
        size_bytes: json_size(message),
        calls: calls
            .of(ordinal)
            .map(|(key, _)| tool_call(session, key))
            .collect(),
        pinned: session.pins().pin_of_message(ordinal).is_some(),
    }
}

/// Converts an original to its typed form.
pub(super) fn original(ordinal: Ordinal, message: &Message, calls: &Calls) -> v1::Message {
    let blocks = (0_u16..)
        .zip(&message.blocks)
        .map(|(index, block)| {
            let key = match block {
                Block::ToolUse(_) => calls.find_at(ordinal, index),
                Block::ToolResult(result) => answered(ordinal, index, &result.tool_use_id, calls),
                _ => None,
            };
            blocks_out::block(
                &WireBlock::from_block(block),
                key,
                BlockAudience::Transcript,
            )
        })
        .collect();
    v1::Message {
        role: export_role(message.role).into(),
        blocks,
        extra_json: message.extra.to_object().unwrap_or_default().into(),
        extra_format: export_origin(message.origin).into(),
    }
}

/// Returns the call of a result: the call that the result answered, otherwise the only call with its id.
fn answered(message: Ordinal, block: u16, id: &str, calls: &Calls) -> Option<CallKey> {
    let same = calls.with_id(id);
    // An id can be repeated in a session, so the position of the result decides first.
    let here = CallState::Answered { message, block };
    let answered = same.iter().find(|key| calls.state(**key) == here);
    match (answered, same) {
        (Some(key), _) | (None, [key]) => Some(*key),
        _ => None,
    }
}

pub(super) fn metadata(message: &Message) -> v1::MessageMetadata {
    let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or_default().to_owned();
    v1::MessageMetadata {
        parent_id: message.parent.map(|id| id.to_string()).unwrap_or_default(),
        create_time: message.at.map(export_timestamp),
        provider_message_id: text(&message.provider_message_id),
        model: text(&message.model),
        usage: message.usage.as_ref().map(export_usage),
        kind: export_kind(message.kind).into(),
        machine_generated: message.machine_generated,
        transcript_only: message.transcript_only,
        attributes: message
            .attributes
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
    }
}

/// Converts a reported usage.
pub fn export_usage(usage: &Usage) -> v1::Usage {
    v1::Usage {
        input_tokens: saturate_tokens(usage.input_tokens),
        output_tokens: saturate_tokens(usage.output_tokens),
        cache_read_tokens: saturate_tokens(usage.cache_read_tokens),
        cache_write_tokens: saturate_tokens(usage.cache_write_tokens),
    }
}

fn json_size(message: &Message) -> u64 {
    let mut out = Vec::new();
    for block in &message.blocks {
        codec::write_block(Provider::Anthropic, &WireBlock::from_block(block), &mut out);
    }
    out.len() as u64
}

/// Returns the original in a provider's JSON, without repairs. Blocks that the format cannot represent become text.
pub fn json_messages(message: &Message, provider: Provider) -> Vec<Bytes> {
    let json = palimpsest_transcripts::export::json_messages(message, provider);
    json.into_iter().map(Bytes::from).collect()
}
