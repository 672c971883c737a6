//! What stands in a view that nobody said: fixed texts, and the markers that stand for what was left
//! out. They are part of what was served, so their words never change within a version of the rules.

use std::sync::LazyLock;

use super::{Provider, TextReason};
use crate::message::{Block, Media, MediaKind, MediaProblem, ResultContent, ToolInput, ToolResult};
use crate::session::Calls;

/// What the user is made to say where a transcript begins with the model.
pub(super) const OPENING: &str = "[The conversation begins with the assistant.]";
/// What stands for the result of a call that will not be answered in time.
pub(super) const INTERRUPTED: &str =
    "[Interrupted: the conversation went on before this tool returned a result.]";
/// The input of a call whose own was snipped.
pub(super) static NO_INPUT: LazyLock<ToolInput> = LazyLock::new(|| ToolInput::parse("{}"));
/// What stands between two of the model's messages when what was said between them has left.
pub(super) const GAP: &str = "[Messages that stood here were removed.]";
/// What stands for an old result.
pub(crate) const CLEARED: &str = "[Old tool result content cleared]";
/// What stands for a result that was snipped.
pub(super) const SNIPPED_RESULT: &str = "[This tool result was removed.]";
/// What a tool is made to say that says nothing.
pub(crate) const NO_OUTPUT: &str = "(Tool completed with no output)";
/// How the model is told that a person spoke before it had finished.
pub(super) const INTERJECTED: &str = "The user sent this message while you were working. Take it into account \
                           and go on:";
/// The reminder to snip.
pub(super) const NUDGE: &str = "<system-reminder>\nThe conversation has grown. If there are turns that the work \
                     no longer needs, remove them with the Snip tool, by the [id:…] at their end. \
                     This is a reminder and needs no answer.\n</system-reminder>";
/// A failed call must say something: providers refuse an empty error.
pub(super) const FAILED_SILENTLY: &str = "[The tool failed without saying anything.]";

pub(super) fn kind_name(media: &Media) -> &'static str {
    match media.kind {
        MediaKind::Image => "image",
        MediaKind::Document => "document",
    }
}

pub(super) fn marker(media: &Media, problem: MediaProblem) -> String {
    let why = match problem {
        MediaProblem::TooManyBytes => "it has more bytes than the provider takes",
        MediaProblem::TooManyPixels => "it has more pixels than the provider takes",
        MediaProblem::BadType => "it is not of a type that the provider takes",
        MediaProblem::TooMany => "the request holds as many as the provider takes",
    };
    format!("[{} left out: {why}]", kind_name(media))
}

/// A marker in the place of a block that was snipped.
pub(super) fn snipped(block: &Block) -> String {
    let what = match block {
        Block::Text { .. } => "text",
        Block::Media(media) => kind_name(media),
        Block::ToolResult(_) => "tool result",
        Block::ToolUse(_) | Block::Thinking(_) | Block::Opaque { .. } => "block",
    };
    format!("[{what} removed]")
}

pub(super) fn told_in_words(result: &ToolResult, reason: TextReason, calls: &Calls) -> String {
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
            let id = calls.wire_id(call, Provider::OpenAi.max_call_id_len());
            format!("[Late result of the interrupted tool call {id}]\n{said}")
        }
    }
}
