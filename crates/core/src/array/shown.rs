//! The elements as which a caller gets a recorded response.
//!
//! A gateway can run calls of the model itself and ask the model again, within one response. The caller gets neither
//! these calls nor their results. The record has all of it: the calls, their results as user messages, and the messages
//! after them.

use std::collections::HashSet;

use super::links::{LinkKind, RecordedItem};
use crate::ids::Ordinal;
use crate::message::{Block, CanonicalDigests, Message, MessageOrigin, Role};

/// Returns the items of a response. Messages that the caller does not get are further messages of an element.
pub(crate) fn items(response: &[(Ordinal, &Message)]) -> Vec<RecordedItem> {
    let messages = || response.iter().map(|(_, message)| *message);
    let hidden = hidden_calls(messages());
    if hidden.is_empty() {
        let items = response.iter();
        return items.map(|(at, message)| item(message, *at)).collect();
    }
    let is_items = messages().any(|message| message.origin == MessageOrigin::OpenAiResponses);
    if is_items {
        return items_around_hidden(response, &hidden);
    }
    let shown = shown_messages(&messages().collect::<Vec<_>>());
    // Other APIs have one message per response. The first recorded message is its element, and the rest are parts of
    // it.
    let Some(((first, _), further)) = response.split_first() else {
        return Vec::new();
    };
    let Some(shown) = shown.first() else {
        return Vec::new();
    };
    let further = further.iter().map(|(at, message)| part(message, *at));
    [item(shown, *first)].into_iter().chain(further).collect()
}

/// Returns the messages that the caller gets: the items of the Responses API, or one message in any other API.
pub(super) fn shown_messages(response: &[&Message]) -> Vec<Message> {
    let hidden = hidden_calls(response.iter().copied());
    let of_model = response
        .iter()
        .filter(|message| message.role == Role::Assistant);
    let mut shown = of_model.map(|message| without(message, &hidden));
    let Some(first) = shown.next() else {
        return Vec::new();
    };
    if hidden.is_empty() || first.origin == MessageOrigin::OpenAiResponses {
        let all = [first].into_iter().chain(shown);
        return all.filter(|message| !message.blocks.is_empty()).collect();
    }
    let mut whole = first;
    for further in shown {
        for block in further.blocks {
            add(&mut whole, block);
        }
    }
    vec![whole]
}

/// Adds a block to a response. A text of Chat Completions is one string.
fn add(whole: &mut Message, block: Block) {
    if whole.origin == MessageOrigin::OpenAi
        && let Block::Text { text: more, .. } = &block
        && let Some(Block::Text { text, .. }) = whole.blocks.last_mut()
    {
        *text = [&**text, &**more].concat().into();
        return;
    }
    whole.blocks.push(block);
}

/// Returns the ids of the calls whose results are part of the response.
fn hidden_calls<'a>(response: impl Iterator<Item = &'a Message>) -> HashSet<&'a str> {
    let results = response.filter(|message| message.role == Role::User);
    let blocks = results.flat_map(|message| &message.blocks);
    let ids = blocks.filter_map(|block| match block {
        Block::ToolResult(result) => Some(&*result.tool_use_id),
        _ => None,
    });
    ids.collect()
}

fn without(message: &Message, hidden: &HashSet<&str>) -> Message {
    let mut shown = message.clone();
    shown
        .blocks
        .retain(|block| !matches!(block, Block::ToolUse(call) if hidden.contains(&*call.id)));
    shown
}

/// Returns the items of a response of the Responses API. Hidden items belong to the next item that the caller gets.
fn items_around_hidden(
    response: &[(Ordinal, &Message)],
    hidden: &HashSet<&str>,
) -> Vec<RecordedItem> {
    let mut items = Vec::with_capacity(response.len());
    let mut begin = 0;
    for (at, (_, message)) in response.iter().enumerate() {
        let is_shown =
            message.role == Role::Assistant && !without(message, hidden).blocks.is_empty();
        if !is_shown {
            continue;
        }
        let (first, _) = response[begin];
        items.push(item(message, first));
        let further = response[begin..=at].iter().skip(1);
        items.extend(further.map(|(at, message)| part(message, *at)));
        begin = at + 1;
    }
    // Without an element before them, the last messages are no part of any.
    if !items.is_empty() {
        let rest = response[begin..].iter();
        items.extend(rest.map(|(at, message)| part(message, *at)));
    }
    items
}

fn item(message: &Message, at: Ordinal) -> RecordedItem {
    let digests = CanonicalDigests::of(message);
    RecordedItem {
        digests,
        message: at,
        kind: LinkKind::of(&digests),
    }
}

fn part(message: &Message, at: Ordinal) -> RecordedItem {
    RecordedItem {
        kind: LinkKind::Part,
        ..item(message, at)
    }
}
