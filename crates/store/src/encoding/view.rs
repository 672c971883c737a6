//! Encoding of the pieces of views.

use palimpsest_core::ids::{CallKey, SpanKey, TurnNumber};
use palimpsest_core::message::MediaProblem;
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::LastServed;
use palimpsest_core::view::{
    DropReason, LayoutChange, MarkerReason, Piece, PieceForm, Provider, Splice, Target, TextReason,
};

use super::error::DecodeError;
use super::stored_as::{StoredAs, cell};
use super::v1;

stored_enum! {
    MediaProblem = MediaProblem { TooManyBytes, TooManyPixels, BadType, TooMany }
    or "a marker without a reason"
}

/// Encodes pieces as columns.
pub(super) fn write_pieces(pieces: &[Piece]) -> v1::Pieces {
    let mut stored = v1::Pieces::default();
    for piece in pieces {
        let (form, arg) = write_form(piece.form);
        stored.message.push(piece.message.get());
        stored.block.push(piece.block.into());
        stored.form.push(form.into());
        stored.arg.push(arg);
    }
    stored
}

fn read_pieces(stored: Option<v1::Pieces>) -> Result<Vec<Piece>, DecodeError> {
    let stored = stored.unwrap_or_default();
    let len = stored.message.len();
    // Equal lengths allow the direct indexing below.
    if stored.block.len() != len || stored.form.len() != len || stored.arg.len() != len {
        return Err(DecodeError::Damaged("a list of pieces is cut"));
    }
    let piece = |row: usize| {
        let form = v1::Form::try_from(stored.form[row])
            .map_err(|_| DecodeError::Damaged("a piece of an unknown form"))?;
        Ok(Piece {
            message: cell(&stored.message, row)?,
            block: cell(&stored.block, row)?,
            form: read_form(form, stored.arg[row])?,
        })
    };
    (0..len).map(piece).collect()
}

impl StoredAs<Option<v1::Pieces>> for Vec<Piece> {
    fn to_proto(&self) -> Option<v1::Pieces> {
        Some(write_pieces(self))
    }

    fn from_proto(stored: Option<v1::Pieces>) -> Result<Self, DecodeError> {
        read_pieces(stored)
    }
}

fn write_form(form: PieceForm) -> (v1::Form, u32) {
    use v1::Form as Stored;
    // A form has at most one argument, so a list of pieces is stored as columns of numbers.
    match form {
        PieceForm::Block => (Stored::Block, 0),
        PieceForm::Call(call) => (Stored::Call, call.get()),
        PieceForm::Result(call) => (Stored::Result, call.get()),
        PieceForm::ResultWithoutMedia(call) => (Stored::ResultWithoutMedia, call.get()),
        PieceForm::Text(TextReason::Orphan) => (Stored::TextOrphan, 0),
        PieceForm::Text(TextReason::Late(call)) => (Stored::TextLate, call.get()),
        PieceForm::Marker(MarkerReason::Media(problem)) => {
            // The numbers of the enum are not negative, so the sign is never lost.
            (Stored::MarkerMedia, problem.to_proto().unsigned_abs())
        }
        PieceForm::Dropped(DropReason::Blank) => (Stored::DroppedBlank, 0),
        PieceForm::Dropped(DropReason::DuplicateResult(call)) => {
            (Stored::DroppedDuplicate, call.get())
        }
        PieceForm::Dropped(DropReason::LateResult(call)) => (Stored::DroppedLate, call.get()),
        PieceForm::Dropped(DropReason::TrailingThinking) => (Stored::DroppedTrailingThinking, 0),
        PieceForm::Dropped(DropReason::UnsignedThinking) => (Stored::DroppedUnsignedThinking, 0),
        PieceForm::Dropped(DropReason::WrongRole) => (Stored::DroppedWrongRole, 0),
        PieceForm::Dropped(DropReason::RepeatedItem) => (Stored::DroppedRepeatedItem, 0),
        PieceForm::Interrupted(call) => (Stored::Interrupted, call.get()),
        PieceForm::Opening => (Stored::Opening, 0),
        PieceForm::Operator => (Stored::Operator, 0),
        PieceForm::Input { turn, interjected } => {
            let form = if interjected {
                Stored::Interjection
            } else {
                Stored::Input
            };
            (form, turn.map_or(0, TurnNumber::get))
        }
        PieceForm::SnippedCall(call) => (Stored::SnippedCall, call.get()),
        PieceForm::Stored(call) => (Stored::Stored, call.get()),
        PieceForm::Cleared(call) => (Stored::Cleared, call.get()),
        PieceForm::SnippedResult(call) => (Stored::SnippedResult, call.get()),
        PieceForm::Gap => (Stored::Gap, 0),
        PieceForm::Tag(turn) => (Stored::Tag, turn.get()),
        PieceForm::Nudge => (Stored::Nudge, 0),
        PieceForm::Placeholder(span) => (Stored::Placeholder, span.get()),
        PieceForm::Summary => (Stored::Summary, 0),
        PieceForm::Marker(MarkerReason::Snipped) => (Stored::MarkerSnipped, 0),
        PieceForm::Dropped(DropReason::Snipped) => (Stored::DroppedSnipped, 0),
    }
}

fn read_form(form: v1::Form, arg: u32) -> Result<PieceForm, DecodeError> {
    use v1::Form as Stored;
    let call = CallKey::new(arg);
    Ok(match form {
        Stored::Block => PieceForm::Block,
        Stored::Call => PieceForm::Call(call),
        Stored::Result => PieceForm::Result(call),
        Stored::ResultWithoutMedia => PieceForm::ResultWithoutMedia(call),
        Stored::TextOrphan => PieceForm::Text(TextReason::Orphan),
        Stored::TextLate => PieceForm::Text(TextReason::Late(call)),
        Stored::MarkerMedia => PieceForm::Marker(MarkerReason::Media(media_problem(arg)?)),
        Stored::DroppedBlank => PieceForm::Dropped(DropReason::Blank),
        Stored::DroppedDuplicate => PieceForm::Dropped(DropReason::DuplicateResult(call)),
        Stored::DroppedLate => PieceForm::Dropped(DropReason::LateResult(call)),
        Stored::DroppedTrailingThinking => PieceForm::Dropped(DropReason::TrailingThinking),
        Stored::DroppedUnsignedThinking => PieceForm::Dropped(DropReason::UnsignedThinking),
        Stored::DroppedWrongRole => PieceForm::Dropped(DropReason::WrongRole),
        Stored::DroppedRepeatedItem => PieceForm::Dropped(DropReason::RepeatedItem),
        Stored::Interrupted => PieceForm::Interrupted(call),
        Stored::Opening => PieceForm::Opening,
        Stored::Operator => PieceForm::Operator,
        // One form of the domain has two stored forms, because `arg` contains the turn only.
        Stored::Input | Stored::Interjection => PieceForm::Input {
            turn: TurnNumber::new(arg),
            interjected: form == Stored::Interjection,
        },
        Stored::SnippedCall => PieceForm::SnippedCall(call),
        Stored::Stored => PieceForm::Stored(call),
        Stored::Cleared => PieceForm::Cleared(call),
        Stored::SnippedResult => PieceForm::SnippedResult(call),
        Stored::Gap => PieceForm::Gap,
        Stored::Tag => {
            PieceForm::Tag(TurnNumber::new(arg).ok_or(DecodeError::Damaged("a name of no turn"))?)
        }
        Stored::Nudge => PieceForm::Nudge,
        Stored::Placeholder => PieceForm::Placeholder(SpanKey::new(arg)),
        Stored::Summary => PieceForm::Summary,
        Stored::MarkerSnipped => PieceForm::Marker(MarkerReason::Snipped),
        Stored::DroppedSnipped => PieceForm::Dropped(DropReason::Snipped),
        Stored::Unspecified => return Err(DecodeError::Damaged("a piece without a form")),
    })
}

fn media_problem(arg: u32) -> Result<MediaProblem, DecodeError> {
    // A number above the range of the enum counts as unspecified.
    MediaProblem::from_proto(i32::try_from(arg).unwrap_or_default())
}

/// A layout change, with its splices as columns and the inserted pieces of all splices in one list.
impl StoredAs<v1::LayoutChange> for LayoutChange {
    fn to_proto(&self) -> v1::LayoutChange {
        let mut stored = v1::LayoutChange {
            kept_tokens: self.kept_tokens,
            ..v1::LayoutChange::default()
        };
        let mut pieces = Vec::new();
        for splice in &self.splices {
            stored.at.push(splice.at);
            stored.remove.push(splice.remove);
            stored
                .insert
                .push(u32::try_from(splice.insert.len()).unwrap_or(u32::MAX));
            pieces.extend_from_slice(&splice.insert);
        }
        stored.pieces = pieces.to_proto();
        stored
    }

    fn from_proto(stored: v1::LayoutChange) -> Result<Self, DecodeError> {
        let mut pieces = read_pieces(stored.pieces)?.into_iter();
        let splice = |row| {
            let insert: u32 = cell(&stored.insert, row)?;
            let insert = insert as usize;
            // `take` would return fewer pieces without an error.
            if insert > pieces.len() {
                return Err(DecodeError::Damaged("a change of the view is cut"));
            }
            Ok(Splice {
                at: cell(&stored.at, row)?,
                remove: cell(&stored.remove, row)?,
                insert: pieces.by_ref().take(insert).collect(),
            })
        };
        let splices = (0..stored.at.len()).map(splice);
        Ok(Self {
            splices: splices.collect::<Result<_, DecodeError>>()?,
            kept_tokens: stored.kept_tokens,
        })
    }
}

nested! { LayoutChange = LayoutChange or "an event without its layout change" }

stored_enum! {
    Provider = Provider { Anthropic, OpenAi = Openai, Bedrock, OpenAiResponses = OpenaiResponses }
    or "an unknown provider"
}

stored_struct! {
    LastServed = Served { overhead_tokens }
    inlined {
        target: Target { provider, model, thinking, system_messages },
        window: WindowHint { window_tokens, max_output_tokens, input_limit_tokens },
    }
    or "a serving without a target"
}
