//! Evidence that a caller replaced a part of its array by a summary.
//!
//! Without evidence, an array that does not continue the known one is another array, which damages nothing.

use super::align::{Overlap, Prefix, overlap};
use super::hints::{Hints, KnownContent};
use super::links::{CallerArray, Element};
use super::response::{ResponseUse, text, use_of};
use crate::codec::compaction_item;
use crate::message::{Block, Role};
use crate::session::ContentNotLoaded;

/// Texts with which agents begin a summary of their own.
///
/// Claude Code 2.1, Codex 0.169 and pi 1.6, as of November 2026.
const FRAMES: [&str; 3] = [
    "This session is being continued from a previous conversation that ran out of context.",
    "Another language model started to solve this problem and produced a summary of its thinking",
    "The conversation history before this point was compacted into the following summary:",
];
/// The question that precedes a summary as the model's answer. `OpenCode` 1.18, as of November 2026.
const QUESTION: &str = "What did we do so far?";
/// Minimum length of a recorded response that identifies a summary by its text, in bytes. A shorter text can be quoted
/// by chance.
const MIN_QUOTE_BYTES: usize = 64;
/// Maximum number of elements from the summary to the quote of a response.
const MAX_DISTANCE: usize = 3;

/// A summary in place of known elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evidence {
    /// The element that becomes the summary.
    pub(super) summary: usize,
    /// Number of elements up to the evidence.
    pub(super) end: usize,
}

/// Searches the elements after the common start for a summary.
pub(super) fn find(
    array: &CallerArray,
    rest: &[Element],
    head: &Prefix,
    hints: &Hints<'_>,
    known: &dyn KnownContent,
) -> Result<Option<Evidence>, ContentNotLoaded> {
    // The summary is the first element that does not match. Blank elements before it do not count.
    let unmatched = &rest[head.elements..];
    let has_content = |element: &Element| !element.digests.is_optional();
    let Some(summary) = unmatched.iter().position(has_content) else {
        return Ok(None);
    };
    let summary = head.elements + summary;
    if !can_be_summary(&rest[summary]) {
        return Ok(None);
    }
    let found = |end| Ok(Some(Evidence { summary, end }));
    if hints.caller_compacted || is_providers_item(&rest[summary]) || has_frame(&rest[summary]) {
        return found(summary + 1);
    }
    // The element replaces everything before the part of the array that is known.
    if head.links == 0 && precedes_known_tail(array, &rest[summary + 1..], known)? {
        return found(summary + 1);
    }
    let responses = Responses::of(array, hints, known)?;
    // The summary itself can quote the response, so the search begins with it.
    for (index, element) in rest.iter().enumerate().skip(summary).take(MAX_DISTANCE) {
        if quotes_response(element, &responses) {
            return found(index + 1);
        }
    }
    let answer = rest.get(summary + 1);
    let is_answered = answer.is_some_and(|answer| {
        let blocks = &answer.message.blocks;
        answer.message.role == Role::Assistant && !blocks.iter().any(Block::is_call)
    });
    if is_answered && text(&[&rest[summary].message]) == QUESTION {
        return found(summary + 2);
    }
    Ok(None)
}

/// Finds the end of the links after the summary. Elements that belong to the summary are appended, so the end can follow
/// only a summary of one element: links keep the order of the transcript.
pub(super) fn tail(
    array: &CallerArray,
    rest: &[Element],
    head: &Prefix,
    evidence: &Evidence,
) -> Option<Overlap> {
    if evidence.end > evidence.summary + 1 {
        return None;
    }
    let found = overlap(&array.links[head.links..], &rest[evidence.end..])?;
    Some(Overlap {
        from: head.links + found.from,
        ..found
    })
}

/// Returns true for a user message of texts, and for the item of a provider.
fn can_be_summary(element: &Element) -> bool {
    let blocks = &element.message.blocks;
    let mut all = blocks.iter();
    let is_text = all.all(|block| matches!(block, Block::Text { .. }));
    let is_blank = blocks.iter().all(Block::is_blank);
    let is_summary = (is_text && !is_blank) || is_providers_item(element);
    element.message.role == Role::User && is_summary
}

fn is_providers_item(element: &Element) -> bool {
    matches!(&*element.message.blocks, [block] if compaction_item::is_item(block))
}

fn has_frame(element: &Element) -> bool {
    let text = text(&[&element.message]);
    FRAMES.iter().any(|frame| text.starts_with(frame))
}

/// Returns true if the elements repeat the end of the links, a response included.
fn precedes_known_tail(
    array: &CallerArray,
    after: &[Element],
    known: &dyn KnownContent,
) -> Result<bool, ContentNotLoaded> {
    let tail = overlap(&array.links, after);
    if tail.is_some_and(|tail| tail.has_response) {
        return Ok(true);
    }
    let end = tail.map_or(0, |tail| tail.elements);
    let response = use_of(array, &after[end..], known)?;
    Ok(matches!(response, ResponseUse::Confirmed { .. }))
}

/// Returns true if the element quotes a response that no array continued.
fn quotes_response(element: &Element, responses: &Responses) -> bool {
    let given = text(&[&element.message]);
    // The answer to a side request can return as an answer of this conversation. The session's own response returns as
    // itself, which is no summary.
    if element.message.role == Role::Assistant {
        return responses.side.contains(&given);
    }
    let mut all = responses.side.iter().chain(&responses.own);
    all.any(|response| response.len() >= MIN_QUOTE_BYTES && given.contains(response))
}

/// The texts of the responses that no array continued.
struct Responses {
    own: Vec<String>,
    side: Vec<String>,
}

impl Responses {
    fn of(
        array: &CallerArray,
        hints: &Hints<'_>,
        known: &dyn KnownContent,
    ) -> Result<Self, ContentNotLoaded> {
        let mut side: Vec<String> = hints
            .side_responses
            .iter()
            .map(|one| text(&[one]))
            .collect();
        side.retain(|text| !text.is_empty());
        let mut own = Vec::with_capacity(array.responses.len());
        for items in &array.responses {
            let messages = items.iter().map(|item| known.message(item.message));
            let messages = messages.collect::<Result<Vec<_>, _>>()?;
            own.push(text(&messages.iter().map(|one| &**one).collect::<Vec<_>>()));
        }
        Ok(Self { own, side })
    }
}
