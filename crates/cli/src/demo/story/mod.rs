//! The session of the demo: generated from a seed, deterministic, and similar to real sessions.
//!
//! An agent works on a ledger service for some days. It reads, searches and edits files, runs failing and passing
//! tests, reads logs, is corrected, and abandons an attempt. The story contains no reply of the service: calls to the
//! tools of the service are made when the story is played.

mod code;
mod files;
mod outputs;
mod scenes;

use std::time::Duration;

use serde_json::{Value, json};

/// A generated session.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) system: String,
    /// The agent's own tools.
    pub(super) tools: Vec<Value>,
    /// The steps, in order.
    pub(super) steps: Vec<StoryStep>,
}

#[derive(Debug)]
pub(super) enum StoryStep {
    /// A user message.
    Ask(String),
    /// An answer of the model, with its tool calls and their results.
    Say {
        text: String,
        calls: Vec<ScriptedCall>,
    },
    /// A call of the model to a tool of the service.
    ServiceTool { text: String, tool: ServiceToolCall },
    /// A pause of the user.
    Pause(Duration),
}

/// A tool call and its result.
#[derive(Debug)]
pub(super) struct ScriptedCall {
    pub(super) id: String,
    pub(super) tool: &'static str,
    pub(super) input: Value,
    pub(super) result: String,
    pub(super) failed: bool,
}

/// A call to a tool of the service.
#[derive(Debug)]
pub(super) enum ServiceToolCall {
    /// Removes a user turn. `ask` is its number, from 0.
    Snip { ask: usize, reason: String },
    /// Reads the matching lines of an earlier result.
    Grep { call: String, pattern: String },
    /// Reads a whole earlier result.
    Read { call: String },
}

impl Story {
    /// Generates the session of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            system: SYSTEM.to_owned(),
            tools: tools(),
            steps: scenes::play(fastrand::Rng::with_seed(seed)),
        }
    }

    /// Returns the number of model requests. Each answer of the model takes one.
    pub(super) fn requests(&self) -> usize {
        let is_answer = |step: &&StoryStep| {
            matches!(step, StoryStep::Say { .. } | StoryStep::ServiceTool { .. })
        };
        self.steps.iter().filter(is_answer).count()
    }

    /// Returns the number of user turns.
    pub(super) fn asks(&self) -> usize {
        let is_ask = |step: &&StoryStep| matches!(step, StoryStep::Ask(_));
        self.steps.iter().filter(is_ask).count()
    }
}

const SYSTEM: &str = "You are a careful software engineer who works in the repository of a ledger \
service. Read before you change, keep changes small, and run the tests that belong to what you changed. \
Say what you did and what is left. Ask when an instruction can be understood in two ways. Money is never \
a floating-point number. Public items have documentation. Errors tell the reader what to do next. Do not \
commit unless you are told to, never push, and never touch the files under deploy/ without being asked. \
Where a result was stored or cleared, read it again with ReadToolResult when you need it; when an earlier \
task turns out to be of no use, remove it with Snip.";

fn tools() -> Vec<Value> {
    let text = json!({"type": "string"});
    let tool = |name: &str, about: &str, fields: &[&str]| {
        let properties: serde_json::Map<String, Value> = fields
            .iter()
            .map(|field| ((*field).to_owned(), text.clone()))
            .collect();
        json!({
            "name": name,
            "description": about,
            "input_schema": {"type": "object", "properties": properties, "required": fields},
        })
    };
    vec![
        tool("Read", "Reads a file, with line numbers.", &["file_path"]),
        tool(
            "Grep",
            "Searches the contents of files.",
            &["pattern", "path"],
        ),
        tool(
            "Edit",
            "Replaces a text in a file by another; the text must occur once.",
            &["file_path", "old_string", "new_string"],
        ),
        tool("Write", "Writes a file.", &["file_path", "content"]),
        tool(
            "Bash",
            "Runs a command and returns what it prints.",
            &["command", "description"],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn calls(story: &Story) -> impl Iterator<Item = &ScriptedCall> {
        story.steps.iter().flat_map(|step| match step {
            StoryStep::Say { calls, .. } => calls.as_slice(),
            _ => &[],
        })
    }

    #[test]
    fn each_seed_generates_its_own_reproducible_session() {
        let text = |seed| format!("{:?}", Story::new(seed).steps);
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn generated_sessions_contain_material_for_every_level() {
        for seed in 0..20 {
            let story = Story::new(seed);
            let bytes: usize = calls(&story).map(|call| call.result.len()).sum();
            // About 225,000 tokens at four bytes each: more than the context window of 200,000.
            assert!((900_000..2_500_000).contains(&bytes), "{seed}: {bytes}");
            assert!((120..400).contains(&story.requests()), "{seed}");
            assert!(story.asks() >= 25, "{seed}");
            // Above its limit of 50,000 characters, level 1 stores a result.
            assert!(calls(&story).any(|call| call.result.len() > 80_000));
            assert!(calls(&story).any(|call| call.failed));
            let is = |wanted: fn(&StoryStep) -> bool| story.steps.iter().any(wanted);
            // A pause lets the prompt cache expire, so that level 3 acts.
            assert!(is(|step| matches!(step, StoryStep::Pause(_))));
            assert!(is(|step| matches!(
                step,
                StoryStep::ServiceTool {
                    tool: ServiceToolCall::Snip { .. },
                    ..
                }
            )));
            assert!(is(|step| matches!(
                step,
                StoryStep::ServiceTool {
                    tool: ServiceToolCall::Read { .. },
                    ..
                }
            )));
            // Results are read back by id, so ids must be unique.
            let ids: HashSet<&str> = calls(&story).map(|call| call.id.as_str()).collect();
            assert_eq!(ids.len(), calls(&story).count());
            for step in &story.steps {
                if let StoryStep::ServiceTool {
                    tool: ServiceToolCall::Read { call } | ServiceToolCall::Grep { call, .. },
                    ..
                } = step
                {
                    assert!(ids.contains(call.as_str()));
                }
            }
        }
    }
}
