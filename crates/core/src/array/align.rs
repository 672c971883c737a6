//! Compares the elements of an array with the known links.
//!
//! Elements without content are left out of the comparison, because a caller may leave them out.

use super::links::{Element, Link, LinkKind, parts};
use crate::message::{Digest, Role};

/// The elements at the start that match the links at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Prefix {
    /// Number of links before the first one that does not match.
    pub(super) links: usize,
    /// Number of elements before the first one that does not match.
    pub(super) elements: usize,
    /// True if no link with content is left.
    pub(super) is_whole: bool,
    /// True if a response is among the matches.
    pub(super) has_response: bool,
}

/// The elements at the start that match the links at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overlap {
    /// The first of these links.
    pub(super) from: usize,
    /// Number of elements up to the last match.
    pub(super) elements: usize,
    /// Number of matches.
    pub(super) matches: usize,
    /// True if a response is among the matches.
    pub(super) has_response: bool,
}

/// Finds the longest common start.
pub(super) fn prefix(links: &[Link], elements: &[Element]) -> Prefix {
    let mut found = Prefix::default();
    let mut known = with_content(links);
    for (at, element) in given_content(elements) {
        match known.next() {
            Some((link, same)) if same.digest == element.key() => {
                found.links = link + 1;
                found.elements = at + 1;
                found.has_response |= same.role == Role::Assistant;
            }
            _ => break,
        }
    }
    // The further messages of the last matched element have no element of their own.
    if found.links > 0 {
        found.links += parts(&links[found.links..]);
    }
    let (empty_links, empty_elements) =
        repeated(&links[found.links..], &elements[found.elements..]);
    found.links += empty_links;
    found.elements += empty_elements;
    found.is_whole = links[found.links..].iter().all(Link::is_skipped);
    found
}

/// Returns the places of the first link and of the first element with content after the longest common start.
pub(super) fn first_difference(links: &[Link], elements: &[Element]) -> (usize, usize) {
    let same = prefix(links, elements);
    let skipped = links[same.links..].iter();
    let skipped = skipped.take_while(|link| link.is_skipped()).count();
    let optional = elements[same.elements..].iter();
    let optional = optional.take_while(|element| element.digests.is_optional());
    (same.links + skipped, same.elements + optional.count())
}

/// Finds the longest start of the elements that equals the end of the links.
pub(super) fn overlap(links: &[Link], elements: &[Element]) -> Option<Overlap> {
    let known: Vec<_> = with_content(links).collect();
    // A start that is longer than the links cannot equal their end.
    let given: Vec<_> = given_content(elements).take(known.len()).collect();
    let pattern: Vec<Digest> = given.iter().map(|(_, element)| element.key()).collect();
    let matches = longest_border(&pattern, known.iter().map(|(_, link)| link.digest));
    let tail = &known[known.len() - matches..];
    // Without a match, the tail is empty and the function ends here. Below this line, `matches` is at least 1.
    let (from, last) = (tail.first()?.0, tail.last()?.0);
    let elements_matched = given[matches - 1].0 + 1;
    let after = last + 1 + parts(&links[last + 1..]);
    Some(Overlap {
        from,
        elements: elements_matched + repeated(&links[after..], &elements[elements_matched..]).1,
        matches,
        has_response: tail.iter().any(|(_, link)| link.role == Role::Assistant),
    })
}

fn with_content(links: &[Link]) -> impl Iterator<Item = (usize, &Link)> {
    links
        .iter()
        .enumerate()
        .filter(|(_, link)| !link.is_skipped())
}

fn given_content(elements: &[Element]) -> impl Iterator<Item = (usize, &Element)> {
    let all = elements.iter().enumerate();
    all.filter(|(_, element)| !element.digests.is_optional())
}

/// Returns the number of links and of elements without content after a match, up to the last element that both have.
/// These elements must not be appended again.
pub(super) fn repeated(links: &[Link], elements: &[Element]) -> (usize, usize) {
    let mut known = links
        .iter()
        .take_while(|link| link.kind == LinkKind::Empty)
        .enumerate();
    let mut found = (0, 0);
    for element in elements
        .iter()
        .take_while(|element| element.digests.is_optional())
    {
        let Some((at, _)) = known.find(|(_, link)| link.digest == element.key()) else {
            break;
        };
        found = (at + 1, found.1 + 1);
    }
    found
}

/// Returns the length of the longest start of `pattern` that equals the end of `text`, in time linear in both (Knuth,
/// Morris and Pratt).
fn longest_border(pattern: &[Digest], text: impl Iterator<Item = Digest>) -> usize {
    // `borders[n]` is the length of the longest proper start of `pattern[..=n]` that is also its end.
    let mut borders: Vec<usize> = Vec::with_capacity(pattern.len());
    let advance = |borders: &[usize], mut length: usize, next: Digest| {
        // After a complete match `get` returns `None`, so the search continues with the longest border.
        while length > 0 && pattern.get(length) != Some(&next) {
            length = borders[length - 1];
        }
        length + usize::from(pattern.get(length) == Some(&next))
    };
    for (index, digest) in pattern.iter().enumerate() {
        let before = index.checked_sub(1).map_or(0, |last| borders[last]);
        // A proper start is shorter than the text, so the first element alone has none.
        borders.push(if index == 0 {
            0
        } else {
            advance(&borders, before, *digest)
        });
    }
    text.fold(0, |length, digest| advance(&borders, length, digest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digests(letters: &[u8]) -> Vec<Digest> {
        letters
            .iter()
            .map(|letter| Digest::of_bytes(&[*letter]))
            .collect()
    }

    proptest! {
        #[test]
        fn the_longest_border_is_found(
            pattern in prop::collection::vec(0_u8..3, 0..9),
            text in prop::collection::vec(0_u8..3, 0..12),
        ) {
            let lengths = 0..=pattern.len().min(text.len());
            let expected = lengths.rev().find(|length| text.ends_with(&pattern[..*length]));
            let found = longest_border(&digests(&pattern), digests(&text).into_iter());
            prop_assert_eq!(Some(found), expected);
        }
    }
}
