//! Validation of a model's summary: decides if the answer is accepted, and completes missing
//! sections.

use super::document::{SummaryDocument, SummarySection};
use super::refusal::is_refusal;
use crate::memory::{Fence, heading};
use crate::policy::SummaryStyle;

/// A summary that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedSummary {
    /// The sections of the summary.
    pub document: SummaryDocument,
    /// The rendered text of the summary.
    pub text: String,
    /// The sections that the model omitted and that were filled from the transcript.
    pub filled: Vec<SummarySection>,
}

/// The reason why an answer is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SummaryRejection {
    /// The answer is empty, or contains only the scratchpad.
    #[error("the model's summary is empty; compact again, or with another model")]
    Empty,
    /// The model refused to write a summary.
    #[error("the model refused to summarise; compact with another model, or without one")]
    Refusal,
    /// The answer was cut at the output token limit.
    #[error(
        "the model's summary was truncated at the output limit; raise the limit, or compact a smaller range"
    )]
    Truncated,
    /// The answer lacks a required section, and the transcript provides no replacement for it.
    #[error(
        "the model's summary lacks the user's request or the state of the work; compact again, or with another model"
    )]
    Incomplete,
}

/// The minimum length of a text without sections, in characters. A shorter text carries too little
/// information.
const MIN_UNSECTIONED_CHARS: usize = 200;

/// Validates a model's answer and returns the summary in it.
///
/// The scratchpad and all text after the last section are removed. Sections are identified by their
/// titles. Required sections that are missing are copied from `extracted`. The user's messages are
/// always copied from `extracted`, because a model may paraphrase them. `truncated` is true if the
/// answer ended at the output token limit.
pub fn parse_summary(
    answer: &str,
    truncated: bool,
    extracted: &SummaryDocument,
) -> Result<AcceptedSummary, SummaryRejection> {
    let style = extracted.style();
    let text = summary_in(answer);
    if text.trim().is_empty() {
        // The scratchpad alone can reach the output limit.
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
    // A refusal is checked before truncation, because the remedy differs: another model instead of a
    // higher limit.
    if !has_sections && is_refusal(text) {
        return Err(SummaryRejection::Refusal);
    }
    if truncated {
        return Err(SummaryRejection::Truncated);
    }
    if !has_sections {
        if text.trim().chars().count() < MIN_UNSECTIONED_CHARS {
            return Err(SummaryRejection::Incomplete);
        }
        document.unsectioned.push_str(text.trim());
    }
    let mut filled = Vec::new();
    for needed in SummarySection::required(style) {
        if needed
            .iter()
            .any(|section| document.body(*section).is_some_and(has_content))
        {
            continue;
        }
        let source = needed
            .iter()
            .find(|section| extracted.body(**section).is_some());
        let Some(section) = source else {
            // A text without sections may contain the required facts, so a missing section does not
            // reject it.
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

/// Validates a model's answer and returns the summary of a span in it.
///
/// # Errors
///
/// Returns the reason if the answer is no summary. `truncated` is true if the answer ended at the output token limit.
pub fn parse_span_summary(answer: &str, truncated: bool) -> Result<&str, SummaryRejection> {
    let text = summary_in(answer).trim();
    match text {
        _ if truncated => Err(SummaryRejection::Truncated),
        "" => Err(SummaryRejection::Empty),
        _ if is_refusal(text) => Err(SummaryRejection::Refusal),
        _ => Ok(text),
    }
}

/// Returns true if a section has content. `N/A` is a valid body, but not in a required section.
fn has_content(body: &str) -> bool {
    let bare = body
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    !matches!(
        &*bare,
        "" | "n/a" | "na" | "none" | "tbd" | "nothing" | "unknown" | "not applicable"
    )
}

/// Returns the text between the summary tags, or the whole answer without the scratchpad.
fn summary_in(answer: &str) -> &str {
    const OPEN: &str = "<summary>";
    const CLOSE: &str = "</summary>";
    const ANALYSIS: &str = "<analysis>";
    const ANALYSIS_END: &str = "</analysis>";
    // The scratchpad may mention the tags, so the search starts after its last end tag.
    let after = match (answer.rfind(ANALYSIS_END), answer.find(ANALYSIS)) {
        (Some(end), _) => &answer[end + ANALYSIS_END.len()..],
        // The scratchpad has no end tag. It ends at the summary tag or, without one, extends to the
        // end.
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
    // A summary can quote the closing tag, so the last one ends it.
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
        // Only the first heading of each section counts. A repeated title stays in the body as text.
        if let Some((section, rest)) =
            named.filter(|(section, _)| found.iter().all(|(known, _)| known != section))
        {
            found.push((section, format!("{rest}\n")));
            open = true;
            continue;
        }
        // After the last section, another heading or a horizontal rule ends the summary.
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

/// The beginnings of closing remarks to the reader. Such a paragraph after the last section is
/// removed.
const SMALL_TALK: [&str; 7] = [
    "let me know", "i hope this", "please let me", "is there anything", "if you need",
    "if you'd like", "feel free",
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

/// Parses a section title as models write it: `## 3. Title`, `3. **Title**: text`, `**Title**` or
/// `Title:`. Returns the title, the rest of the line, and true if a heading mark or a number makes
/// the title certain.
fn title_of(line: &str) -> Option<(&str, &str, bool)> {
    if let Some(title) = heading(line) {
        return Some((title, "", true));
    }
    // An indented line belongs to the body of a section.
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
    // The length limit keeps ordinary sentences that contain a colon from counting as titles.
    (title.len() <= 40).then_some((title, rest.trim(), is_numbered))
}
