//! The content of one answer, independent of the API.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::plan::{Behaviour, Plan};
use crate::{agent, echo, tokens};

/// The scripted content of an answer. Empty fields are left out of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// The thinking. Left out if the request does not enable it. The Responses API returns it as a reasoning summary.
    pub thinking: String,
    /// The text.
    pub text: String,
    /// Quotes of the first document. Only the Messages API has citations.
    pub citations: Vec<String>,
    /// The tool calls, in order.
    pub calls: Vec<Call>,
    /// The reported usage, instead of the counted one. The bill contains the counted one.
    pub usage: Option<Usage>,
}

/// A scripted tool call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The namespace of the tool. Only the Responses API has namespaces.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The input.
    #[serde(default = "no_input")]
    pub input: Value,
}

fn no_input() -> Value {
    json!({})
}

/// A reported usage, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// The input that is neither read from the cache nor written to it.
    pub input: u64,
    /// The input that was read from the cache.
    pub read: u64,
    /// The input that was written to the cache.
    pub written: u64,
    /// The output.
    pub output: u64,
}

/// A tool that a request offers.
pub(crate) struct Offered<'a> {
    /// The namespace, in the Responses API.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    /// The JSON schema of its input. Null for a tool without one.
    pub(crate) schema: &'a Value,
}

impl<'a> Offered<'a> {
    /// Describes a tool outside of namespaces.
    pub(crate) const fn new(name: &'a str, schema: &'a Value) -> Self {
        Self {
            namespace: None,
            name,
            schema,
        }
    }
}

/// The parts of a request that decide about the answer.
pub(crate) struct Prompt<'a> {
    /// The texts of the conversation, in order.
    pub(crate) texts: Vec<String>,
    pub(crate) tools: Vec<Offered<'a>>,
    /// The array of the conversation.
    pub(crate) array: &'a Value,
    /// The maximum output, in tokens.
    pub(crate) max_output: u64,
    /// True if the request enables thinking.
    pub(crate) thinks: bool,
}

/// The reason for the end of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    #[default]
    End,
    Calls,
    Length,
    Refusal,
}

/// The content of an answer.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) turn: Turn,
    pub(crate) stop: Stop,
}

impl Answer {
    /// Returns the answer that a plan gives to a prompt.
    pub(crate) fn of(plan: &Plan, mut prompt: Prompt<'_>) -> Self {
        let mut stop = Stop::End;
        let mut turn = match &plan.behaviour {
            Behaviour::Say(text) => text_of(text),
            Behaviour::Cannot => text_of("I'm sorry, but I can't help with that."),
            Behaviour::Empty => Turn::default(),
            Behaviour::Refuse => {
                stop = Stop::Refusal;
                Turn::default()
            }
            Behaviour::Turn(turn) => turn.clone(),
            Behaviour::Round(round) => agent::turn(round, &prompt.tools),
            Behaviour::Call(name) => Turn {
                calls: vec![Call {
                    namespace: None,
                    name: name.clone(),
                    input: input_of(name, prompt.array),
                }],
                ..Turn::default()
            },
            _ => {
                let last = prompt.texts.pop().unwrap_or_default();
                text_of(&echo::answer(&prompt.texts, &last))
            }
        };
        if !turn.calls.is_empty() {
            stop = Stop::Calls;
        }
        if !prompt.thinks {
            turn.thinking.clear();
        }
        let tokens = tokens::count(&turn.text);
        let is_cut = plan.behaviour == Behaviour::Cut;
        let most = if is_cut { tokens / 2 } else { tokens }.min(prompt.max_output);
        if is_cut || tokens > prompt.max_output {
            turn.text = tokens::start(&turn.text, most).to_owned();
            // Calls follow the text. A model that reaches the limit inside its text never writes them.
            turn.calls.clear();
            stop = Stop::Length;
        }
        Self { turn, stop }
    }

    /// Returns the output tokens: thinking, text and calls.
    pub(crate) fn tokens(&self) -> u64 {
        let inputs = self.turn.calls.iter().map(|call| tokens::of(&call.input));
        tokens::count(&self.turn.thinking) + tokens::count(&self.turn.text) + inputs.sum::<u64>()
    }
}

fn text_of(text: &str) -> Turn {
    Turn {
        text: text.to_owned(),
        ..Turn::default()
    }
}

/// Returns the input of a call as a model would write it. A read of a stored result uses the last reference in the
/// conversation, and requests the last line.
fn input_of(tool: &str, array: &Value) -> Value {
    let text = array.to_string();
    let reference = text.rfind("palimpsest://").map(|at| {
        // The array is searched as JSON, where a line break is a backslash and `n`. A backslash therefore ends a
        // reference.
        let is_end = |c: char| c.is_whitespace() || "\"\\'<>`),".contains(c);
        text[at..].split(is_end).next().unwrap_or_default()
    });
    match reference {
        Some(reference) if tool == "ReadToolResult" => {
            json!({"reference": reference, "tail_lines": 1})
        }
        _ => json!({}),
    }
}
