//! Blocks that a target does not take, and the texts that replace them.

use super::fixed_texts::{kind_name, media_marker};
use super::piece::{Piece, PieceForm};
use super::target::{Provider, Target};
use crate::json::{RawJson, UnknownFields};
use crate::message::{Block, Media, MediaKind, MediaSource, MessageOrigin, ResultContent};
use crate::session::Transcript;

/// Returns the text that replaces an image or a document, or `None` if the target takes it. `OpenAI` accepts documents only
/// as embedded PDFs. Its Responses API fetches them from URLs too.
pub(super) fn of_media(target: &Target, media: &Media) -> Option<String> {
    let is_foreign = !target.provider.is_anthropic()
        && match (&media.source, media.kind) {
            // A source such as `{"type": "file", "file_id": "f"}` belongs to Anthropic's APIs.
            (MediaSource::Other(_), _) => true,
            (MediaSource::Url(_), MediaKind::Document) => target.provider == Provider::OpenAi,
            (MediaSource::Base64 { media_type, .. }, MediaKind::Document) => {
                &**media_type != "application/pdf"
            }
            _ => false,
        };
    is_foreign.then(|| {
        format!(
            "[{}: this provider does not take it in this form]",
            kind_name(media)
        )
    })
}

/// Returns the text that replaces an image or a document inside a tool result.
pub(super) fn of_nested_media(target: &Target, media: &Media) -> Option<String> {
    if let Some(problem) = media.problem() {
        return Some(media_marker(media, problem));
    }
    // `OpenAI` accepts only text in tool messages.
    if target.provider == Provider::OpenAi {
        let kind = kind_name(media);
        return Some(format!(
            "[{kind}: this provider takes none in a tool's result]"
        ));
    }
    of_media(target, media)
}

/// Returns the text that replaces a block of an unknown type.
pub(super) fn of_opaque(
    target: &Target,
    (kind, json): (&str, &RawJson),
    origin: MessageOrigin,
) -> Option<String> {
    if !target.accepts_unknown_fields_of(origin) {
        return Some(format!("[{kind}: this provider does not take it]"));
    }
    lacks_source(kind, json).then(|| format!("[{kind}: it has no source that the provider takes]"))
}

/// Returns true if an image or a file refers to nothing. The provider rejects the whole request for such a part.
fn lacks_source(kind: &str, json: &RawJson) -> bool {
    let sources: &[&str] = match kind {
        "input_image" => &["image_url", "file_id"],
        "input_file" => &["file_url", "file_data", "file_id"],
        _ => return false,
    };
    let Ok(fields) = UnknownFields::from_object(json.as_str()) else {
        return true;
    };
    let is_source = |name: &&str| {
        // The values are raw JSON: a text still has its quotes, and an absent source can be `null`.
        let text = fields.get(name).map_or("", |value| value.as_str());
        let text = text.trim_matches('"');
        let is_url = ["https:", "http:", "data:"]
            .iter()
            .any(|start| text.starts_with(start));
        is_url || (*name == "file_id" && !text.is_empty() && text != "null")
    };
    !sources.iter().any(is_source)
}

/// Returns true if the target does not take the block of a piece, or a block inside its tool result. The view then contains
/// a text instead, or nothing. Pieces whose form is a repair are not considered.
pub(super) fn is_replaced(transcript: &Transcript, target: &Target, piece: &Piece) -> bool {
    let Some(message) = transcript.content(piece.message) else {
        return false;
    };
    let block = message.blocks.get(usize::from(piece.block));
    match (block, piece.form) {
        (Some(Block::ToolResult(result)), PieceForm::Result(_)) => match &result.content {
            ResultContent::Blocks(blocks) => blocks
                .iter()
                .any(|block| is_replaced_in_result(target, block, message.origin)),
            ResultContent::None | ResultContent::Text(_) => false,
        },
        (Some(Block::Opaque { kind, json }), PieceForm::Block) => {
            of_opaque(target, (kind, json), message.origin).is_some()
        }
        (Some(Block::Media(media)), PieceForm::Block) => of_media(target, media).is_some(),
        _ => false,
    }
}

fn is_replaced_in_result(target: &Target, block: &Block, origin: MessageOrigin) -> bool {
    match block {
        Block::Text { .. } => false,
        Block::Opaque { kind, json } => of_opaque(target, (kind, json), origin).is_some(),
        Block::Media(media) => of_nested_media(target, media).is_some(),
        // A result cannot contain these blocks, so the renderer leaves them out for every target.
        Block::ToolUse(_) | Block::ToolResult(_) | Block::Thinking(_) => true,
    }
}
