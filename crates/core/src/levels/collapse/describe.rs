//! What a run of rounds was about, from its structure alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::levels::clear::path_in;
use crate::message::{Block, Message};

/// What a span was about.
pub(super) struct Described {
    pub(super) summary: String,
    pub(super) paths: BTreeSet<Box<str>>,
    pub(super) calls: u64,
    pub(super) repeated: u64,
    pub(super) decisions: u64,
    pub(super) ends_in_failure: bool,
}

pub(super) fn describe(messages: &[&Message]) -> Described {
    let mut tools: BTreeMap<&str, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut described = Described {
        summary: String::new(),
        paths: BTreeSet::new(),
        calls: 0,
        repeated: 0,
        decisions: 0,
        ends_in_failure: false,
    };
    for message in messages {
        described.paths.extend(paths(message));
        for block in &message.blocks {
            match block {
                Block::ToolUse(call) => {
                    described.calls += 1;
                    *tools.entry(&call.name).or_default() += 1;
                    described.repeated +=
                        u64::from(!seen.insert((&call.name, call.input.as_str())));
                }
                Block::ToolResult(result) => {
                    described.ends_in_failure = result.is_error == Some(true);
                }
                _ => {}
            }
        }
    }
    let tools: Vec<String> = tools
        .iter()
        .map(|(name, count)| format!("{name} {count}×"))
        .collect();
    described.summary = format!("Calls: {}.", tools.join(", "));
    described
}

/// The paths that a message's calls name.
pub(super) fn paths(message: &Message) -> impl Iterator<Item = Box<str>> {
    message.blocks.iter().filter_map(|block| match block {
        Block::ToolUse(call) => path_in(&call.input),
        _ => None,
    })
}
