//! The session memory document and its sections.

use super::fit::{self, Fitted, is_cut_note};
use super::section::{Fence, SectionKind, heading};
use super::{parse, placeholder};
use crate::tokens::estimate_text;

/// The session memory document: one body per section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryDocument {
    pub(super) bodies: [String; 10],
}

impl MemoryDocument {
    /// Returns the document without content.
    pub fn template() -> Self {
        Self::default()
    }

    /// Parses a document that a person may have edited. Sections are identified by their titles.
    /// Unknown headings and text outside of sections are kept in the body of the nearest section.
    pub fn parse(text: &str) -> Self {
        parse::parse(text)
    }

    /// Returns true if a text contains the heading of a section outside of code fences. A text without one is parsed too:
    /// all its lines then belong to the first section.
    pub fn has_heading(text: &str) -> bool {
        let mut fence = Fence::default();
        text.lines().any(|line| {
            !fence.take(line) && heading(line).and_then(SectionKind::of_title).is_some()
        })
    }

    /// Renders the document. [`MemoryDocument::parse`] restores the same document from the text.
    pub fn render(&self) -> String {
        let mut out =
            String::with_capacity(1_600 + self.bodies.iter().map(String::len).sum::<usize>());
        for kind in SectionKind::ALL {
            if kind != SectionKind::Title {
                out.push('\n');
            }
            out.push_str("# ");
            out.push_str(kind.title());
            out.push_str("\n_");
            out.push_str(kind.guidance());
            out.push_str("_\n");
            let body = self.body(kind);
            if !body.is_empty() {
                out.push('\n');
                out.push_str(body);
                out.push('\n');
            }
        }
        out
    }

    /// Renders the sections that have content, without the guidance for writers.
    pub fn without_guidance(&self) -> String {
        let kinds = SectionKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| self.has_content(*kind));
        let parts = kinds.map(|kind| format!("# {}\n\n{}\n", kind.title(), self.body(kind)));
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Returns the body of a section.
    pub fn body(&self, kind: SectionKind) -> &str {
        &self.bodies[kind.index()]
    }

    /// Replaces the body of a section. Removes surrounding blank lines. Escapes lines that would
    /// start another section with a backslash.
    pub fn set(&mut self, kind: SectionKind, body: &str) {
        self.bodies[kind.index()] = parse::body(body, kind);
    }

    /// Returns true if no section has content.
    pub fn is_template(&self) -> bool {
        SectionKind::ALL
            .into_iter()
            .all(|kind| !self.has_content(kind))
    }

    /// Returns true if the document can replace a conversation: the task or the current state has
    /// content. Placeholders do not count as content.
    pub fn is_ready(&self) -> bool {
        self.has_content(SectionKind::Task) || self.has_content(SectionKind::State)
    }

    /// Returns true if a section contains more than placeholders.
    pub fn has_content(&self, kind: SectionKind) -> bool {
        self.body(kind)
            .lines()
            .any(|line| !placeholder::is_placeholder(line))
    }

    /// Returns true if lines were cut from a section to keep it within its limit.
    pub fn is_truncated(&self, kind: SectionKind) -> bool {
        self.body(kind).lines().any(is_cut_note)
    }

    /// Returns the estimated tokens of a section's body.
    pub fn section_tokens(&self, kind: SectionKind) -> u32 {
        match self.body(kind) {
            "" => 0,
            body => estimate_text(body),
        }
    }

    /// Returns the estimated tokens of the rendered document.
    pub fn tokens(&self) -> u32 {
        estimate_text(&self.render())
    }

    /// Reduces the document to its limits: `max_section_tokens` per body and `max_tokens` in total.
    ///
    /// Whole lines are dropped, and a note states their number. Each section has its own retention
    /// rule: a worklog drops the oldest lines, the task drops the middle. If the total is too large,
    /// the longest sections shrink first. Headings and guidance are never cut. A `max_tokens` below
    /// their size therefore gives the empty document.
    #[must_use]
    pub fn fit(&self, max_section_tokens: u32, max_tokens: u32) -> Fitted {
        fit::fit(self, max_section_tokens, max_tokens)
    }
}

/// Returns the sections in which two documents differ.
pub fn changed_sections(before: &MemoryDocument, after: &MemoryDocument) -> Vec<SectionKind> {
    let differs = |kind: &SectionKind| before.body(*kind) != after.body(*kind);
    SectionKind::ALL.into_iter().filter(differs).collect()
}
