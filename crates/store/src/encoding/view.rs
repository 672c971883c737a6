//! Pieces of views.

use palimpsest_core::event::LayoutChange;
use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::message::MediaProblem;
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::LastServed;
use palimpsest_core::view::{DropReason, Form, MarkerReason, Piece, Provider, Target, TextReason};

use super::{DecodeError, v1};

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

fn write_form(form: Form) -> (v1::Form, u32) {
    use v1::Form as Stored;
    match form {
        Form::Block => (Stored::Block, 0),
        Form::Call(call) => (Stored::Call, call.get()),
        Form::Result(call) => (Stored::Result, call.get()),
        Form::ResultWithoutMedia(call) => (Stored::ResultWithoutMedia, call.get()),
        Form::Text(TextReason::Orphan) => (Stored::TextOrphan, 0),
        Form::Text(TextReason::Late(call)) => (Stored::TextLate, call.get()),
        Form::Marker(MarkerReason::Media(problem)) => {
            let problem = match problem {
                MediaProblem::TooManyBytes => v1::MediaProblem::TooManyBytes,
                MediaProblem::TooManyPixels => v1::MediaProblem::TooManyPixels,
                MediaProblem::BadType => v1::MediaProblem::BadType,
                MediaProblem::TooMany => v1::MediaProblem::TooMany,
            };
            (Stored::MarkerMedia, i32::from(problem).unsigned_abs())
        }
        Form::Dropped(DropReason::Blank) => (Stored::DroppedBlank, 0),
        Form::Dropped(DropReason::DuplicateResult(call)) => (Stored::DroppedDuplicate, call.get()),
        Form::Dropped(DropReason::LateResult(call)) => (Stored::DroppedLate, call.get()),
        Form::Dropped(DropReason::TrailingThinking) => (Stored::DroppedTrailingThinking, 0),
        Form::Dropped(DropReason::UnsignedThinking) => (Stored::DroppedUnsignedThinking, 0),
        Form::Dropped(DropReason::WrongRole) => (Stored::DroppedWrongRole, 0),
        Form::Interrupted(call) => (Stored::Interrupted, call.get()),
        Form::Opening => (Stored::Opening, 0),
        Form::Operator => (Stored::Operator, 0),
    }
}

fn read_form(form: v1::Form, arg: u32) -> Result<Form, DecodeError> {
    use v1::Form as Stored;
    let call = CallKey::new(arg);
    Ok(match form {
        Stored::Block => Form::Block,
        Stored::Call => Form::Call(call),
        Stored::Result => Form::Result(call),
        Stored::ResultWithoutMedia => Form::ResultWithoutMedia(call),
        Stored::TextOrphan => Form::Text(TextReason::Orphan),
        Stored::TextLate => Form::Text(TextReason::Late(call)),
        Stored::MarkerMedia => Form::Marker(MarkerReason::Media(media_problem(arg)?)),
        Stored::DroppedBlank => Form::Dropped(DropReason::Blank),
        Stored::DroppedDuplicate => Form::Dropped(DropReason::DuplicateResult(call)),
        Stored::DroppedLate => Form::Dropped(DropReason::LateResult(call)),
        Stored::DroppedTrailingThinking => Form::Dropped(DropReason::TrailingThinking),
        Stored::DroppedUnsignedThinking => Form::Dropped(DropReason::UnsignedThinking),
        Stored::DroppedWrongRole => Form::Dropped(DropReason::WrongRole),
        Stored::Interrupted => Form::Interrupted(call),
        Stored::Opening => Form::Opening,
        Stored::Operator => Form::Operator,
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
    v1::LayoutChange {
        keep: change.keep,
        then: Some(write_pieces(&change.then)),
    }
}

pub(super) fn read_change(stored: Option<v1::LayoutChange>) -> Result<LayoutChange, DecodeError> {
    let stored = stored.ok_or(DecodeError::Damaged("a change of the view without one"))?;
    Ok(LayoutChange {
        keep: stored.keep,
        then: read_pieces(stored.then)?,
    })
}

pub(super) fn write_served(served: &LastServed) -> v1::Served {
    v1::Served {
        provider: match served.target.provider {
            Provider::Anthropic => v1::Provider::Anthropic,
            Provider::OpenAi => v1::Provider::Openai,
        }
        .into(),
        model: served.target.model.to_string(),
        thinking: served.target.thinking,
        window_tokens: served.window.window_tokens,
        max_output_tokens: served.window.max_output_tokens,
        overhead_tokens: served.overhead_tokens,
    }
}

pub(super) fn read_served(stored: Option<v1::Served>) -> Result<LastServed, DecodeError> {
    let stored = stored.ok_or(DecodeError::Damaged("a serving without a target"))?;
    let provider = match stored.provider() {
        v1::Provider::Anthropic => Provider::Anthropic,
        v1::Provider::Openai => Provider::OpenAi,
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
        },
        overhead_tokens: stored.overhead_tokens,
    })
}
