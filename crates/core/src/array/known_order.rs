//! Results of parallel tool calls in the order of the session.
//!
//! Some programs send results first in the order in which the tools finished, and later in the order of the calls. Both
//! orders mean the same to a model, so two arrays that differ only in this order are one conversation.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::align::first_difference;
use super::call_order::{has_results, results, with_results_at};
use super::hints::KnownContent;
use super::links::{CallerArray, Element, Incoming, Link};
use crate::message::{Block, Role};
use crate::session::ContentNotLoaded;

/// Returns the elements with results in the known order. New results follow the known ones.
///
/// # Errors
///
/// Returns an error if the order is that of a message that is not in memory.
pub fn in_known_order<'a>(
    mut elements: Cow<'a, [Element]>,
    array: &CallerArray,
    known: &dyn KnownContent,
) -> Result<Cow<'a, [Element]>, ContentNotLoaded> {
    // Only `lead` is read here. It does not depend on `has_tools`, so any value serves.
    let (mut link, mut at) = (0, Incoming::new(&elements, true).lead.len());
    loop {
        let same = first_difference(&array.links[link..], &elements[at..]);
        (link, at) = (link + same.0, at + same.1);
        if link == array.links.len() {
            return Ok(elements);
        }
        let ordered = reordered(&array.links[link..], &elements[at..], known)?;
        // Each step moves a known element to its place, so the next common beginning is longer.
        let Some(ordered) = ordered else {
            return Ok(elements);
        };
        for (place, element) in elements.to_mut()[at..].iter_mut().zip(ordered) {
            *place = element;
        }
    }
}

/// Returns the first elements in an order in which the first one matches the first link. `None` if they contain no result,
/// or if no order of their results matches.
fn reordered(
    links: &[Link],
    elements: &[Element],
    known: &dyn KnownContent,
) -> Result<Option<Vec<Element>>, ContentNotLoaded> {
    let run = elements
        .iter()
        .take_while(|element| has_only_results(element));
    let mut run: Vec<Element> = run.cloned().collect();
    let known_links = links.iter().take_while(|link| link.role == Role::User);
    let places = known_links.zip(0_usize..).take(run.len());
    let places: BTreeMap<_, _> = places.map(|(link, place)| (link.digest, place)).collect();
    run.sort_by_key(|element| places.get(&element.key()).copied().unwrap_or(usize::MAX));
    let (Some(link), Some(first)) = (links.first(), elements.first()) else {
        return Ok(None);
    };
    if run
        .first()
        .is_some_and(|element| element.key() == link.digest)
    {
        return Ok(Some(run));
    }
    // One element can contain all results of a response.
    if link.role != first.message.role || results(&first.message).nth(1).is_none() {
        return Ok(None);
    }
    let message = known.message(link.message)?;
    let places = results(&message).zip(0..);
    let places = places.map(|(result, place)| (&*result.tool_use_id, place));
    let first = with_results_at(first, &places.collect());
    Ok((first.key() == link.digest).then(|| vec![first]))
}

fn has_only_results(element: &Element) -> bool {
    let blocks = &element.message.blocks;
    let mut blocks = blocks.iter().filter(|block| !block.is_blank());
    has_results(element) && blocks.all(|block| matches!(block, Block::ToolResult(_)))
}
