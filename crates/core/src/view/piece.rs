//! The pieces of a view, and the repairs that their forms represent.

use super::fixed_texts::{CLEARED, SNIPPED_RESULT};
use crate::ids::{CallKey, Ordinal, SpanKey, TurnNumber};
use crate::message::MediaProblem;

/// One piece of a view: a block of the transcript and its form, or a synthetic element.
///
/// Every block of every message in the view has exactly one piece, whether it is shown or not. A block therefore
/// cannot disappear from the view without a recorded reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The message of the block. For a synthetic piece, the message that made the piece necessary.
    pub message: Ordinal,
    /// The index of the block within the message. 0 for a synthetic piece.
    pub block: u16,
    /// The representation that the model receives.
    pub form: PieceForm,
}

/// The representation of a piece in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PieceForm {
    /// The block itself.
    Block,
    /// User input with additions of the service.
    Input {
        /// The user turn that this input begins. The id of the turn is appended to the text.
        turn: Option<TurnNumber>,
        /// True if the input arrived while the model was working. The text is then wrapped in a reminder.
        interjected: bool,
    },
    /// A tool call, under its wire id.
    Call(CallKey),
    /// A tool call whose input was snipped.
    SnippedCall(CallKey),
    /// A tool result, under the wire id of its call.
    Result(CallKey),
    /// A tool result with markers in place of its images.
    ResultWithoutMedia(CallKey),
    /// The replacement of a stored result.
    Stored(CallKey),
    /// A marker in place of an old result that was cleared.
    Cleared(CallKey),
    /// A marker in place of a result that was snipped.
    SnippedResult(CallKey),
    /// A late or orphaned result, shown as text.
    Text(TextReason),
    /// A marker in place of the block.
    Marker(MarkerReason),
    /// The block is not shown.
    Dropped(DropReason),
    /// Synthetic: an error result for a call without a result.
    Interrupted(CallKey),
    /// Synthetic: a user message before a transcript that begins with the model.
    Opening,
    /// Synthetic: a user text between two responses that would otherwise be merged into one.
    Gap,
    /// Synthetic: the id of a user turn whose input has no text.
    Tag(TurnNumber),
    /// Synthetic: a reminder to snip.
    Nudge,
    /// The summary of a compaction.
    Summary,
    /// Synthetic: the placeholder of a collapsed span. Its message is the first message of the span.
    Placeholder(SpanKey),
    /// System or developer text in the middle of the conversation. Anthropic's APIs receive it as a user text.
    Operator,
}

/// The reason for which a result is shown as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextReason {
    /// No call has this id.
    Orphan,
    /// The result arrived after its call was reported as interrupted.
    Late(CallKey),
}

/// The reason for a marker in place of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkerReason {
    /// Providers would reject the media.
    Media(MediaProblem),
    /// The block was snipped.
    Snipped,
}

/// The reason for which a block is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The block has no content.
    Blank,
    /// The call already had a result.
    DuplicateResult(CallKey),
    /// The result arrived after its call was interrupted, and the call has left the view.
    LateResult(CallKey),
    /// Thinking at the end of a message. Providers reject a message that ends with thinking.
    TrailingThinking,
    /// Thinking without a signature. No provider accepts it back.
    UnsignedThinking,
    /// A block that its role may not contain, such as a tool result of the model or a call of the user.
    WrongRole,
    /// An earlier item of the view has the same id. The provider rejects an id that is repeated.
    RepeatedItem,
    /// The block was snipped, or the call to which it belongs was.
    Snipped,
}

impl PieceForm {
    /// Returns true if the model sees this piece in any form.
    pub const fn is_shown(self) -> bool {
        !matches!(self, Self::Dropped(_))
    }

    /// Returns true if the piece represents a block of the transcript.
    pub const fn represents_block(self) -> bool {
        !matches!(
            self,
            Self::Interrupted(_)
                | Self::Opening
                | Self::Gap
                | Self::Tag(_)
                | Self::Nudge
                | Self::Placeholder(_)
        )
    }

    /// Returns the marker that the model sees in place of the content of a cleared or snipped result.
    pub const fn result_marker(self) -> Option<&'static str> {
        match self {
            Self::Cleared(_) => Some(CLEARED),
            Self::SnippedResult(_) => Some(SNIPPED_RESULT),
            _ => None,
        }
    }

    /// Returns the call if the piece is a tool call.
    pub const fn call_key(self) -> Option<CallKey> {
        match self {
            Self::Call(call) | Self::SnippedCall(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the call that the piece answers, in whatever form the result is shown.
    pub const fn answered_call_key(self) -> Option<CallKey> {
        match self {
            Self::Result(call)
            | Self::ResultWithoutMedia(call)
            | Self::Stored(call)
            | Self::Cleared(call)
            | Self::SnippedResult(call)
            | Self::Interrupted(call) => Some(call),
            _ => None,
        }
    }
}

/// One correction that makes the view valid for its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repair {
    /// The message that was invalid.
    pub message: Ordinal,
    /// The index of the block within the message.
    pub block: u16,
    /// The correction.
    pub kind: RepairKind,
}

/// The kinds of corrections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RepairKind {
    /// A blank text block is omitted.
    BlankText,
    /// A second result of a call is omitted.
    DuplicateResult(CallKey),
    /// A result without a call is shown as text.
    OrphanResult,
    /// A result that came after the interruption of its call is shown as text.
    LateResult(CallKey),
    /// A result that arrived after the interruption of its call is omitted, because the call has left the view.
    LateResultHidden(CallKey),
    /// A call without a result gets an error result.
    InterruptedCall(CallKey),
    /// An image or document is replaced by a marker.
    Media(MediaProblem),
    /// Thinking at the end of a message is omitted.
    TrailingThinking,
    /// Thinking without a signature is omitted.
    UnsignedThinking,
    /// A block that its role may not contain is omitted.
    WrongRole,
    /// A block, or a block inside a tool result, has no form that the target takes. It is omitted or replaced by a text.
    UnsupportedBlock,
    /// An item with the id of an earlier item is omitted.
    RepeatedItem,
    /// A user message is inserted before the first message of the model.
    Opening,
    /// A call has another id on the wire, because its own id is illegal or already used.
    MappedCallId(CallKey),
}

impl Piece {
    /// Returns the repair that the form of this piece represents. `None` if the form is no repair.
    pub fn repair(&self) -> Option<Repair> {
        // The match lists every form, so that a new form cannot be forgotten here.
        let kind = match self.form {
            PieceForm::Block
            | PieceForm::Input { .. }
            | PieceForm::Call(_)
            | PieceForm::SnippedCall(_)
            | PieceForm::Result(_)
            | PieceForm::Stored(_)
            | PieceForm::Cleared(_)
            | PieceForm::SnippedResult(_)
            | PieceForm::Operator
            | PieceForm::Gap
            | PieceForm::Tag(_)
            | PieceForm::Nudge
            | PieceForm::Summary
            | PieceForm::Placeholder(_)
            | PieceForm::Marker(MarkerReason::Snipped)
            | PieceForm::Dropped(DropReason::Snipped) => return None,
            PieceForm::ResultWithoutMedia(_) => RepairKind::Media(MediaProblem::TooMany),
            PieceForm::Text(TextReason::Orphan) => RepairKind::OrphanResult,
            PieceForm::Text(TextReason::Late(call)) => RepairKind::LateResult(call),
            PieceForm::Marker(MarkerReason::Media(problem)) => RepairKind::Media(problem),
            PieceForm::Dropped(DropReason::Blank) => RepairKind::BlankText,
            PieceForm::Dropped(DropReason::DuplicateResult(call)) => {
                RepairKind::DuplicateResult(call)
            }
            PieceForm::Dropped(DropReason::LateResult(call)) => RepairKind::LateResultHidden(call),
            PieceForm::Dropped(DropReason::TrailingThinking) => RepairKind::TrailingThinking,
            PieceForm::Dropped(DropReason::UnsignedThinking) => RepairKind::UnsignedThinking,
            PieceForm::Dropped(DropReason::WrongRole) => RepairKind::WrongRole,
            PieceForm::Dropped(DropReason::RepeatedItem) => RepairKind::RepeatedItem,
            PieceForm::Interrupted(call) => RepairKind::InterruptedCall(call),
            PieceForm::Opening => RepairKind::Opening,
        };
        Some(Repair {
            message: self.message,
            block: self.block,
            kind,
        })
    }
}

/// Returns a length as a count of pieces, in 32 bits. A session would need 256 GiB of pieces to exceed these.
pub fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
