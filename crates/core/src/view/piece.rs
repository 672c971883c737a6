//! The pieces of a view, and the repairs that their forms stand for.

use crate::ids::{CallKey, Ordinal, SpanKey, TurnNumber};
use crate::message::MediaProblem;

/// One piece of a view: a block of the transcript and the form it takes, or something synthetic.
///
/// Every block of every message that takes part in the view has exactly one piece, shown or not, so
/// that nothing can fall out of the view without a reason that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The message that it comes from; of a synthetic piece, the one that made it necessary.
    pub message: Ordinal,
    /// The block within the message; 0 for a synthetic piece.
    pub block: u16,
    /// What the model sees.
    pub form: PieceForm,
}

/// What the model sees of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PieceForm {
    /// The block itself.
    Block,
    /// Words of the user, dressed.
    Input {
        /// The turn that they begin: its name follows them.
        turn: Option<TurnNumber>,
        /// Whether they came while the model was at work.
        interjected: bool,
    },
    /// A call, under its wire id.
    Call(CallKey),
    /// A call whose input was snipped.
    SnippedCall(CallKey),
    /// A call's result, under the call's wire id.
    Result(CallKey),
    /// A call's result, with markers in place of its pictures.
    ResultWithoutMedia(CallKey),
    /// What stands in the place of a result that was stored.
    Stored(CallKey),
    /// A marker in the place of an old result.
    Cleared(CallKey),
    /// A marker in the place of a result that was snipped.
    SnippedResult(CallKey),
    /// A result that cannot stand as one, told in words.
    Text(TextReason),
    /// A marker in place of the block.
    Marker(MarkerReason),
    /// Nothing.
    Dropped(DropReason),
    /// Synthetic: an error result for a call that will not be answered in time.
    Interrupted(CallKey),
    /// Synthetic: the user's opening, where a transcript begins with the model.
    Opening,
    /// Synthetic: the user's words between two of the model's that would otherwise become one.
    Gap,
    /// Synthetic: the name of a turn whose input has no words.
    Tag(TurnNumber),
    /// Synthetic: the model is reminded to snip.
    Nudge,
    /// The summary that a compaction left.
    Summary,
    /// Synthetic: what stands in the place of a span; its message is the first of those that left.
    Placeholder(SpanKey),
    /// What the operator says in mid-conversation, where providers know only two speakers.
    Operator,
}

/// Why a result is told in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextReason {
    /// No call has this id.
    Orphan,
    /// It came after its call was reported as interrupted.
    Late(CallKey),
}

/// Why a marker stands in place of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkerReason {
    /// A provider would refuse it.
    Media(MediaProblem),
    /// It was snipped.
    Snipped,
}

/// Why a block is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It says nothing.
    Blank,
    /// The call had its result already.
    DuplicateResult(CallKey),
    /// It came after its call was interrupted, and the call is not in the view any more.
    LateResult(CallKey),
    /// Thinking that nothing follows: a provider refuses a message that ends with it.
    TrailingThinking,
    /// Thinking without a signature: no provider takes it back.
    UnsignedThinking,
    /// A tool result in a message that is not the user's, or a call that is not the model's.
    WrongRole,
    /// It was snipped, or what it belongs to was.
    Snipped,
}

impl PieceForm {
    /// Whether the model sees something.
    pub const fn is_shown(self) -> bool {
        !matches!(self, Self::Dropped(_))
    }

    /// Whether it stands for a block of the transcript.
    pub const fn is_of_a_block(self) -> bool {
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

    /// Whether it is a call.
    pub const fn calls(self) -> Option<CallKey> {
        match self {
            Self::Call(call) | Self::SnippedCall(call) => Some(call),
            _ => None,
        }
    }

    /// Whether it stands where a result stands.
    pub const fn answers(self) -> Option<CallKey> {
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

/// What was done so that a provider accepts the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repair {
    /// The message that was broken.
    pub message: Ordinal,
    /// The block within it.
    pub block: u16,
    /// What was done.
    pub kind: RepairKind,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RepairKind {
    /// A blank text block is left out.
    BlankText,
    /// A second result of a call is left out.
    DuplicateResult(CallKey),
    /// A result without a call is shown as text.
    OrphanResult,
    /// A result that came after the interruption of its call is shown as text.
    LateResult(CallKey),
    /// The same, but its call is not in the view any more, so neither is it.
    LateResultHidden(CallKey),
    /// An unanswered call got an error result that says so.
    InterruptedCall(CallKey),
    /// A picture or document is replaced by a marker.
    Media(MediaProblem),
    /// Thinking at the end of a message is left out.
    TrailingThinking,
    /// Thinking without a signature is left out.
    UnsignedThinking,
    /// A block that its role may not hold is left out.
    WrongRole,
    /// An opening was put before the model's first words.
    Opening,
    /// A call goes by another id on the wire, because its own is illegal or taken.
    MappedCallId(CallKey),
}

impl Piece {
    /// The repair that this form stands for.
    pub fn repair(&self) -> Option<Repair> {
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
