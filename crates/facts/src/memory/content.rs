//! The content of a version of session memory: the facts of the ten sections.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};

use palimpsest_types::memory::{MemoryDocument, MemoryText, SectionKind};

use super::fact::MemoryFact;
use super::render::render;
use crate::redact::Redact;

/// The facts of the ten sections, in the order in which they are rendered. Cloning is cheap: copies share the facts
/// and the rendered text.
#[derive(Clone, Default)]
pub struct MemoryContent(Arc<SharedContent>);

#[derive(Default)]
struct SharedContent {
    sections: [Vec<MemoryEntry>; 10],
    text: OnceLock<MemoryText>,
}

/// A fact of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The fact.
    pub fact: MemoryFact,
    /// The version that recorded the fact first. The event of that version contains its author, its time and the
    /// messages that were read. 0 if no version has recorded the fact yet.
    pub version: u64,
}

impl From<MemoryFact> for MemoryEntry {
    fn from(fact: MemoryFact) -> Self {
        Self { fact, version: 0 }
    }
}

impl MemoryContent {
    /// Creates content from the entries of each section. The entries must come from recorded content.
    pub fn from_entries(sections: [Vec<MemoryEntry>; 10]) -> Self {
        Self(Arc::new(SharedContent {
            sections,
            text: OnceLock::new(),
        }))
    }

    /// Creates content from a text without any known fact: every line is verbatim.
    pub fn verbatim(document: &MemoryDocument) -> Self {
        Self::default().aligned(document)
    }

    /// Creates content that is only rendered.
    pub(super) fn unchecked(facts: [Vec<MemoryFact>; 10]) -> Self {
        let entries = |facts: Vec<MemoryFact>| facts.into_iter().map(MemoryEntry::from).collect();
        Self::from_entries(facts.map(entries))
    }

    /// Creates content from new facts.
    pub(super) fn new(sections: RenderedSections) -> Self {
        let RenderedSections { facts, lines } = sections;
        let mut entries = facts.map(|facts| facts.into_iter().map(MemoryEntry::from).collect());
        let mut document = MemoryDocument::template();
        for kind in SectionKind::ALL {
            let body = lines[kind.index()].join("\n");
            document.set(kind, &body);
            // A document escapes lines that would start another section. Such a line cannot stay a fact, because the
            // fact would not render to it. Without a changed line, all entries stay.
            if document.body(kind) != body {
                let entries: &mut Vec<MemoryEntry> = &mut entries[kind.index()];
                *entries = align(entries, &lines[kind.index()], document.body(kind));
            }
        }
        Self::with_text(entries, &document)
    }

    /// Creates content from entries that render to a document.
    fn with_text(sections: [Vec<MemoryEntry>; 10], document: &MemoryDocument) -> Self {
        Self(Arc::new(SharedContent {
            sections,
            text: OnceLock::from(MemoryText::from(document.render())),
        }))
    }

    /// Returns the entries of a section.
    pub fn entries(&self, kind: SectionKind) -> &[MemoryEntry] {
        &self.0.sections[kind.index()]
    }

    /// Returns the facts of a section.
    pub fn facts(&self, kind: SectionKind) -> impl DoubleEndedIterator<Item = &MemoryFact> {
        self.entries(kind).iter().map(|entry| &entry.fact)
    }

    /// Renders the sections.
    pub fn document(&self) -> MemoryDocument {
        // Parsing the text takes less time than rendering the facts again.
        if let Some(text) = self.0.text.get() {
            return MemoryDocument::parse(text);
        }
        let mut document = MemoryDocument::template();
        for kind in SectionKind::ALL {
            document.set(kind, &body(self.facts(kind)));
        }
        document
    }

    /// Returns the text of `summary.md`. It is rendered on first use.
    pub fn text(&self) -> &MemoryText {
        let render = || MemoryText::from(self.document().render());
        self.0.text.get_or_init(render)
    }

    /// Returns the content of a changed document. A line that equals the line of a fact of the same section stays this
    /// fact. Every other line becomes verbatim. Facts without a line are removed.
    #[must_use]
    pub fn aligned(&self, document: &MemoryDocument) -> Self {
        let section = |kind| {
            let rendered = self.facts(kind).map(render).collect::<Vec<_>>();
            align(self.entries(kind), &rendered, document.body(kind))
        };
        Self::with_text(SectionKind::ALL.map(section), document)
    }

    /// Returns the content within the limits of a policy, see [`MemoryDocument::fit`]. Facts whose lines are cut are removed.
    #[must_use]
    pub fn fit(&self, max_section_tokens: u32, max_tokens: u32) -> Self {
        let document = self.document();
        let fitted = document.fit(max_section_tokens, max_tokens).memory;
        self.changed(&document, &fitted)
    }

    /// Returns the content without secrets. The whole text is redacted, because a secret may appear only when several
    /// facts are combined. A line with a secret becomes verbatim.
    #[must_use]
    pub fn redacted(&self, redact: Redact) -> Self {
        let text = self.text();
        let clean = redact(text);
        if *clean == **text {
            return self.clone();
        }
        self.aligned(&MemoryDocument::parse(&clean))
    }

    /// Returns the content as version `number` records it: facts of the previous version keep their versions, and all
    /// others are new.
    #[must_use]
    pub fn recorded(&self, number: u64, previous: &Self) -> Self {
        let sections = SectionKind::ALL.map(|kind| {
            let known = previous.entries(kind).iter();
            let known: HashMap<_, _> = known.map(|entry| (&entry.fact, entry.version)).collect();
            let entries = self.entries(kind).iter().cloned();
            let entries = entries.map(|entry| MemoryEntry {
                version: known.get(&entry.fact).copied().unwrap_or(number),
                ..entry
            });
            entries.collect()
        });
        // The versions are not part of the text.
        Self(Arc::new(SharedContent {
            sections,
            text: self.0.text.clone(),
        }))
    }

    /// Estimates the memory use, in bytes. The rendered text is included.
    pub fn weight_bytes(&self) -> usize {
        // An estimate: an entry of about 120 bytes, its strings, and its line of the text.
        const PER_ENTRY: usize = 384;
        const PER_NAME: usize = 96;
        let entries = || self.0.sections.iter().flatten();
        let names = entries().map(|entry| match &entry.fact {
            MemoryFact::OtherNames(names) => names.names.len(),
            _ => 0,
        });
        entries().count() * PER_ENTRY + names.sum::<usize>() * PER_NAME
    }

    /// Returns the sections whose facts differ.
    pub fn changed_sections(&self, before: &Self) -> Vec<SectionKind> {
        let differs = |kind: &SectionKind| !self.facts(*kind).eq(before.facts(*kind));
        SectionKind::ALL.into_iter().filter(differs).collect()
    }

    fn changed(&self, before: &MemoryDocument, after: &MemoryDocument) -> Self {
        if before == after {
            self.clone()
        } else {
            self.aligned(after)
        }
    }
}

impl PartialEq for MemoryContent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.sections == other.0.sections
    }
}

impl Eq for MemoryContent {}

impl fmt::Debug for MemoryContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0.sections).finish()
    }
}

/// The facts of the ten sections with their text. Rendering is the largest part of an update, so it happens once.
pub(super) struct RenderedSections {
    facts: [Vec<MemoryFact>; 10],
    lines: [Vec<String>; 10],
}

impl RenderedSections {
    /// Renders facts.
    pub(super) fn new(facts: [Vec<MemoryFact>; 10]) -> Self {
        let lines = std::array::from_fn(|at| facts[at].iter().map(render).collect());
        Self { facts, lines }
    }

    /// Returns the facts of a section.
    pub(super) fn facts(&self, kind: SectionKind) -> &[MemoryFact] {
        &self.facts[kind.index()]
    }

    /// Returns the text of all sections.
    pub(super) fn text(&self) -> String {
        let sections = self.lines.iter().map(|lines| lines.join("\n"));
        sections.collect::<Vec<_>>().join("\n")
    }

    /// Adds a paragraph to a section.
    pub(super) fn push(&mut self, kind: SectionKind, fact: MemoryFact) {
        let (facts, lines) = (&mut self.facts[kind.index()], &mut self.lines[kind.index()]);
        if !facts.is_empty() {
            facts.push(MemoryFact::Verbatim("".into()));
            lines.push(String::new());
        }
        lines.push(render(&fact));
        facts.push(fact);
    }

    /// Returns the facts without their text.
    pub(super) fn into_facts(self) -> [Vec<MemoryFact>; 10] {
        self.facts
    }
}

/// Renders the facts of a section.
pub(super) fn body<'a>(facts: impl IntoIterator<Item = &'a MemoryFact>) -> String {
    let lines: Vec<String> = facts.into_iter().map(render).collect();
    lines.join("\n")
}

/// Returns the entries of a changed section. `rendered` contains the text of each entry.
fn align(entries: &[MemoryEntry], rendered: &[String], body: &str) -> Vec<MemoryEntry> {
    let mut unused: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for verbatim in [false, true] {
        // A fact has precedence over an equal verbatim line, which would hide the fact from updates.
        for (at, entry) in entries.iter().enumerate() {
            if matches!(entry.fact, MemoryFact::Verbatim(_)) == verbatim {
                let first = rendered[at].lines().next().unwrap_or_default();
                unused.entry(first).or_default().push_back(at);
            }
        }
    }
    let lines: Vec<&str> = body.lines().collect();
    let mut aligned = Vec::with_capacity(lines.len());
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let candidates = unused.get_mut(line);
        // A request has several lines, and its first line does not identify it.
        let is_next = |found: &usize| {
            let mut rest = lines[at..].iter();
            let mut own = rendered[*found].lines();
            own.all(|line| rest.next() == Some(&line))
        };
        let found = candidates.and_then(|candidates| {
            let position = candidates.iter().position(is_next)?;
            // Each entry is used once, so a second equal line becomes verbatim.
            candidates.remove(position)
        });
        if let Some(found) = found {
            // A blank fact renders to a text without lines, but takes one line of the body.
            at += rendered[found].lines().count().max(1);
            aligned.push(entries[found].clone());
        } else {
            at += 1;
            aligned.push(MemoryFact::Verbatim((*line).into()).into());
        }
    }
    aligned
}
