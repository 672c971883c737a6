//! Summarizes a run of rounds and collects the inputs for its risk.

use std::collections::BTreeSet;

use palimpsest_facts::{describe_span, span_features};

use crate::levels::clearing::path_in;
use crate::message::{Block, Message};

/// The summary of a span and the inputs for its risk.
pub(super) struct SpanDescription {
    pub(super) summary: String,
    pub(super) paths: BTreeSet<Box<str>>,
    /// The fraction of calls that repeat earlier calls, in thousandths.
    pub(super) repeated_milli: u64,
    pub(super) decisions: u64,
    pub(super) ends_in_failure: bool,
}

pub(super) fn describe(messages: &[&Message]) -> SpanDescription {
    let features = span_features(messages.iter().copied());
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    // Only the last result counts, because a later success resolves an earlier failure.
    let last = blocks.rev().find_map(|block| match block {
        Block::ToolResult(result) => Some(result.is_error == Some(true)),
        _ => None,
    });
    SpanDescription {
        summary: describe_span(messages.iter().copied()),
        paths: messages.iter().flat_map(|message| paths(message)).collect(),
        repeated_milli: features.repetition_milli.into(),
        decisions: features.decisions as u64,
        ends_in_failure: last == Some(true),
    }
}

/// Returns the paths that the calls of a message name.
pub(super) fn paths(message: &Message) -> impl Iterator<Item = Box<str>> {
    message.blocks.iter().filter_map(|block| match block {
        Block::ToolUse(call) => path_in(&call.input),
        _ => None,
    })
}
