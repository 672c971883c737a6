//! The stored form of session memory: the text and a lazily computed outline of its sections.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};

use super::SectionKind;
use super::document::MemoryDocument;
use crate::tokens::estimate_text;

/// The text of a session memory document. Cloning is cheap: copies share the text.
#[derive(Clone)]
pub struct MemoryText(Arc<SharedText>);

struct SharedText {
    text: Box<str>,
    outline: OnceLock<Outline>,
}

/// The results of parsing a text, computed on first use.
#[derive(Debug)]
struct Outline {
    tokens: u32,
    sha256: [u8; 32],
    is_ready: bool,
    sections: [ParsedSection; 10],
}

#[derive(Debug)]
struct ParsedSection {
    body: SectionBody,
    tokens: u32,
    was_cut: bool,
}

/// The body of a section. Usually a range of the text.
#[derive(Debug)]
enum SectionBody {
    InText(Range<usize>),
    Changed(Box<str>),
}

/// A section of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionView<'a> {
    /// The body of the section.
    pub body: &'a str,
    /// The estimated tokens of the body.
    pub tokens: u32,
    /// True if lines were cut to keep the section within its limit.
    pub was_cut: bool,
}

impl MemoryText {
    /// Returns the estimated tokens of the whole text.
    pub fn tokens(&self) -> u32 {
        self.outline().tokens
    }

    /// Returns the SHA-256 digest of the whole text.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.outline().sha256
    }

    /// Returns true if the document is usable in place of a conversation. See [`MemoryDocument::is_ready`].
    pub fn is_ready(&self) -> bool {
        self.outline().is_ready
    }

    /// Returns a section.
    pub fn section(&self, kind: SectionKind) -> SectionView<'_> {
        let found = &self.outline().sections[kind.index()];
        SectionView {
            body: match &found.body {
                SectionBody::InText(range) => &self[range.clone()],
                SectionBody::Changed(body) => body,
            },
            tokens: found.tokens,
            was_cut: found.was_cut,
        }
    }

    fn outline(&self) -> &Outline {
        self.0.outline.get_or_init(|| Outline::of(&self.0.text))
    }
}

impl Outline {
    fn of(text: &str) -> Self {
        let memory = MemoryDocument::parse(text);
        let mut from = 0;
        // Sections are searched in document order. A body that normalization changed is not found
        // and is stored as a copy.
        let sections = SectionKind::ALL.map(|kind| {
            let body = memory.body(kind);
            // A match before the section serves as well, because only the text of the range is used.
            let found = text[from..].find(body).map(|at| from + at);
            ParsedSection {
                body: match found {
                    Some(at) => {
                        from = at + body.len();
                        SectionBody::InText(at..from)
                    }
                    None => SectionBody::Changed(body.into()),
                },
                tokens: memory.section_tokens(kind),
                was_cut: memory.is_truncated(kind),
            }
        });
        Self {
            tokens: estimate_text(text),
            sha256: Sha256::digest(text.as_bytes()).into(),
            is_ready: memory.is_ready(),
            sections,
        }
    }
}

impl Deref for MemoryText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl<T: Into<Box<str>>> From<T> for MemoryText {
    fn from(text: T) -> Self {
        Self(Arc::new(SharedText {
            text: text.into(),
            outline: OnceLock::new(),
        }))
    }
}

impl PartialEq for MemoryText {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for MemoryText {}

impl fmt::Debug for MemoryText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outline_equals_the_parsed_text() {
        let mut memory = MemoryDocument::template();
        memory.set(SectionKind::Task, "Make it so.\n# Worklog\nand then?");
        memory.set(SectionKind::Worklog, "Made it so.");
        let written = memory.render();
        // The parser drops the carriage return, so the body is not a range of the text.
        let edited = written.replace("Made it so.", "Made it so.\r\nTwice.");
        for text in [written, edited, String::new(), "no section at all".into()] {
            let memory = MemoryDocument::parse(&text);
            let kept = MemoryText::from(text);
            assert_eq!(kept.is_ready(), memory.is_ready());
            assert_eq!(kept.tokens(), estimate_text(&kept));
            for kind in SectionKind::ALL {
                let section = kept.section(kind);
                assert_eq!(section.body, memory.body(kind));
                assert_eq!(section.tokens, memory.section_tokens(kind));
            }
        }
    }
}
