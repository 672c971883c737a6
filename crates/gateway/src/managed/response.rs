//! Reads a response, which can consist of several responses of the provider, as messages.

use std::collections::HashSet;
use std::sync::Arc;

use palimpsest_core::codec::{self, CodecError};
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_engine::Engine;

use super::provider_of;
use crate::context::{RecordError, RecordedResponse};

/// Returns the messages of a response: those of the model, and the results of its calls of offered tools.
pub(super) fn messages(
    engine: &Engine,
    response: &RecordedResponse,
) -> Result<Vec<Arc<Message>>, RecordError> {
    let provider = provider_of(response.api);
    let mut next_id = engine.next_id();
    let mut read = |json: &[u8]| {
        let read = codec::read(provider, json, &mut next_id);
        read.map_err(|error: CodecError| RecordError(error.to_string()))
    };
    let earlier = response.rounds.iter();
    let rounds = earlier.map(|round| (&round.json, &round.results));
    let mut messages = Vec::new();
    for (json, results) in rounds.chain([(&response.json, &response.results)]) {
        let given = read(json)?;
        let is_response = |message: &Message| message.role == Role::Assistant;
        if !given.iter().all(is_response) {
            return Err(RecordError(
                "the response contains a message of another author".to_owned(),
            ));
        }
        let results = if results.is_empty() {
            Vec::new()
        } else {
            // The results have no brackets, because the next request appends them to its array.
            read(&[b"[", &results[..], b"]"].concat())?
        };
        messages.extend(answered(given, &results, &response.offered));
        messages.extend(results);
    }
    if messages.is_empty() {
        return Err(RecordError(
            "the response contains no message of the model".to_owned(),
        ));
    }
    let now = engine.sessions.clock().now();
    let messages = messages.into_iter().map(|mut message| {
        message.at.get_or_insert(now);
        Arc::new(message)
    });
    Ok(messages.collect())
}

/// Removes the calls of offered tools that have no result. The agent did not get them, and nobody will answer them.
fn answered(given: Vec<Message>, results: &[Message], offered: &[String]) -> Vec<Message> {
    let blocks = results.iter().flat_map(|message| &message.blocks);
    let answered: HashSet<&str> = blocks
        .filter_map(|block| match block {
            Block::ToolResult(result) => Some(&*result.tool_use_id),
            _ => None,
        })
        .collect();
    let is_kept = |block: &Block| match block {
        Block::ToolUse(call) => {
            answered.contains(&*call.id) || !offered.iter().any(|own| **own == *call.name)
        }
        _ => true,
    };
    let mut kept = given;
    for message in &mut kept {
        if !message.blocks.iter().all(is_kept) {
            message.blocks.retain(is_kept);
        }
    }
    kept.retain(|message| !message.blocks.is_empty());
    kept
}
