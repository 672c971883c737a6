//! Whether a model's answer is taken for a summary, and what of it.

use super::document::{SummaryDocument, SummarySection};
use super::refusal::is_refusal;
use crate::memory::{Fence, heading};
use crate::policy::SummaryStyle;

/// A summary that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedSummary {
    /// Its sections.
    pub document: SummaryDocument,
    /// Its text.
    pub text: String,
    /// The sections that the model left out and that were filled from the transcript.
    pub filled: Vec<SummarySection>,
}

/// Why an answer is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SummaryRejection {
    /// It says nothing, or nothing but its own notes.
    #[error("the model's summary is empty; compact again, or with another model")]
    Empty,
    /// The model refuses.
    #[error("the model refused to summarise; compact with another model, or without one")]
    Refusal,
    /// It was cut at the output cap.
    #[error(
        "the model's summary was cut at its output cap; raise the cap, or compact a smaller range"
    )]
    Truncated,
    /// It says neither what was asked nor where the work stands, and neither does the transcript.
    #[error(
        "the model's summary lacks what was asked or where the work stands; compact again, or with another model"
    )]
    Incomplete,
}

/// A text without sections is taken from this many characters on: anything shorter tells too little.
const MIN_FREE_CHARS: usize = 200;

/// Reads a model's answer. The scratchpad goes, and so does what comes after the last section. Sections
/// are known by their titles. What is required and missing is taken from `extracted`, and so are the user's
/// messages, always: they are never a model's to tell. `truncated` says that the answer ends at the
/// output cap.
pub fn accept(
    answer: &str,
    truncated: bool,
    extracted: &SummaryDocument,
) -> Result<AcceptedSummary, SummaryRejection> {
    let style = extracted.style();
    let text = summary_in(answer);
    if text.trim().is_empty() {
        return Err(if truncated {
            SummaryRejection::Truncated
        } else {
            SummaryRejection::Empty
        });
    }
    let mut document = sections(text, style);
    let has_sections = SummarySection::of(style)
        .iter()
        .any(|section| document.body(*section).is_some());
    if !has_sections && is_refusal(text) {
        return Err(SummaryRejection::Refusal);
    }
    if truncated {
        return Err(SummaryRejection::Truncated);
    }
    if !has_sections {
        if text.trim().chars().count() < MIN_FREE_CHARS {
            return Err(SummaryRejection::Incomplete);
        }
        document.free.push_str(text.trim());
    }
    let mut filled = Vec::new();
    for needed in SummarySection::required(style) {
        if needed
            .iter()
            .any(|section| document.body(*section).is_some_and(says_something))
        {
            continue;
        }
        let source = needed
            .iter()
            .find(|section| extracted.body(**section).is_some());
        let Some(section) = source else {
            // Text without sections may well say it.
            if has_sections {
                return Err(SummaryRejection::Incomplete);
            }
            continue;
        };
        document.set(*section, extracted.body(*section).unwrap_or_default());
        filled.push(*section);
    }
    document.set(
        SummarySection::UserMessages,
        extracted
            .body(SummarySection::UserMessages)
            .unwrap_or_default(),
    );
    let text = document.render();
    Ok(AcceptedSummary {
        document,
        text,
        filled,
    })
}

/// Whether a section has content. `N/A` is a valid answer, but not where an answer is required.
fn says_something(body: &str) -> bool {
    let bare = body
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    !matches!(
        &*bare,
        "" | "n/a" | "na" | "none" | "tbd" | "nothing" | "unknown" | "not applicable"
    )
}

/// What stands between the tags of a summary, or everything but the scratchpad.
fn summary_in(answer: &str) -> &str {
    const OPEN: &str = "<summary>";
    const CLOSE: &str = "</summary>";
    const ANALYSIS: &str = "<analysis>";
    const ANALYSIS_END: &str = "</analysis>";
    // The scratchpad may talk about the tags; what follows it counts.
    let after = match (answer.rfind(ANALYSIS_END), answer.find(ANALYSIS)) {
        (Some(end), _) => &answer[end + ANALYSIS_END.len()..],
        // A scratchpad that never ends, unless the summary begins within it.
        (None, Some(start)) => match answer[start..].find(OPEN) {
            Some(at) => &answer[start + at..],
            None => &answer[..start],
        },
        (None, None) => answer,
    };
    let inner = match after.find(OPEN) {
        Some(at) => &after[at + OPEN.len()..],
        None => after,
    };
    let inner = inner.rfind(CLOSE).map_or(inner, |end| &inner[..end]);
    without_fence(inner.trim())
}

fn without_fence(text: &str) -> &str {
    let inner = text
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"));
    inner
        .and_then(|inner| inner.split_once('\n'))
        .map_or(text, |(_, inner)| inner.trim())
}

fn sections(text: &str, style: SummaryStyle) -> SummaryDocument {
    let mut document = SummaryDocument::new(style);
    let mut found: Vec<(SummarySection, String)> = Vec::new();
    let mut fence = Fence::default();
    let mut open = false;
    for line in text.lines() {
        let in_fence = fence.take(line);
        let title = (!in_fence).then(|| title_of(line)).flatten();
        let named = title.and_then(|(title, rest, is_heading)| {
            Some((SummarySection::of_title(style, title, is_heading)?, rest))
        });
        if let Some((section, rest)) =
            named.filter(|(section, _)| found.iter().all(|(known, _)| known != section))
        {
            found.push((section, format!("{rest}\n")));
            open = true;
            continue;
        }
        // After the last section, a heading of its own or a rule begins what is no summary.
        let is_last = found
            .last()
            .is_some_and(|(section, _)| SummarySection::of(style).last() == Some(section));
        if is_last && !in_fence && (heading(line).is_some() || is_rule(line)) {
            open = false;
        }
        if let Some((_, body)) = found.last_mut().filter(|_| open) {
            body.push_str(line);
            body.push('\n');
        }
    }
    for (section, body) in found {
        document.set(section, cut_after(section, &body, style));
    }
    document
}

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && (line.bytes().all(|b| b == b'-') || line.bytes().all(|b| b == b'*'))
}

/// Small talk after the last section: a paragraph that speaks to whoever asked.
const SMALL_TALK: [&str; 7] = [
    "let me know",
    "i hope this",
    "please let me",
    "is there anything",
    "if you need",
    "if you'd like",
    "feel free",
];

fn cut_after(section: SummarySection, body: &str, style: SummaryStyle) -> &str {
    if SummarySection::of(style).last() != Some(&section) {
        return body;
    }
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let lower = line.trim_start().to_lowercase();
        if SMALL_TALK.iter().any(|talk| lower.starts_with(talk)) {
            return &body[..at];
        }
        at += line.len();
    }
    body
}

/// A title as models write one, with what follows it in the line: `## 3. Title`, `3. **Title**: text`,
/// `**Title**`, `Title:`; and whether it is surely one, because a mark or a number stands before it.
fn title_of(line: &str) -> Option<(&str, &str, bool)> {
    if let Some(title) = heading(line) {
        return Some((title, "", true));
    }
    // What is set in is a part of a section.
    if line.starts_with([' ', '\t']) {
        return None;
    }
    let numbered =
        line.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ')' | ' '));
    let is_numbered = numbered.len() < line.len();
    if let Some(inner) = numbered.strip_prefix("**") {
        let (title, rest) = inner.split_once("**")?;
        let rest = rest.trim_start_matches([':', ' ', '.']);
        return Some((title, rest, is_numbered));
    }
    let (title, rest) = numbered.split_once(':')?;
    // `Files: …` is a title; so is `3. Errors and fixes: …`.
    (title.len() <= 40).then_some((title, rest.trim(), is_numbered))
}
