//! The blocks of a view in the form of the API.

use bytes::Bytes;
use palimpsest_core::session::Session;
use palimpsest_core::view::{
    HiddenMessages, PieceForm, Provider, Target, ViewBlock, WireBlock, WireRole, wire_tokens,
};
use palimpsest_proto::context::v1;
use v1::block::Block as Typed;
use v1::media_source::Source;
use v1::tool_result_content::Content;

use super::blocks_out::{self, BlockAudience};
use super::saturate_tokens;
use super::scalars::{export_kind, export_message_id};
use super::transcript::visibility;

/// Converts the blocks of one view.
pub struct ViewReader<'a> {
    session: &'a Session,
    provider: Provider,
    max_text: usize,
}

impl<'a> ViewReader<'a> {
    /// Creates a reader that cuts texts after `max_text` characters.
    pub const fn new(session: &'a Session, target: &Target, max_text: usize) -> Self {
        Self {
            session,
            provider: target.provider,
            max_text,
        }
    }

    /// Converts a block.
    pub fn block(&self, block: &ViewBlock<'_>) -> v1::ViewBlock {
        let session = self.session;
        let piece = &block.piece;
        let transcript = session.transcript();
        let entry = transcript.get(piece.message);
        let counter = session.counter();
        // An added block, such as a placeholder, only borrows the position of an original.
        let original = transcript
            .block(piece.message, piece.block)
            .filter(|_| piece.form.represents_block());
        let mut out = v1::ViewBlock {
            form: form(piece.form).into(),
            message_id: export_message_id(session, Some(piece.message)),
            ordinal: u64::from(piece.message.get()) + 1,
            kind: entry.map_or(0, |entry| export_kind(entry.kind).into()),
            block_index: piece.block.into(),
            original_tokens: original.map_or(0, |block| counter.block(block)),
            is_pinned: session
                .pins()
                .pin_of_block(piece.message, piece.block)
                .is_some(),
            ..v1::ViewBlock::default()
        };
        // A repair or a provider's rule left the block out of the request.
        let Some(shown) = &block.shown else {
            out.form = v1::BlockForm::Omitted.into();
            return out;
        };
        let call = match &shown.block {
            WireBlock::Call { .. } => piece.form.call_key(),
            WireBlock::Result { .. } => piece.form.answered_call_key(),
            _ => None,
        };
        let audience = BlockAudience::Model(self.provider);
        let mut content = blocks_out::block(&shown.block, call, audience);
        out.is_cut = cut_block(&mut content, self.max_text);
        out.message_index = shown.message;
        out.role = role(shown.role).into();
        out.tokens = wire_tokens(counter, &shown.block);
        out.content = Some(content);
        out
    }
}

/// Converts the ranges of messages that a view does not show.
pub fn hidden_ranges(hidden: &[HiddenMessages]) -> Vec<v1::HiddenRange> {
    let range = |hidden: &HiddenMessages| v1::HiddenRange {
        first_ordinal: u64::from(hidden.first.get()) + 1,
        last_ordinal: u64::from(hidden.last.get()) + 1,
        reason: visibility(hidden.visibility).into(),
        tokens: saturate_tokens(hidden.tokens),
    };
    hidden.iter().map(range).collect()
}

const fn role(role: WireRole) -> v1::Role {
    match role {
        // The contract has only three roles. The others exist in single formats.
        WireRole::System | WireRole::Developer | WireRole::Operator => v1::Role::System,
        WireRole::User | WireRole::Tool => v1::Role::User,
        WireRole::Assistant => v1::Role::Assistant,
    }
}

fn form(form: PieceForm) -> v1::BlockForm {
    use palimpsest_core::view::MarkerReason;
    match form {
        PieceForm::Block | PieceForm::Call(_) | PieceForm::Result(_) | PieceForm::Operator => {
            v1::BlockForm::Original
        }
        PieceForm::Input { .. } => v1::BlockForm::Annotated,
        PieceForm::SnippedCall(_)
        | PieceForm::SnippedResult(_)
        | PieceForm::Marker(MarkerReason::Snipped) => v1::BlockForm::Snipped,
        PieceForm::Stored(_) => v1::BlockForm::Stored,
        PieceForm::Cleared(_) => v1::BlockForm::Cleared,
        PieceForm::Placeholder(_) => v1::BlockForm::Collapsed,
        PieceForm::Summary => v1::BlockForm::Summary,
        PieceForm::ResultWithoutMedia(_)
        | PieceForm::Text(_)
        | PieceForm::Marker(MarkerReason::Media(_))
        | PieceForm::Interrupted(_)
        | PieceForm::Opening => v1::BlockForm::Repaired,
        PieceForm::Gap | PieceForm::Tag(_) | PieceForm::Nudge => v1::BlockForm::Added,
        PieceForm::Dropped(_) => v1::BlockForm::Omitted,
    }
}

/// Cuts the texts of a block, and removes the data of media from a block whose texts are limited. Returns true if
/// something was cut.
fn cut_block(block: &mut v1::Block, max: usize) -> bool {
    // Without a limit on texts, media keep their data too.
    if max == usize::MAX {
        return false;
    }
    match &mut block.block {
        // The data is encrypted, so a part of it is of no use.
        None | Some(Typed::RedactedThinking(_)) => false,
        Some(Typed::Text(text)) => cut_text(&mut text.text, max),
        Some(Typed::ToolUse(call)) => cut_bytes(&mut call.input_json, max),
        Some(Typed::Thinking(thinking)) => cut_text(&mut thinking.thinking, max),
        Some(Typed::Opaque(opaque)) => cut_bytes(&mut opaque.json, max),
        Some(Typed::Image(image)) => cut_media(image.source.as_mut(), max),
        Some(Typed::Document(document)) => cut_media(document.source.as_mut(), max),
        Some(Typed::ToolResult(result)) => {
            match result.content.as_mut().and_then(|one| one.content.as_mut()) {
                None => false,
                Some(Content::Text(text)) => cut_text(text, max),
                Some(Content::Json(json)) => cut_bytes(json, max),
                Some(Content::Blocks(list)) => {
                    let mut is_cut = false;
                    for inner in &mut list.blocks {
                        is_cut |= cut_block(inner, max);
                    }
                    is_cut
                }
            }
        }
    }
}

fn cut_media(source: Option<&mut v1::MediaSource>, max: usize) -> bool {
    match source.and_then(|source| source.source.as_mut()) {
        // A part of an image cannot be shown. Its type and the mark of the cut remain.
        Some(Source::Data(data)) => {
            let is_cut = !data.is_empty();
            *data = Bytes::new();
            is_cut
        }
        Some(Source::Text(text)) => cut_text(text, max),
        Some(Source::Url(_) | Source::FileId(_)) | None => false,
    }
}

fn cut_text(text: &mut String, max: usize) -> bool {
    // The start of the first character too many is the end of the text, so no character is split.
    match text.char_indices().nth(max) {
        None => false,
        Some((at, _)) => {
            text.truncate(at);
            true
        }
    }
}

fn cut_bytes(json: &mut Bytes, max: usize) -> bool {
    let Ok(text) = std::str::from_utf8(json) else {
        return false;
    };
    match text.char_indices().nth(max) {
        None => false,
        Some((at, _)) => {
            json.truncate(at);
            true
        }
    }
}
