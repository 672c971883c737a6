//! Encoding of the pieces of views.

use palimpsest_core::ids::{CallKey, Ordinal, SpanKey, TurnNumber};
use palimpsest_core::message::MediaProblem;
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::LastServed;
use palimpsest_core::view::{
    DropReason, LayoutChange, MarkerReason, Piece, PieceForm, Provider, Splice, Target, TextReason,
};

use super::error::DecodeError;
use super::v1;

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

pub(super) fn read_pieces(stored: Option<v1::Pieces>) -> Result<Vec<Piece>, DecodeError> {
    let stored = stored.unwrap_or_default();
    let len = stored.message.len();
    if stored.block.len() != len || stored.form.len() != len || stored.arg.len() != len {
        return Err(DecodeError::Damaged("a list of pieces is cut"));
    }
    (0..len)
        .map(|at| {
            let form = v1::Form::try_from(stored.form[at])
                .map_err(|_| DecodeError::Damaged("a piece of an unknown form"))?;
            Ok(Piece {
                message: Ordinal::new(stored.message[at]),
                block: block(stored.block[at])?,
                form: read_form(form, stored.arg[at])?,
            })
        })
        .collect()
}

pub(super) fn block(number: u32) -> Result<u16, DecodeError> {
    u16::try_from(number).map_err(|_| DecodeError::Damaged("a block's number is too large"))
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
            let problem = match problem {
                MediaProblem::TooManyBytes => v1::MediaProblem::TooManyBytes,
                MediaProblem::TooManyPixels => v1::MediaProblem::TooManyPixels,
                MediaProblem::BadType => v1::MediaProblem::BadType,
                MediaProblem::TooMany => v1::MediaProblem::TooMany,
            };
            (Stored::MarkerMedia, i32::from(problem).unsigned_abs())
        }
        PieceForm::Dropped(DropReason::Blank) => (Stored::DroppedBlank, 0),
        PieceForm::Dropped(DropReason::DuplicateResult(call)) => {
            (Stored::DroppedDuplicate, call.get())
        }
        PieceForm::Dropped(DropReason::LateResult(call)) => (Stored::DroppedLate, call.get()),
        PieceForm::Dropped(DropReason::TrailingThinking) => (Stored::DroppedTrailingThinking, 0),
        PieceForm::Dropped(DropReason::UnsignedThinking) => (Stored::DroppedUnsignedThinking, 0),
        PieceForm::Dropped(DropReason::WrongRole) => (Stored::DroppedWrongRole, 0),
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
    let stored = i32::try_from(arg)
        .ok()
        .and_then(|arg| v1::MediaProblem::try_from(arg).ok());
    Ok(match stored {
        Some(v1::MediaProblem::TooManyBytes) => MediaProblem::TooManyBytes,
        Some(v1::MediaProblem::TooManyPixels) => MediaProblem::TooManyPixels,
        Some(v1::MediaProblem::BadType) => MediaProblem::BadType,
        Some(v1::MediaProblem::TooMany) => MediaProblem::TooMany,
        Some(v1::MediaProblem::Unspecified) | None => {
            return Err(DecodeError::Damaged("a marker without a reason"));
        }
    })
}

pub(super) fn write_change(change: &LayoutChange) -> v1::LayoutChange {
    let mut stored = v1::LayoutChange {
        kept_tokens: change.kept_tokens,
        ..v1::LayoutChange::default()
    };
    let mut pieces = Vec::new();
    for splice in &change.splices {
        stored.at.push(splice.at);
        stored.remove.push(splice.remove);
        stored
            .insert
            .push(u32::try_from(splice.insert.len()).unwrap_or(u32::MAX));
        pieces.extend_from_slice(&splice.insert);
    }
    stored.pieces = Some(write_pieces(&pieces));
    stored
}

pub(super) fn read_change(stored: Option<v1::LayoutChange>) -> Result<LayoutChange, DecodeError> {
    let stored = stored.ok_or(DecodeError::Damaged("a change of the view without one"))?;
    let cut = DecodeError::Damaged("a change of the view is cut");
    let mut pieces = read_pieces(stored.pieces)?.into_iter();
    let mut splices = Vec::with_capacity(stored.at.len());
    for (index, at) in stored.at.iter().enumerate() {
        let remove = *stored.remove.get(index).ok_or(cut.clone())?;
        let insert = *stored.insert.get(index).ok_or(cut.clone())? as usize;
        if insert > pieces.len() {
            return Err(cut);
        }
        splices.push(Splice {
            at: *at,
            remove,
            insert: pieces.by_ref().take(insert).collect(),
        });
    }
    Ok(LayoutChange {
        splices,
        kept_tokens: stored.kept_tokens,
    })
}

pub(super) fn write_served(served: &LastServed) -> v1::Served {
    v1::Served {
        provider: match served.target.provider {
            Provider::Anthropic => v1::Provider::Anthropic,
            Provider::OpenAi => v1::Provider::Openai,
            Provider::Bedrock => v1::Provider::Bedrock,
        }
        .into(),
        model: served.target.model.to_string(),
        thinking: served.target.thinking,
        window_tokens: served.window.window_tokens,
        max_output_tokens: served.window.max_output_tokens,
        input_limit_tokens: served.window.input_limit_tokens,
        overhead_tokens: served.overhead_tokens,
    }
}

pub(super) fn read_served(stored: Option<v1::Served>) -> Result<LastServed, DecodeError> {
    let stored = stored.ok_or(DecodeError::Damaged("a serving without a target"))?;
    let provider = match stored.provider() {
        v1::Provider::Anthropic => Provider::Anthropic,
        v1::Provider::Openai => Provider::OpenAi,
        v1::Provider::Bedrock => Provider::Bedrock,
        v1::Provider::Unspecified => return Err(DecodeError::Damaged("an unknown provider")),
    };
    Ok(LastServed {
        target: Target {
            provider,
            model: stored.model.into(),
            thinking: stored.thinking,
        },
        window: WindowHint {
            window_tokens: stored.window_tokens,
            max_output_tokens: stored.max_output_tokens,
            input_limit_tokens: stored.input_limit_tokens,
        },
        overhead_tokens: stored.overhead_tokens,
    })
}
