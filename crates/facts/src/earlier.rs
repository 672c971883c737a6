//! What a summary that stands in a view says, taken apart again, so that the next one can build upon it.
//!
//! Its sections are others than the memory's, and hold lines of several of them. Lines in a form of ours go
//! back to where they came from; a model's words go to the section that keeps what they are about. What
//! the next summary takes from the session itself, as the user's messages, is left out.

use palimpsest_types::memory::{Memory, SectionKind, is_cut_note};
use palimpsest_types::policy::SummaryStyle;
use palimpsest_types::summary::SummarySection;

use super::lines::join;
use super::memory::{is_of_state, is_of_workflow, is_of_worklog};
use super::summary::{KINDS, PROGRAMS};

/// The tags of the frame around a summary.
const OPEN: &str = "<conversation-summary>";
const CLOSE: &str = "</conversation-summary>";

/// A text without any section tells what was done: so much of it is kept.
const MIN_FREE_CHARS: usize = 200;

/// What the sections of this module's summaries begin with that is made anew each time.
const MADE_ANEW: [&str; 11] = [
    KINDS,
    PROGRAMS,
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
/// The marks of the user's messages, and of the note that some are left out.
const QUOTES: [char; 2] = ['>', '('];

/// The memory of which a summary was made, as far as it says.
pub fn earlier(text: &str) -> Memory {
    let inner = text.split_once(OPEN).map_or(text, |(_, inner)| inner);
    let inner = inner.rsplit_once(CLOSE).map_or(inner, |(inner, _)| inner);
    for style in [SummaryStyle::NineSections, SummaryStyle::Brief] {
        let sections = sections(inner, style);
        if !sections.is_empty() {
            return sorted(&sections);
        }
    }
    let mut memory = Memory::parse(inner);
    // What belongs to no section stands in the first.
    let title = memory.body(SectionKind::Title).to_owned();
    if title.chars().nth(MIN_FREE_CHARS).is_some() {
        memory.set(SectionKind::Title, "");
        let results = join([title, memory.body(SectionKind::Results).to_owned()]);
        memory.set(SectionKind::Results, &results);
    }
    memory
}

/// The sections of a summary as it is rendered; what stands before the first belongs to none.
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

fn sorted(sections: &[(SummarySection, Vec<&str>)]) -> Memory {
    let mut bodies: Vec<(SectionKind, Vec<&str>)> = SectionKind::ALL
        .into_iter()
        .map(|kind| (kind, Vec::new()))
        .collect();
    for (section, lines) in sections {
        let mut kind = None;
        let mut notes = Vec::new();
        for line in lines {
            // What was cut stood before what is left of it.
            if is_cut_note(line) {
                notes.push(*line);
                continue;
            }
            // A blank line goes where the one before it went.
            if !line.trim().is_empty() {
                kind = place(*section, line);
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

/// Where a line of a section belongs; nowhere when it is made anew or speaks of what was next.
fn place(section: SummarySection, line: &str) -> Option<SectionKind> {
    let quotes = matches!(
        section,
        SummarySection::Request | SummarySection::Constraints
    );
    let is_quote = quotes && line.starts_with(QUOTES);
    if is_quote || MADE_ANEW.iter().any(|begin| line.starts_with(begin)) {
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
                // What was under way then has been done since, or is told by what follows.
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

/// Whether a line tells of a rule, or what made something pass.
fn is_learning(line: &str) -> bool {
    line.starts_with("The user's rule: ") || line.starts_with('`')
}
