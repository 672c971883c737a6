//! The order of the results of parallel tool calls.
//!
//! Some programs send results first in the order in which the tools finished, and later in the order of the calls. A model
//! takes both orders for the same conversation, so two arrays that differ only in this order are one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::align::prefix;
use super::hints::KnownContent;
use super::links::{CallerArray, Element, Incoming, Link};
use crate::message::{Block, Message, Role, ToolResult};
use crate::session::ContentNotLoaded;

/// Returns the elements with results in the known order. New results follow the known ones.
///
/// # Errors
///
/// Returns an error if the order is that of a message that is not in memory.
pub fn in_known_order<'a>(
    elements: Cow<'a, [Element]>,
    array: &CallerArray,
    known: &dyn KnownContent,
) -> Result<Cow<'a, [Element]>, ContentNotLoaded> {
    let mut elements = elements;
    let (mut link, mut at) = (0, Incoming::new(&elements, true).lead.len());
    loop {
        let same = prefix(&array.links[link..], &elements[at..]);
        link += same.links;
        at += same.elements;
        if same.is_whole {
            return Ok(elements);
        }
        let links = array.links[link..].iter();
        link += links.take_while(|link| link.is_skipped()).count();
        let given = elements[at..].iter();
        at += given
            .take_while(|given| given.digests.is_optional())
            .count();
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

/// Returns the elements with results in the order of their calls. The order does not depend on the order in which a caller
/// sends the results.
pub(super) fn in_call_order(elements: &[Element]) -> Cow<'_, [Element]> {
    let mut ordered = Cow::Borrowed(elements);
    let mut at = 0;
    while at < elements.len() {
        let others = elements[at..].iter();
        let start = at + others.take_while(|element| !has_results(element)).count();
        let run = elements[start..].iter();
        let end = start + run.take_while(|element| has_results(element)).count();
        if let Some(run) = run_in_call_order(&elements[at..start], &elements[start..end]) {
            ordered.to_mut()[start..end].clone_from_slice(&run);
        }
        at = end;
    }
    ordered
}

/// Returns the results in the order of their calls, which are among the elements before them. `None` if they have this
/// order already.
fn run_in_call_order(before: &[Element], run: &[Element]) -> Option<Vec<Element>> {
    let given = || run.iter().flat_map(|element| results(&element.message));
    given().nth(1)?;
    let responses = before.rsplit(|element| element.message.role != Role::Assistant);
    let responses = responses.take(1).flatten();
    let calls = responses.flat_map(|response| &response.message.blocks);
    let calls = calls.filter_map(|block| match block {
        Block::ToolUse(call) => Some(&*call.id),
        _ => None,
    });
    let places: HashMap<&str, usize> = calls.zip(0..).collect();
    if given().is_sorted_by_key(|result| place(&places, result)) {
        return None;
    }
    let run = run.iter().map(|element| with_results_at(element, &places));
    let mut run: Vec<Element> = run.collect();
    run.sort_by_key(|element| {
        let first = results(&element.message).next();
        first.map(|result| place(&places, result))
    });
    Some(run)
}

/// Returns the element with its results in the order of their places. Other blocks stay where they are.
fn with_results_at(element: &Element, places: &HashMap<&str, usize>) -> Element {
    let mut message = (*element.message).clone();
    let mut sorted: Vec<ToolResult> = results(&message).cloned().collect();
    sorted.sort_by_key(|result| place(places, result));
    let mut sorted = sorted.into_iter();
    for block in &mut message.blocks {
        if let Block::ToolResult(result) = block
            && let Some(next) = sorted.next()
        {
            *result = next;
        }
    }
    Element::new(Arc::new(message))
}

fn place(places: &HashMap<&str, usize>, result: &ToolResult) -> usize {
    let place = places.get(&*result.tool_use_id);
    place.copied().unwrap_or(usize::MAX)
}

fn results(message: &Message) -> impl Iterator<Item = &ToolResult> {
    message.blocks.iter().filter_map(|block| match block {
        Block::ToolResult(result) => Some(result),
        _ => None,
    })
}

fn has_results(element: &Element) -> bool {
    results(&element.message).next().is_some()
}

fn has_only_results(element: &Element) -> bool {
    let blocks = &element.message.blocks;
    let mut blocks = blocks.iter().filter(|block| !block.is_blank());
    has_results(element) && blocks.all(|block| matches!(block, Block::ToolResult(_)))
}
