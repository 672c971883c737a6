//! Results in the order of their calls. This order does not depend on the caller.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::links::Element;
use crate::message::{Block, Message, Role, ToolResult};

/// Returns the elements with results in the order of their calls.
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
    // A single result has only one order.
    given().nth(1)?;
    // Earlier responses can have calls with the same ids. Only those directly before the results count.
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
pub(super) fn with_results_at(element: &Element, places: &HashMap<&str, usize>) -> Element {
    // A single result stays where it is, so its text is not copied.
    if results(&element.message).nth(1).is_none() {
        return element.clone();
    }
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

pub(super) fn results(message: &Message) -> impl Iterator<Item = &ToolResult> {
    message.blocks.iter().filter_map(|block| match block {
        Block::ToolResult(result) => Some(result),
        _ => None,
    })
}

pub(super) fn has_results(element: &Element) -> bool {
    results(&element.message).next().is_some()
}
