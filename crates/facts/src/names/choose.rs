//! The names that session memory remembers and shows.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::braces::{NameGroups, expand};
use super::scan::{is_named, scan};
use super::{Names, RankedName};
use crate::memory::fact::{KnownName, OtherNames};
use crate::paths::relative_path;

/// The length in characters up to which names of equal rank are equally probable to be shown. Each further character
/// counts like a message, because a long name takes the space of several short ones.
const SHORT_NAME: usize = 30;
/// The maximum number of names that session memory remembers, including those that it does not show.
pub(super) const MAX_REMEMBERED: usize = 160;
/// The maximum length of all shown names, in characters.
pub(super) const MAX_SHOWN_CHARS: usize = 1_500;

/// The rest of the memory to which names are added.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryRest<'a> {
    /// The text. A name that it contains is remembered and not shown.
    pub text: &'a str,
    /// The directory to which paths are relative.
    pub root: Option<&'a str>,
}

/// Returns the names after an update with those of new messages.
#[must_use]
pub fn update(previous: Option<&OtherNames>, new: &Names, rest: MemoryRest<'_>) -> OtherNames {
    let before = previous.map_or(0, |previous| previous.messages);
    let known = previous.into_iter().flat_map(|previous| &previous.names);
    let known = known.map(|known| (&*known.name, known.kind, known.rank));
    // The numbers of new messages begin at 1. Added to the number of earlier messages, they continue the order of
    // ranks.
    let new_names = new.ranked.iter();
    let new_names =
        new_names.map(|(name, new)| (&**name, new.kind, before.saturating_add(new.rank)));
    let mut names: HashMap<&str, RankedName> = HashMap::new();
    for (name, kind, rank) in known.chain(new_names) {
        let is_root = rest.root.is_some_and(|root| name == root);
        // A name that was recorded before the root was known is absolute.
        let name = relative_path(name, rest.root);
        if is_root || name.is_empty() {
            continue;
        }
        let known = names.entry(name).or_insert(RankedName { kind, rank });
        *known = known.with(kind, rank);
    }
    let mut names: Vec<(&str, RankedName)> = names.into_iter().collect();
    let order = |(name, ranked): &(&'_ str, RankedName)| Reverse(priority(name, *ranked));
    // The name decides between equal priorities, because the order of the hash map is random.
    let compare =
        |a: &(&str, RankedName), b: &(&str, RankedName)| (order(a), a.0).cmp(&(order(b), b.0));
    // Thousands of names are new in an update, and only the remembered ones need an order.
    if names.len() > MAX_REMEMBERED {
        names.select_nth_unstable_by(MAX_REMEMBERED, compare);
        names.truncate(MAX_REMEMBERED);
    }
    names.sort_unstable_by(compare);
    let names = names.into_iter();
    let mut names: Vec<KnownName> = names
        .map(|(name, RankedName { kind, rank })| KnownName {
            name: name.into(),
            kind,
            rank,
            is_shown: false,
        })
        .collect();
    show(&mut names, rest, MAX_SHOWN_CHARS);
    OtherNames {
        names,
        messages: before.saturating_add(new.messages),
    }
}

/// Marks the names that the list shows: those that no other text contains, as far as they have space.
pub(crate) fn show(names: &mut [KnownName], rest: MemoryRest<'_>, max_chars: usize) {
    let expanded = expand(rest.text);
    let text = expanded.as_deref().unwrap_or(rest.text);
    let mut contained = HashSet::new();
    scan(text, |_, name| {
        contained.extend(ends(relative_path(name, rest.root)));
    });
    let mut groups = NameGroups::default();
    let mut shown: Vec<&str> = Vec::new();
    let mut left = max_chars;
    for known in names {
        let name = &*known.name;
        // A scan of the text does not find folders, and files without one.
        let is_contained = contained.contains(name)
            || !is_found_by_scan(name)
                && (is_named(text, name) || shown.iter().any(|other| is_in(other, name)));
        known.is_shown = false;
        if is_contained {
            continue;
        }
        let place = groups.place(name);
        // A name without space is skipped, because a shorter one further below may fit.
        if place.chars <= left {
            known.is_shown = true;
            left -= place.chars;
            groups.push(name, place);
            shown.push(name);
            contained.extend(ends(name));
        }
    }
}

/// Returns a name, and the ends of a path at its slashes. Code and commands often name a file by such an end, which needs
/// no place beside the whole path.
fn ends(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('/').map(|(at, _)| &name[at + 1..]);
    // A file name alone can be another file.
    std::iter::once(name).chain(ends.filter(|end| end.contains('/')))
}

fn is_found_by_scan(name: &str) -> bool {
    let mut is_found = false;
    scan(name, |_, found| is_found |= found == name);
    is_found
}

/// Returns true if a path is below a folder.
fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the order in which names are shown: the rank, lowered by the length of the name.
fn priority(name: &str, ranked: RankedName) -> u32 {
    let longer = name.len().saturating_sub(SHORT_NAME);
    ranked
        .rank
        .saturating_sub(u32::try_from(longer).unwrap_or(u32::MAX))
}
