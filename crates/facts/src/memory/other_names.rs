//! The names in the section of files that no other line contains.

use palimpsest_types::memory::SectionKind;

use super::content::RenderedSections;
use super::fact::{MemoryFact, OtherNames};
use super::files::root_of;
use super::section;
use crate::facts::Facts;
use crate::names::{self, MemoryRest};

/// Removes the names from the facts of the section.
pub(super) fn take(facts: Vec<MemoryFact>) -> (Option<OtherNames>, Vec<MemoryFact>) {
    let (mut names, rest) = section::take(facts, |fact| match fact {
        MemoryFact::OtherNames(names) => Ok(names),
        fact => Err(fact),
    });
    (names.pop(), rest)
}

/// Adds the names of earlier and new messages to the sections, without those that the sections contain.
pub(super) fn add(sections: &mut RenderedSections, known: Option<&OtherNames>, facts: &Facts) {
    let text = sections.text();
    let rest = MemoryRest {
        text: &text,
        root: root_of(sections.facts(SectionKind::Files)).or(facts.root()),
    };
    let names = names::update(known, facts.names(), rest);
    push(sections, names);
}

/// Adds the names to the section of files, if any of them is shown.
pub(super) fn push(sections: &mut RenderedSections, names: OtherNames) {
    if names.names.iter().any(|known| known.is_shown) {
        sections.push(SectionKind::Files, MemoryFact::OtherNames(names));
    }
}
