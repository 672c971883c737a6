//! What the provider is told to do, by a test or by the model's name.
//!
//! A name may carry directives behind `+` signs: `claude-fake+delay=200+status=529+times=2`.
//!
//! | directive | does |
//! |---|---|
//! | `say=TEXT` | answers with this text (`_` for spaces) |
//! | `call=TOOL` | calls this tool, which the request has to offer, without input |
//! | `delay=MS` | waits first |
//! | `status=N` | fails with this status |
//! | `retry-after=S`, `retry-after-ms=MS` | with this header |
//! | `redirect` | points elsewhere with a 307 |
//! | `drop` | ends the connection amid the answer |
//! | `refuse`, `cannot` | declines by stop reason, or in words |
//! | `cut` | is cut off at the output limit |
//! | `empty` | answers without content |
//! | `ptl=WORDING` | says that the prompt is too long |
//! | `window=N` | has a window of so many tokens |
//! | `max-output=N` | writes no more than so many tokens |
//! | `times=N` | does all that only for the first N requests with this name |

use std::time::Duration;

use serde_json::{Value, json};

use crate::refusal::Refusal;

/// In whose words the prompt is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// `prompt is too long: A tokens > L maximum`
    Anthropic,
    /// `input length and max_tokens exceed context limit: …`
    AnthropicOutput,
    /// `This model's maximum context length is L tokens. …`
    OpenAi,
    /// `Input is too long for requested model.`
    Bedrock,
    /// `The input token count (A) exceeds …`
    Gemini,
    /// `the request exceeds the available context size …`, with the numbers beside it.
    LlamaCpp,
    /// 413 with a page of a proxy.
    Proxy,
}

/// What one answer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// The headings that the prompt asks for, with lines of the conversation.
    Echo,
    /// A fixed text.
    Say(String),
    /// A call of this tool.
    Call(String),
    /// An error with this status, and the header `retry-after` (whole seconds) or `retry-after-ms`.
    Fail {
        /// The HTTP status.
        status: u16,
        /// What the header says.
        retry_after: Option<Duration>,
    },
    /// 307, back to where the request came in.
    Redirect,
    /// The connection ends amid the answer.
    Drop,
    /// Declined, by stop reason.
    Refuse,
    /// Declined in words, as if it were an answer.
    Cannot,
    /// Cut off at the output limit.
    Cut,
    /// No content.
    Empty,
    /// The prompt is too long, whatever its length.
    TooLong(Wording),
}

/// How a model behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it does.
    pub behaviour: Behaviour,
    /// After how long.
    pub delay: Duration,
    /// Its window. `None`: a usual one.
    pub window: Option<u64>,
    /// What it writes at most. `None`: a usual amount.
    pub max_output: Option<u64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::Echo,
            delay: Duration::ZERO,
            window: None,
            max_output: None,
        }
    }
}

impl Plan {
    /// Whether the tool that it calls is among those of a request, whose names are at a JSON pointer in each.
    pub(crate) fn fits(&self, tools: &Value, name: &str) -> Result<(), Refusal> {
        let Behaviour::Call(wanted) = &self.behaviour else {
            return Ok(());
        };
        let mut offered = tools.as_array().into_iter().flatten();
        if offered.any(|tool| tool.pointer(name) == Some(&json!(wanted))) {
            return Ok(());
        }
        Err(Refusal::invalid(format!(
            "the fake model should call {wanted}, which the request does not offer"
        )))
    }
}

/// The input of a call, as a model would write it: a read of a stored result takes the last reference that the
/// conversation shows, and its last line.
pub(crate) fn input_of(tool: &str, messages: &Value) -> Value {
    let text = messages.to_string();
    let reference = text.rfind("palimpsest://").map(|at| {
        let is_end = |c: char| c.is_whitespace() || "\"\\'<>`),".contains(c);
        text[at..].split(is_end).next().unwrap_or_default()
    });
    match reference {
        Some(reference) if tool == "ReadToolResult" => {
            json!({"reference": reference, "last_lines": 1})
        }
        _ => json!({}),
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

/// What a model's name says. A directive that is not known is an error: a test that misspells one
/// should not pass.
pub(crate) fn named(model: &str, asked_before: u64) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut always = Plan::default();
    let mut retry_after = None;
    let mut times = None;
    for directive in model.split('+').skip(1) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{name} needs a number"))
        };
        match name {
            "say" => plan.behaviour = Behaviour::Say(value.replace('_', " ")),
            "call" => plan.behaviour = Behaviour::Call(value.to_owned()),
            "delay" => plan.delay = Duration::from_millis(number()?),
            "status" => {
                plan.behaviour = Behaviour::Fail {
                    status: u16::try_from(number()?).map_err(|_| "no such status".to_owned())?,
                    retry_after: None,
                }
            }
            "retry-after" => retry_after = Some(Duration::from_secs(number()?)),
            "retry-after-ms" => retry_after = Some(Duration::from_millis(number()?)),
            "redirect" => plan.behaviour = Behaviour::Redirect,
            "drop" => plan.behaviour = Behaviour::Drop,
            "refuse" => plan.behaviour = Behaviour::Refuse,
            "cannot" => plan.behaviour = Behaviour::Cannot,
            "cut" => plan.behaviour = Behaviour::Cut,
            "empty" => plan.behaviour = Behaviour::Empty,
            "ptl" => plan.behaviour = Behaviour::TooLong(wording(value)?),
            "window" => always.window = Some(number()?),
            "max-output" => always.max_output = Some(number()?),
            "times" => times = Some(number()?),
            _ => return Err(format!("the fake provider knows no directive {name}")),
        }
    }
    // What a model is like stays; what it does may end.
    if times.is_some_and(|times| asked_before >= times) {
        return Ok(always);
    }
    if let Behaviour::Fail {
        retry_after: wait, ..
    } = &mut plan.behaviour
    {
        *wait = retry_after;
    }
    (plan.window, plan.max_output) = (always.window, always.max_output);
    Ok(plan)
}

fn wording(value: &str) -> Result<Wording, String> {
    Ok(match value {
        "anthropic" => Wording::Anthropic,
        "anthropic-output" => Wording::AnthropicOutput,
        "openai" => Wording::OpenAi,
        "bedrock" => Wording::Bedrock,
        "gemini" => Wording::Gemini,
        "llama.cpp" => Wording::LlamaCpp,
        "proxy" => Wording::Proxy,
        _ => return Err(format!("no wording {value}")),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Behaviour, Plan, Wording, named};

    #[test]
    fn names_say_what_to_do() {
        assert_eq!(named("claude-fake", 0), Ok(Plan::default()));
        let plan = named("m+status=429+retry-after=2+delay=5", 0).unwrap();
        assert_eq!(plan.delay, Duration::from_millis(5));
        let retry_after = Some(Duration::from_secs(2));
        assert_eq!(
            plan.behaviour,
            Behaviour::Fail {
                status: 429,
                retry_after
            }
        );
        let plan = named("m+call=look+times=1", 0).unwrap();
        assert_eq!(plan.behaviour, Behaviour::Call("look".to_owned()));
        let plan = named("m+ptl=gemini+window=9+times=2", 1).unwrap();
        assert_eq!(plan.behaviour, Behaviour::TooLong(Wording::Gemini));
        let plan = named("m+ptl=gemini+window=9+times=2", 2).unwrap();
        assert_eq!((plan.behaviour, plan.window), (Behaviour::Echo, Some(9)));
        assert!(named("m+dealy=5", 0).is_err());
        assert!(named("m+delay=x", 0).is_err());
    }
}
