//! The scripted behavior of one answer.

use std::time::Duration;

use crate::agent::Round;
use crate::faults::Fault;
use crate::refusal::Refusal;
use crate::stream::pace::Pace;
use crate::turn::{Offered, Turn};

/// The wording of the error for a prompt that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// `prompt is too long: A tokens > L maximum`
    Anthropic,
    /// `input length and max_tokens exceed context limit: …`
    AnthropicOutput,
    /// `This model's maximum context length is L tokens. …`
    OpenAi,
    /// `Your input exceeds the context window of this model. …`
    Responses,
    /// `Input is too long for requested model.`
    Bedrock,
    /// `The input token count (A) exceeds …`
    Gemini,
    /// `the request exceeds the available context size …`, with the numbers in separate fields.
    LlamaCpp,
    /// 413 with the HTML page of a proxy.
    Proxy,
}

/// The behavior of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers with the headings that the prompt requests and lines of the conversation.
    Echo,
    /// Answers with a fixed text.
    Say(String),
    /// Calls this tool.
    Call(String),
    /// Answers with scripted content.
    Turn(Turn),
    /// Calls the first shell-like tool, as an agent's model does in one round of its work.
    Round(Round),
    /// Fails with this status and the header `retry-after` (whole seconds) or `retry-after-ms`.
    Fail {
        /// The HTTP status.
        status: u16,
        /// The value of the header.
        retry_after: Option<Duration>,
    },
    /// Redirects with a 307 to the path of the request.
    Redirect,
    /// Closes the connection in the middle of the answer.
    Drop,
    /// Refuses by stop reason.
    Refuse,
    /// Refuses in words, in the form of a normal answer.
    Cannot,
    /// Cuts the answer at the output limit.
    Cut,
    /// Answers without content.
    Empty,
    /// Fails because the prompt is too long, regardless of its length.
    TooLong(Wording),
}

/// The scripted behavior of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The behavior.
    pub behaviour: Behaviour,
    /// The delay before the answer.
    pub delay: Duration,
    /// The context window, in tokens. `None` for the default.
    pub window: Option<u64>,
    /// The maximum output, in tokens. `None` for the default.
    pub max_output: Option<u64>,
    /// The pace and the framing of the answer.
    pub pace: Pace,
    /// The failure of this answer. `None` for a complete one.
    pub fault: Option<Fault>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::Echo,
            delay: Duration::ZERO,
            window: None,
            max_output: None,
            pace: Pace::default(),
            fault: None,
        }
    }
}

impl Plan {
    /// Rejects the request if it does not offer a scripted tool.
    pub(crate) fn fits(&self, offered: &[Offered<'_>]) -> Result<(), Refusal> {
        // A model cannot call a tool that the request does not offer, so such a script is a mistake of its test.
        let wanted: Vec<(Option<&str>, &str)> = match &self.behaviour {
            Behaviour::Call(name) => vec![(None, name)],
            Behaviour::Turn(turn) => {
                let calls = turn.calls.iter();
                let names = calls.map(|call| (call.namespace.as_deref(), call.name.as_str()));
                names.collect()
            }
            _ => Vec::new(),
        };
        let is_missing = |wanted: &(Option<&str>, &str)| {
            !offered
                .iter()
                .any(|tool| (tool.namespace, tool.name) == *wanted)
        };
        match wanted.into_iter().find(is_missing) {
            None => Ok(()),
            Some((_, missing)) => Err(Refusal::invalid(format!(
                "the fake model should call {missing}, which the request does not offer"
            ))),
        }
    }
}

impl From<Behaviour> for Plan {
    fn from(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            ..Self::default()
        }
    }
}
