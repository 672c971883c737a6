//! Recorded responses, and the elements with which a caller sends them back.

use std::sync::Arc;

use super::change::add_metadata;
use super::hints::KnownContent;
use super::links::{CallerArray, Element};
use super::shown::shown_messages;
use crate::message::{Block, Message, Role};
use crate::session::ContentNotLoaded;

/// The recorded response that the elements after the known end repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseUse {
    /// No recorded response is repeated.
    #[default]
    Unused,
    /// The elements equal the response, so the recorded messages become visible.
    Confirmed {
        /// The index in [`CallerArray::responses`].
        response: usize,
    },
    /// The elements are another form of the response. They are appended with the response's id, model and usage.
    Replaced {
        /// The index in [`CallerArray::responses`].
        response: usize,
        /// Number of elements in place of the response.
        elements: usize,
    },
}

/// Compares the elements after the known end with the recorded responses, the newest first.
pub(super) fn use_of(
    array: &CallerArray,
    after: &[Element],
    known: &dyn KnownContent,
) -> Result<ResponseUse, ContentNotLoaded> {
    let is_response = |element: &&Element| element.message.role == Role::Assistant;
    let run = &after[..after.iter().take_while(is_response).count()];
    if run.is_empty() {
        return Ok(ResponseUse::Unused);
    }
    let responses = || array.responses.iter().enumerate().rev();
    // Digests need no contents, which can be out of memory. Most callers send a response back unchanged.
    for (response, items) in responses() {
        let strict = items.iter().filter(|item| item.is_element());
        let strict = strict.map(|item| item.digests.strict);
        // The run can continue after the response, so only its start is compared.
        let given = run.iter().take(strict.clone().count());
        if !items.is_empty() && strict.eq(given.map(|element| element.digests.strict)) {
            return Ok(ResponseUse::Confirmed { response });
        }
    }
    for (response, items) in responses() {
        let recorded: Vec<Arc<Message>> = items
            .iter()
            .map(|item| known.message(item.message))
            .collect::<Result<_, _>>()?;
        let recorded = shown_messages(&recorded.iter().map(|one| &**one).collect::<Vec<_>>());
        let given: Vec<&Message> = run.iter().map(|element| &*element.message).collect();
        // A caller can send back another form, for example without thinking. Equal calls or a common text identify it.
        if are_related(&recorded.iter().collect::<Vec<_>>(), &given) {
            let elements = run.len();
            return Ok(ResponseUse::Replaced { response, elements });
        }
    }
    Ok(ResponseUse::Unused)
}

/// Adds the id, the model and the usage of a response to the last response among `messages`, if both are forms of one
/// response.
///
/// The usage counts only if the response follows the last view: if it is the first of the messages, and if `extends_view`
/// states that no message of the view leaves. Any other usage is that of another request, for example of a view before a
/// rewind.
pub fn add_response(messages: &mut [Arc<Message>], response: &[Arc<Message>], extends_view: bool) {
    let is_response = |message: &Arc<Message>| message.role == Role::Assistant;
    let Some(last) = messages.iter().rposition(is_response) else {
        return;
    };
    // A response can have several messages. It begins after the last message of another author.
    let before = messages[..last].iter().rposition(|one| !is_response(one));
    let follows_view = extends_view && before.is_none();
    let run = &mut messages[before.map_or(0, |before| before + 1)..=last];
    let both = [&*run, response].map(|all| all.iter().map(|one| &**one).collect::<Vec<_>>());
    if are_related(&both[1], &both[0]) {
        add_metadata(run, response);
        for message in run.iter_mut().filter(|_| !follows_view) {
            Arc::make_mut(message).usage = None;
        }
    }
}

/// Returns true if both are forms of one response: the same calls, or without calls, a text that contains the other.
fn are_related(recorded: &[&Message], given: &[&Message]) -> bool {
    let (one, other) = (calls(recorded), calls(given));
    if !one.is_empty() || !other.is_empty() {
        return one == other;
    }
    let (one, other) = (text(recorded), text(given));
    !one.is_empty() && !other.is_empty() && (one.contains(&other) || other.contains(&one))
}

fn calls<'a>(messages: &[&'a Message]) -> Vec<(&'a str, &'a str)> {
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    blocks
        .filter_map(|block| match block {
            Block::ToolUse(call) => Some((&*call.id, &*call.name)),
            _ => None,
        })
        .collect()
}

/// Returns the whole text of several messages without white space at its ends.
pub(super) fn text(messages: &[&Message]) -> String {
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    let texts = blocks.filter_map(|block| match block {
        Block::Text { text, .. } => Some(&**text),
        _ => None,
    });
    texts.collect::<String>().trim().to_owned()
}
