//! Fixed texts and markers that the service adds to views. They are part of served views, so their wording never
//! changes within a version of the rules.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::TextReason;
use crate::ids::CallKey;
use crate::message::{Block, Media, MediaKind, MediaProblem, ResultContent, ToolInput, ToolResult};

/// The user message before a transcript that begins with the model.
pub(super) const OPENING: &str = "[The conversation begins with the assistant.]";
/// The result of a call that was interrupted.
pub(super) const INTERRUPTED: &str =
    "[Interrupted: the conversation went on before this tool returned a result.]";
/// The input of a call whose own input was snipped.
pub(super) static NO_INPUT: LazyLock<ToolInput> = LazyLock::new(|| ToolInput::parse("{}"));
/// The user text between two responses whose separating messages were removed.
pub(super) const GAP: &str = "[Messages that stood here were removed.]";
/// The marker in place of a cleared result.
pub(crate) const CLEARED: &str = "[Old tool result content cleared]";
/// The marker in place of a snipped result.
pub(super) const SNIPPED_RESULT: &str = "[This tool result was removed.]";
/// The content of a tool result without output.
pub(crate) const NO_OUTPUT: &str = "(Tool completed with no output)";
/// The introduction of user input that arrived while the model was working.
pub(super) const INTERJECTED: &str = "The user sent this message while you were working. Take it into account \
                           and go on:";
/// The reminder to snip.
pub(super) const NUDGE: &str = "<system-reminder>\nThe conversation has grown. If there are turns that the work \
                     no longer needs, remove them with the Snip tool, by the [id:…] at their end. \
                     This is a reminder and needs no answer.\n</system-reminder>";
/// The content of a failed result without output. Providers reject an empty error.
pub(super) const FAILED_SILENTLY: &str = "[The tool failed without saying anything.]";

pub(super) fn kind_name(media: &Media) -> &'static str {
    match media.kind {
        MediaKind::Image => "image",
        MediaKind::Document => "document",
    }
}

pub(super) fn media_marker(media: &Media, problem: MediaProblem) -> String {
    let why = match problem {
        MediaProblem::TooManyBytes => "it has more bytes than the provider takes",
        MediaProblem::TooManyPixels => "it has more pixels than the provider takes",
        MediaProblem::BadType => "it is not of a type that the provider takes",
        MediaProblem::TooMany => "the request holds as many as the provider takes",
    };
    format!("[{} left out: {why}]", kind_name(media))
}

/// Returns the marker in place of a snipped block.
pub(super) fn snipped_marker(block: &Block) -> String {
    let what = match block {
        Block::Text { .. } => "text",
        Block::Media(media) => kind_name(media),
        Block::ToolResult(_) => "tool result",
        Block::ToolUse(_) | Block::Thinking(_) | Block::Opaque { .. } => "block",
    };
    format!("[{what} removed]")
}

/// Returns a result as text. `id_of` returns the id of a call in the view.
pub(super) fn result_as_text<'a>(
    result: &ToolResult,
    reason: TextReason,
    id_of: impl Fn(CallKey) -> Cow<'a, str>,
) -> String {
    let said = match &result.content {
        ResultContent::None => String::new(),
        ResultContent::Text(text) => text.to_string(),
        ResultContent::Blocks(blocks) => {
            let words = blocks.iter().filter_map(|block| match block {
                Block::Text { text, .. } => Some(&**text),
                _ => None,
            });
            words.collect::<Vec<_>>().join("\n")
        }
    };
    match reason {
        TextReason::Orphan => format!("[Result of a tool call that is not shown]\n{said}"),
        TextReason::Late(call) => {
            let id = id_of(call);
            format!("[Late result of the interrupted tool call {id}]\n{said}")
        }
    }
}
