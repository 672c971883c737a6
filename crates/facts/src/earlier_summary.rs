//! Conversion of an existing summary back into session memory, so that the next summary can build on
//! it.
//!
//! The sections of a summary differ from those of session memory. Lines in a known format return to
//! their original section. A model's text goes to the section with the matching subject. Content
//! that the next summary derives from the session itself, such as user messages, is omitted.

use palimpsest_types::memory::{Memory, SectionKind, is_cut_note};
use palimpsest_types::policy::SummaryStyle;
use palimpsest_types::summary::SummarySection;

use super::lines::join;
use super::memory::{is_of_state, is_of_workflow, is_of_worklog};
use super::summary::{FILE_KINDS_PREFIX, PROGRAMS_PREFIX};

/// The tags of the frame around a summary.
const OPENING_TAG: &str = "<conversation-summary>";
const CLOSING_TAG: &str = "</conversation-summary>";

/// The minimum length, in characters, at which a text without sections is kept as results.
const MIN_FREE_CHARS: usize = 200;

/// The beginnings of lines that every summary writes anew.
const REBUILT_SECTIONS: [&str; 11] = [
    FILE_KINDS_PREFIX,
    PROGRAMS_PREFIX,
    "The user asked:",
    "The user then said:",
    "The latest request ",
    "Before the latest request, ",
    "On the way the user said: ",
    "The user said: ",
    "The user said, one after another:",
    "The user's latest request was: ",
    "Go on with the latest request",
];
/// The first characters of quoted user messages and of the note about omitted messages.
const QUOTES: [char; 2] = ['>', '('];

/// Returns the session memory that corresponds to a summary.
pub fn parse_earlier_summary(text: &str) -> Memory {
    let inner = text
        .split_once(OPENING_TAG)
        .map_or(text, |(_, inner)| inner);
    let inner = inner
        .rsplit_once(CLOSING_TAG)
        .map_or(inner, |(inner, _)| inner);
    for style in [SummaryStyle::NineSections, SummaryStyle::Brief] {
        let sections = sections(inner, style);
        if !sections.is_empty() {
            return sort_into_memory(&sections);
        }
    }
    let mut memory = Memory::parse(inner);
    // The parser places text outside of sections into the title section.
    let title = memory.body(SectionKind::Title).to_owned();
    if title.chars().nth(MIN_FREE_CHARS).is_some() {
        memory.set(SectionKind::Title, "");
        let results = join([title, memory.body(SectionKind::Results).to_owned()]);
        memory.set(SectionKind::Results, &results);
    }
    memory
}

/// Splits a rendered summary into its sections. Text before the first section is ignored.
fn sections(text: &str, style: SummaryStyle) -> Vec<(SummarySection, Vec<&str>)> {
    let titles: Vec<(SummarySection, String)> = (1..)
        .zip(SummarySection::of(style))
        .map(|(number, section)| (*section, format!("## {number}. {}", section.title())))
        .collect();
    let mut found: Vec<(SummarySection, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let title = titles.iter().find(|(_, title)| title == line.trim_end());
        match title {
            Some((section, _)) => found.push((*section, Vec::new())),
            None => {
                if let Some((_, body)) = found.last_mut().filter(|_| line.trim() != "N/A") {
                    body.push(line);
                }
            }
        }
    }
    found
}

fn sort_into_memory(sections: &[(SummarySection, Vec<&str>)]) -> Memory {
    let mut bodies: Vec<(SectionKind, Vec<&str>)> = SectionKind::ALL
        .into_iter()
        .map(|kind| (kind, Vec::new()))
        .collect();
    for (section, lines) in sections {
        let mut kind = None;
        let mut notes = Vec::new();
        for line in lines {
            // A cut note precedes the lines that remain, so it is placed together with the next
            // line.
            if is_cut_note(line) {
                notes.push(*line);
                continue;
            }
            // A blank line stays with the preceding line.
            if !line.trim().is_empty() {
                kind = target_section(*section, line);
            }
            let body = bodies.iter_mut().find(|(other, _)| Some(*other) == kind);
            if let Some((_, body)) = body {
                if line.trim().is_empty() {
                    body.push(line);
                    continue;
                }
                body.append(&mut notes);
                body.push(line);
            }
        }
    }
    let mut memory = Memory::template();
    for (kind, lines) in bodies {
        memory.set(kind, &lines.join("\n"));
    }
    memory
}

/// Returns the section for a line. Returns `None` if the line is written anew or describes a past
/// next step.
fn target_section(section: SummarySection, line: &str) -> Option<SectionKind> {
    let quotes = matches!(
        section,
        SummarySection::Request | SummarySection::Constraints
    );
    let is_quote = quotes && line.starts_with(QUOTES);
    if is_quote || REBUILT_SECTIONS.iter().any(|begin| line.starts_with(begin)) {
        return None;
    }
    if is_of_worklog(line) {
        return Some(SectionKind::Worklog);
    }
    if is_of_workflow(line) {
        return Some(SectionKind::Workflow);
    }
    Some(match section {
        SummarySection::UserMessages | SummarySection::Next => return None,
        SummarySection::Concepts => SectionKind::Documentation,
        SummarySection::Files | SummarySection::BriefFiles => SectionKind::Files,
        SummarySection::Errors => SectionKind::Errors,
        SummarySection::Constraints | SummarySection::Decisions => SectionKind::Learnings,
        SummarySection::Pending
        | SummarySection::Current
        | SummarySection::Doing
        | SummarySection::BriefNext => {
            if is_of_state(line) {
                SectionKind::State
            } else if matches!(section, SummarySection::Current | SummarySection::Doing) {
                // The work in progress at that time has been continued since, so it becomes history.
                SectionKind::Worklog
            } else {
                return None;
            }
        }
        SummarySection::Problems if is_learning(line) => SectionKind::Learnings,
        SummarySection::Request | SummarySection::Problems | SummarySection::Done => {
            SectionKind::Results
        }
    })
}

/// Returns true if a line states a rule or the fix of a failure.
fn is_learning(line: &str) -> bool {
    line.starts_with("The user's rule: ") || line.starts_with('`')
}
