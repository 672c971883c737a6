//! Conversion of an existing summary into session memory, so that the next summary can build on it.
//!
//! A summary is prose, whoever wrote it. Its lines become verbatim lines of the section with the
//! matching subject. Sections that the next summary derives from the session itself, such as user
//! messages, are omitted.

use palimpsest_types::memory::{MemoryDocument, SectionKind};
use palimpsest_types::policy::SummaryStyle;
use palimpsest_types::summary::SummarySection;

use super::memory::MemoryContent;
use super::summary::{FILE_KINDS_PREFIX, PROGRAMS_PREFIX};
use super::text::paragraphs;

/// The tags of the frame around a summary.
const OPENING_TAG: &str = "<conversation-summary>";
const CLOSING_TAG: &str = "</conversation-summary>";

/// The minimum length, in characters, at which a text without sections is kept as results.
const MIN_UNSECTIONED_CHARS: usize = 200;
/// The maximum size of a section, in tokens. Half of a section of the next summary is left for new facts.
const MAX_SECTION_TOKENS: u32 = 1_200;

/// The writer of an earlier summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryWriter {
    /// The service, from facts. The next summary writes most of its sections anew.
    Service,
    /// A model, a person or another program.
    Other,
}

/// Returns the session memory that corresponds to a summary. All of its lines are verbatim.
pub fn parse_earlier_summary(text: &str, writer: SummaryWriter) -> MemoryContent {
    let memory = sections_of_memory(text, writer);
    MemoryContent::verbatim(&memory.fit(MAX_SECTION_TOKENS, u32::MAX).memory)
}

fn sections_of_memory(text: &str, writer: SummaryWriter) -> MemoryDocument {
    let inner = text
        .split_once(OPENING_TAG)
        .map_or(text, |(_, inner)| inner);
    let inner = inner
        .rsplit_once(CLOSING_TAG)
        .map_or(inner, |(inner, _)| inner);
    // A summary does not state its style, so its titles decide.
    for style in [SummaryStyle::NineSections, SummaryStyle::Brief] {
        let sections = sections(inner, style);
        if !sections.is_empty() {
            return sort_into_memory(&sections, writer);
        }
    }
    let mut memory = MemoryDocument::parse(inner);
    // The parser places text outside of sections into the title section.
    let title = memory.body(SectionKind::Title).to_owned();
    if title.chars().nth(MIN_UNSECTIONED_CHARS).is_some() {
        memory.set(SectionKind::Title, "");
        let results = paragraphs([title, memory.body(SectionKind::Results).to_owned()]);
        memory.set(SectionKind::Results, &results);
    }
    memory
}

/// Splits a rendered summary into its sections. Text before the first section is ignored.
fn sections(text: &str, style: SummaryStyle) -> Vec<(SummarySection, Vec<&str>)> {
    // A rendered title contains the number of its section: `## 3. Files and Code Sections`.
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

fn sort_into_memory(
    sections: &[(SummarySection, Vec<&str>)],
    writer: SummaryWriter,
) -> MemoryDocument {
    let mut memory = MemoryDocument::template();
    for (section, lines) in sections {
        let Some(kind) = target_section(*section, writer) else {
            continue;
        };
        // The lines after a line decide if it introduces a quote.
        let kept = (0..lines.len()).filter(|at| !is_made_anew(*section, &lines[*at..]));
        let kept: Vec<&str> = kept.map(|at| lines[at]).collect();
        // Several sections can belong to the same section of session memory.
        let body = paragraphs([memory.body(kind).to_owned(), kept.join("\n")]);
        memory.set(kind, &body);
    }
    memory
}

/// Returns true if the next summary writes the first of these lines anew.
fn is_made_anew(section: SummarySection, lines: &[&str]) -> bool {
    let is_quote = |line: &str| line.starts_with('>');
    let line = lines[0];
    match section {
        SummarySection::Concepts => {
            line.starts_with(FILE_KINDS_PREFIX) || line.starts_with(PROGRAMS_PREFIX)
        }
        // Quotes are user messages. A line before a quote introduces it.
        SummarySection::Request | SummarySection::Constraints => {
            let mut after = lines[1..].iter().filter(|line| !line.trim().is_empty());
            let introduces = line.ends_with(':') && after.next().is_some_and(|line| is_quote(line));
            is_quote(line) || introduces
        }
        _ => false,
    }
}

/// Returns the section for the lines of a summary's section. Returns `None` if the next summary
/// writes the section anew.
fn target_section(section: SummarySection, writer: SummaryWriter) -> Option<SectionKind> {
    let is_ours = writer == SummaryWriter::Service;
    Some(match section {
        SummarySection::UserMessages | SummarySection::Next | SummarySection::BriefNext => {
            return None;
        }
        SummarySection::Request
        | SummarySection::Constraints
        | SummarySection::Current
        | SummarySection::Doing
            if is_ours =>
        {
            return None;
        }
        // The work items of the service stay until the summary after the next one.
        SummarySection::Pending if is_ours => SectionKind::State,
        SummarySection::Pending => return None,
        SummarySection::Concepts => SectionKind::Documentation,
        SummarySection::Files | SummarySection::BriefFiles => SectionKind::Files,
        SummarySection::Errors => SectionKind::Errors,
        SummarySection::Constraints | SummarySection::Decisions => SectionKind::Learnings,
        // The work in progress at that time has been continued since, so it becomes history.
        SummarySection::Current | SummarySection::Doing => SectionKind::Worklog,
        SummarySection::Request | SummarySection::Problems | SummarySection::Done => {
            SectionKind::Results
        }
    })
}
