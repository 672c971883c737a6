//! The names in the section of files that no other line contains.

use palimpsest_types::memory::SectionKind;

use super::content::body;
use super::fact::{MemoryFact, OtherNames};
use super::files::root_of;
use super::section::{self, join};
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
pub(super) fn add(sections: &mut [Vec<MemoryFact>; 10], known: Option<&OtherNames>, facts: &Facts) {
    let text: Vec<String> = sections.iter().map(body).collect();
    let text = text.join("\n");
    let rest = MemoryRest {
        text: &text,
        root: root_of(&sections[SectionKind::Files.index()]).or(facts.root()),
    };
    let names = names::update(known, facts.names(), rest);
    push(&mut sections[SectionKind::Files.index()], names);
}

/// Adds the names to the facts of the section, if any of them is shown.
pub(super) fn push(files: &mut Vec<MemoryFact>, names: OtherNames) {
    if names.names.iter().any(|known| known.is_shown) {
        let names = MemoryFact::OtherNames(names);
        *files = join([std::mem::take(files), vec![names]]);
    }
}
