//! Helpers for the facts of a section while an update changes them.

use super::fact::MemoryFact;

/// The maximum number of names in a fact that lists names.
const MAX_NAMES: usize = 20;

/// Removes the facts that `pick` accepts. Returns them and the remaining facts.
pub(super) fn take<T>(
    facts: Vec<MemoryFact>,
    pick: impl Fn(MemoryFact) -> Result<T, MemoryFact>,
) -> (Vec<T>, Vec<MemoryFact>) {
    let (mut taken, mut rest) = (Vec::new(), Vec::new());
    // Blank lines next to removed facts are dropped, because they would accumulate.
    let mut gap = true;
    for fact in facts {
        match pick(fact) {
            Ok(found) => {
                taken.push(found);
                gap = true;
            }
            Err(fact) if gap && is_blank(&fact) => {}
            Err(fact) => {
                rest.push(fact);
                gap = false;
            }
        }
    }
    while rest.last().is_some_and(is_blank) {
        rest.pop();
    }
    (taken, rest)
}

/// Returns true for a verbatim line without content.
pub(super) fn is_blank(fact: &MemoryFact) -> bool {
    matches!(fact, MemoryFact::Verbatim(line) if line.trim().is_empty())
}

/// Joins paragraphs with blank lines. Skips empty paragraphs.
pub(super) fn join(paragraphs: impl IntoIterator<Item = Vec<MemoryFact>>) -> Vec<MemoryFact> {
    let mut joined: Vec<MemoryFact> = Vec::new();
    for paragraph in paragraphs {
        if paragraph.iter().all(is_blank) {
            continue;
        }
        if !joined.is_empty() {
            joined.push(MemoryFact::Verbatim("".into()));
        }
        joined.extend(paragraph);
    }
    joined
}

/// Splits names into facts of at most 20 names.
pub(super) fn listed(
    names: &[Box<str>],
    fact: impl Fn(Vec<Box<str>>) -> MemoryFact,
) -> Vec<MemoryFact> {
    let lists = names.chunks(MAX_NAMES);
    lists.map(|names| fact(names.to_vec())).collect()
}
