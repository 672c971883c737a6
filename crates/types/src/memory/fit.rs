//! Reduction of session memory to its token limits by dropping whole lines. A note states the number
//! of dropped lines.

use super::document::{MemoryDocument, changed_sections};
use super::section::LineRetention;
use super::{SectionKind, parse};
use crate::tokens::estimate_text;

/// The lines that were dropped from a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionCut {
    /// The section.
    pub section: SectionKind,
    /// The number of dropped lines that had content.
    pub lines: usize,
}

/// A document that is within its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The document.
    pub memory: MemoryDocument,
    /// The dropped lines by section.
    pub cuts: Vec<SectionCut>,
}

const NOTE_BEGIN: &str = "_(";
const NOTE_END: &str = " lines were cut here to keep this section within its limit.)_";

/// Returns true if a line is the note of an earlier cut.
pub fn is_cut_note(line: &str) -> bool {
    cut_before(line).is_some()
}

fn cut_before(line: &str) -> Option<usize> {
    let number = line
        .trim()
        .strip_prefix(NOTE_BEGIN)?
        .strip_suffix(NOTE_END)?;
    number.parse().ok()
}

pub(super) fn fit(memory: &MemoryDocument, max_section_tokens: u32, max_tokens: u32) -> Fitted {
    let mut fitted = with_section_cap(memory, max_section_tokens);
    if fitted.memory.tokens() > max_tokens {
        // The longest sections shrink first: a binary search finds the largest common cap with which
        // all sections fit.
        let sections = fitted.memory.clone();
        // The document exceeds the total with the cap of the policy, so that cap is known to fail.
        let (mut fits, mut fails) = (0, max_section_tokens);
        // If not even one token per section fits, the result is the empty document.
        fitted = with_section_cap(&sections, 0);
        while fails - fits > 1 {
            let cap = fits + (fails - fits) / 2;
            let tried = with_section_cap(&sections, cap);
            if tried.memory.tokens() <= max_tokens {
                (fits, fitted) = (cap, tried);
            } else {
                fails = cap;
            }
        }
    }
    fitted.cuts = cuts(memory, &fitted.memory);
    fitted
}

fn cuts(before: &MemoryDocument, after: &MemoryDocument) -> Vec<SectionCut> {
    let count = |memory: &MemoryDocument, kind| {
        let lines = memory.body(kind).lines();
        lines.filter(|line| is_content_line(line)).count()
    };
    let changed = changed_sections(before, after).into_iter();
    let cut = changed.map(|section| SectionCut {
        section,
        lines: count(before, section).saturating_sub(count(after, section)),
    });
    cut.collect()
}

fn with_section_cap(memory: &MemoryDocument, cap: u32) -> Fitted {
    let mut fitted = memory.clone();
    for kind in SectionKind::ALL {
        if memory.section_tokens(kind) > cap {
            fitted.bodies[kind.index()] = cut(memory.body(kind), kind, cap);
        }
    }
    Fitted {
        memory: fitted,
        cuts: Vec::new(),
    }
}

/// Returns true if the loss of a line is counted: the line is not blank and not a note.
fn is_content_line(line: &str) -> bool {
    !line.trim().is_empty() && !is_cut_note(line)
}

/// Cuts the body to `cap` tokens. Keeps as many lines as fit, and a note replaces the others.
fn cut(body: &str, kind: SectionKind, cap: u32) -> String {
    // Counts of earlier notes are added to the new note, so repeated cuts report the total.
    let before: usize = body.lines().filter_map(cut_before).sum();
    let lines: Vec<&str> = body.lines().filter(|line| !is_cut_note(line)).collect();
    let with = |kept: usize| parse::body(&kept_lines(&lines, kept, kind.retention(), before), kind);
    let fits = |text: &str| text.is_empty() || estimate_text(text) <= cap;
    let kept = largest(lines.len(), |kept| fits(&with(kept)));
    if let Some(kept) = kept.filter(|kept| *kept > 0) {
        return with(kept);
    }
    // No complete line fits, so the most important line is shortened.
    let has_content = |line: &&&str| is_content_line(line);
    let line = match kind.retention() {
        LineRetention::Tail => lines.iter().rfind(has_content),
        LineRetention::Head | LineRetention::Ends => lines.iter().find(has_content),
    };
    let line = line.copied().unwrap_or_default();
    // The shortened line stays, so the note counts the other lines only.
    let others = lines
        .iter()
        .filter(|line| is_content_line(line))
        .count()
        .saturating_sub(1)
        + before;
    let with = |chars: usize| {
        let begin: String = line.chars().take(chars).collect();
        let note = if others > 0 {
            format!("\n{}", note(others))
        } else {
            String::new()
        };
        parse::body(&format!("{} …{note}", begin.trim_end()), kind)
    };
    match largest(line.chars().count(), |chars| fits(&with(chars))) {
        Some(chars) if chars > 0 => with(chars),
        _ => String::new(),
    }
}

fn kept_lines(lines: &[&str], kept: usize, keep: LineRetention, before: usize) -> String {
    let head = match keep {
        LineRetention::Head => kept,
        LineRetention::Tail => 0,
        // Of an odd number of lines, the beginning gets one more than the end.
        LineRetention::Ends => kept - kept / 2,
    };
    let (first, rest) = lines.split_at(head);
    let (gone, last) = rest.split_at(rest.len() - (kept - head));
    let gone = gone.iter().filter(|line| is_content_line(line)).count() + before;
    let note = (gone > 0).then(|| note(gone));
    let all = first
        .iter()
        .copied()
        .chain(note.as_deref())
        .chain(last.iter().copied());
    all.collect::<Vec<_>>().join("\n")
}

fn note(lines: usize) -> String {
    format!("{NOTE_BEGIN}{lines}{NOTE_END}")
}

/// Returns the largest number up to `most` for which `fits` is true. Requires that `fits` is
/// monotonic.
fn largest(most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    if !fits(0) {
        return None;
    }
    // Invariant: `good` fits. `bad` does not fit or exceeds the maximum.
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(good)
}
