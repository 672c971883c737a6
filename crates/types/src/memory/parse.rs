//! Parser of the session memory document. It accepts any edit by a person.

use super::SectionKind;
use super::document::MemoryDocument;
use super::section::{Fence, heading};

/// Assigns every line of a document to a section. Text outside of sections goes to the nearest one,
/// so that no edit is lost.
pub(super) fn parse(text: &str) -> MemoryDocument {
    let lines: Vec<&str> = text.lines().collect();
    let mut bodies: [Vec<&str>; 10] = Default::default();
    let mut preamble = Vec::new();
    let mut current = None;
    let mut fence = Fence::default();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let in_fence = fence.take(line);
        // A heading with its guidance line is certain even inside a fence; without it a fenced
        // heading is content.
        if let Some((kind, guided)) = section_at(&lines, at)
            && (guided || !in_fence)
        {
            // The fence is reset, so that an unclosed fence does not absorb the following sections.
            fence = Fence::default();
            if current.is_none() {
                bodies[kind.index()].append(&mut preamble);
            }
            // A repeated section extends the earlier one with the same title.
            current = Some(kind);
            at += 1;
            if guided {
                at += lines[at..]
                    .iter()
                    .take_while(|l| l.trim().is_empty())
                    .count()
                    + 1;
            }
            continue;
        }
        match current {
            Some(kind) => bodies[kind.index()].push(line),
            None => preamble.push(*line),
        }
        at += 1;
    }
    // A text without a heading belongs to the title section.
    bodies[0].append(&mut preamble);
    let mut memory = MemoryDocument::default();
    for (kind, lines) in SectionKind::ALL.into_iter().zip(bodies) {
        memory.set(kind, &lines.join("\n"));
    }
    memory
}

/// Returns the section that starts in a line, and true if its guidance follows. The guidance makes
/// the match certain.
fn section_at(lines: &[&str], at: usize) -> Option<(SectionKind, bool)> {
    let kind = SectionKind::of_title(heading(lines[at])?)?;
    let next = lines[at + 1..].iter().find(|line| !line.trim().is_empty());
    Some((kind, next.is_some_and(|line| is_guidance(line, kind))))
}

/// Returns true if a line is the guidance of a section, with or without italics.
pub(super) fn is_guidance(line: &str, kind: SectionKind) -> bool {
    line.trim().trim_matches(['_', '*']) == kind.guidance()
}

/// Normalizes a body so that it survives rendering and parsing. Removes surrounding blank lines and
/// escapes lines that would start another section.
pub(super) fn body(text: &str, kind: SectionKind) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .collect();
    let mut out = String::with_capacity(text.len());
    let mut fence = Fence::default();
    for (at, line) in lines.iter().enumerate() {
        let in_fence = fence.take(line);
        // Rendering adds the guidance again, so it is no part of the body.
        if at_start(&out) && (line.trim().is_empty() || is_guidance(line, kind)) {
            continue;
        }
        if let Some((_, guided)) = section_at(&lines, at)
            && (guided || !in_fence)
        {
            // A backslash turns a heading into ordinary text.
            let marks = line.len() - line.trim_start().len();
            out.push_str(&line[..marks]);
            out.push('\\');
            out.push_str(&line[marks..]);
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

fn at_start(out: &str) -> bool {
    out.is_empty()
}
