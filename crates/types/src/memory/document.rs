//! The document itself.

use super::fit::{self, Fitted, is_cut_note};
use super::section::SectionKind;
use super::{parse, placeholder};
use crate::tokens::estimate_text;

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    pub(super) bodies: [String; 10],
}

impl Memory {
    /// The document before anything was written into it.
    pub fn template() -> Self {
        Self::default()
    }

    /// Reads a document, however a person has edited it. Sections are found by their titles; unknown
    /// headings, and text outside of the sections, stay in the body of the nearest one.
    pub fn parse(text: &str) -> Self {
        parse::parse(text)
    }

    /// The document as text. `parse` gives the same document back.
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

    /// The sections that say something, without the guidance for who writes them: for a reader.
    pub fn told(&self) -> String {
        let kinds = SectionKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| self.says_something(*kind));
        let parts = kinds.map(|kind| format!("# {}\n\n{}\n", kind.title(), self.body(kind)));
        parts.collect::<Vec<_>>().join("\n")
    }

    /// What stands in a section.
    pub fn body(&self, kind: SectionKind) -> &str {
        &self.bodies[kind.index()]
    }

    /// Writes a section. Blank lines around the body go, and a line that would begin another section
    /// gets a backslash before it, so that no body can bring headings in.
    pub fn set(&mut self, kind: SectionKind, body: &str) {
        self.bodies[kind.index()] = parse::body(body, kind);
    }

    /// Whether nobody has written anything into it.
    pub fn is_template(&self) -> bool {
        SectionKind::ALL
            .into_iter()
            .all(|kind| !self.says_something(kind))
    }

    /// Whether it can stand in for a conversation: it says what is wanted or where the work stands.
    /// Placeholders say nothing.
    pub fn is_ready(&self) -> bool {
        self.says_something(SectionKind::Task) || self.says_something(SectionKind::State)
    }

    /// Whether a section holds more than placeholders.
    pub fn says_something(&self, kind: SectionKind) -> bool {
        self.body(kind)
            .lines()
            .any(|line| !placeholder::is_placeholder(line))
    }

    /// Whether lines were cut from a section to keep it within its limit.
    pub fn was_cut(&self, kind: SectionKind) -> bool {
        self.body(kind).lines().any(is_cut_note)
    }

    /// The estimated tokens of a section's body.
    pub fn section_tokens(&self, kind: SectionKind) -> u32 {
        match self.body(kind) {
            "" => 0,
            body => estimate_text(body),
        }
    }

    /// The estimated tokens of the whole document.
    pub fn tokens(&self) -> u32 {
        estimate_text(&self.render())
    }

    /// The document within limits: at most `max_section_tokens` a body and `max_tokens` in all.
    ///
    /// Whole lines go, and a note says how many. What goes is a section's own matter: of a worklog
    /// the oldest lines, of the task what stands in the middle. When the whole is too long, the
    /// longest sections give way first. Headings and guidance are never cut, so a `max_tokens` below
    /// theirs gives the empty document.
    #[must_use]
    pub fn fit(&self, max_section_tokens: u32, max_tokens: u32) -> Fitted {
        fit::fit(self, max_section_tokens, max_tokens)
    }
}

/// The sections in which two documents differ.
pub fn changed_sections(before: &Memory, after: &Memory) -> Vec<SectionKind> {
    let differs = |kind: &SectionKind| before.body(*kind) != after.body(*kind);
    SectionKind::ALL.into_iter().filter(differs).collect()
}
