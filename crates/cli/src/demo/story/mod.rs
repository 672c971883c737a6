//! The session that the demo plays: made up from a seed, the same each time, and shaped as real ones are.
//!
//! An agent works on a ledger service for some days: it reads, searches, edits, runs tests that fail and
//! then pass, looks into logs, is corrected, and takes up things that lead nowhere. Not here: anything
//! that the service says. What the model does with the service's own tools is asked of it when played.

mod code;
mod files;
mod outputs;
mod scenes;

use std::time::Duration;

use serde_json::{Value, json};

/// A whole session.
#[derive(Debug)]
pub(super) struct Story {
    /// The system prompt.
    pub(super) system: String,
    /// The agent's own tools.
    pub(super) tools: Vec<Value>,
    /// What happens.
    pub(super) steps: Vec<StoryStep>,
}

/// Something that happens.
#[derive(Debug)]
pub(super) enum StoryStep {
    /// A person says something.
    Ask(String),
    /// The model answers; what it calls returns.
    Say {
        text: String,
        calls: Vec<ScriptedCall>,
    },
    /// The model calls one of the service's tools.
    ServiceTool { text: String, tool: ServiceToolCall },
    /// Nothing happens for so long.
    Pause(Duration),
}

/// A call and what it returned.
#[derive(Debug)]
pub(super) struct ScriptedCall {
    pub(super) id: String,
    pub(super) tool: &'static str,
    pub(super) input: Value,
    pub(super) result: String,
    pub(super) failed: bool,
}

/// What the model wants of the service.
#[derive(Debug)]
pub(super) enum ServiceToolCall {
    /// A question that came to nothing shall leave: the number of the ask, from 0.
    Snip { ask: usize, reason: String },
    /// The lines of an earlier result that match.
    Grep { call: String, pattern: String },
    /// An earlier result as a whole.
    Read { call: String },
}

impl Story {
    /// The session of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            system: SYSTEM.to_owned(),
            tools: tools(),
            steps: scenes::play(fastrand::Rng::with_seed(seed)),
        }
    }

    /// How many requests the agent makes: each answer takes one.
    pub(super) fn requests(&self) -> usize {
        let is_answer = |step: &&StoryStep| {
            matches!(step, StoryStep::Say { .. } | StoryStep::ServiceTool { .. })
        };
        self.steps.iter().filter(is_answer).count()
    }

    /// How many times a person speaks.
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
    fn a_seed_always_gives_the_same_session_and_another_one_another() {
        let text = |seed| format!("{:?}", Story::new(seed).steps);
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn sessions_have_what_the_levels_are_there_for() {
        for seed in 0..20 {
            let story = Story::new(seed);
            let bytes: usize = calls(&story).map(|call| call.result.len()).sum();
            assert!((900_000..2_500_000).contains(&bytes), "{seed}: {bytes}");
            assert!((120..400).contains(&story.requests()), "{seed}");
            assert!(story.asks() >= 25, "{seed}");
            assert!(calls(&story).any(|call| call.result.len() > 80_000));
            assert!(calls(&story).any(|call| call.failed));
            let is = |wanted: fn(&StoryStep) -> bool| story.steps.iter().any(wanted);
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
            // Ids are the way back to a result.
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
