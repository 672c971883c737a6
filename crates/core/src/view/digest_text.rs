//! The text of a form in the digest of a view.
//!
//! Snapshots and callers hold digests. A changed text would make them unknown, so the texts are independent of the
//! names in the code.

use std::fmt::Write as _;

use super::{DropReason, MarkerReason, PieceForm, TextReason};
use crate::message::MediaProblem;

impl PieceForm {
    /// Appends the text of the form.
    pub(super) fn write_digest_text(self, out: &mut String) {
        let written = match self {
            Self::Block => write!(out, "Block"),
            Self::Input { turn, interjected } => {
                // This is the form of derived `Debug` output, written out so that no change of a derive alters it.
                let turn = turn.map_or_else(
                    || "None".to_owned(),
                    |turn| format!("Some(Turn({}))", turn.get()),
                );
                write!(out, "Input {{ turn: {turn}, interjected: {interjected} }}")
            }
            Self::Call(call) => write!(out, "Call({call})"),
            Self::SnippedCall(call) => write!(out, "SnippedCall({call})"),
            Self::Result(call) => write!(out, "Result({call})"),
            Self::ResultWithoutMedia(call) => write!(out, "ResultWithoutMedia({call})"),
            Self::Stored(call) => write!(out, "Stored({call})"),
            Self::Cleared(call) => write!(out, "Cleared({call})"),
            Self::SnippedResult(call) => write!(out, "SnippedResult({call})"),
            Self::Text(TextReason::Orphan) => write!(out, "Text(Orphan)"),
            Self::Text(TextReason::Late(call)) => write!(out, "Text(Late({call}))"),
            Self::Marker(MarkerReason::Snipped) => write!(out, "Marker(Snipped)"),
            Self::Marker(MarkerReason::Media(problem)) => {
                write!(out, "Marker(Media({}))", of_media(problem))
            }
            Self::Dropped(DropReason::DuplicateResult(call)) => {
                write!(out, "Dropped(DuplicateResult({call}))")
            }
            Self::Dropped(DropReason::LateResult(call)) => {
                write!(out, "Dropped(LateResult({call}))")
            }
            Self::Dropped(DropReason::Blank) => write!(out, "Dropped(Blank)"),
            Self::Dropped(DropReason::TrailingThinking) => write!(out, "Dropped(TrailingThinking)"),
            Self::Dropped(DropReason::UnsignedThinking) => write!(out, "Dropped(UnsignedThinking)"),
            Self::Dropped(DropReason::WrongRole) => write!(out, "Dropped(WrongRole)"),
            Self::Dropped(DropReason::RepeatedItem) => write!(out, "Dropped(RepeatedItem)"),
            Self::Dropped(DropReason::Snipped) => write!(out, "Dropped(Snipped)"),
            Self::Interrupted(call) => write!(out, "Interrupted({call})"),
            Self::Opening => write!(out, "Opening"),
            Self::Gap => write!(out, "Gap"),
            Self::Tag(turn) => write!(out, "Tag(Turn({}))", turn.get()),
            Self::Nudge => write!(out, "Nudge"),
            Self::Summary => write!(out, "Summary"),
            Self::Placeholder(span) => write!(out, "Placeholder({span})"),
            Self::Operator => write!(out, "Operator"),
        };
        written.expect("a String takes all text");
    }
}

const fn of_media(problem: MediaProblem) -> &'static str {
    match problem {
        MediaProblem::TooManyBytes => "TooManyBytes",
        MediaProblem::TooManyPixels => "TooManyPixels",
        MediaProblem::BadType => "BadType",
        MediaProblem::TooMany => "TooMany",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CallKey, SpanKey, TurnNumber};

    #[test]
    fn digest_texts_of_forms_are_stable() {
        let (call, span) = (CallKey::new(29), SpanKey::new(1));
        let turn = TurnNumber::new(3).unwrap();
        let input = |turn| PieceForm::Input {
            turn,
            interjected: true,
        };
        for (form, text) in [
            (PieceForm::Block, "Block"),
            (input(None), "Input { turn: None, interjected: true }"),
            (
                input(Some(turn)),
                "Input { turn: Some(Turn(3)), interjected: true }",
            ),
            (PieceForm::Call(call), "Call(c29)"),
            (PieceForm::Stored(call), "Stored(c29)"),
            (PieceForm::Text(TextReason::Late(call)), "Text(Late(c29))"),
            (
                PieceForm::Marker(MarkerReason::Media(MediaProblem::TooMany)),
                "Marker(Media(TooMany))",
            ),
            (
                PieceForm::Dropped(DropReason::DuplicateResult(call)),
                "Dropped(DuplicateResult(c29))",
            ),
            (PieceForm::Tag(turn), "Tag(Turn(3))"),
            (PieceForm::Placeholder(span), "Placeholder(span-1)"),
        ] {
            let mut written = String::new();
            form.write_digest_text(&mut written);
            assert_eq!(written, text);
        }
    }
}
