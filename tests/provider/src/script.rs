//! The scripted behavior of the provider, set by a test or by the model's name.
//!
//! A name can contain directives after `+` signs: `claude-fake+delay=200+status=529+times=2`.
//!
//! | directive | effect |
//! |---|---|
//! | `say=TEXT` | answers with this text (`_` for spaces) |
//! | `call=TOOL` | calls this tool without input. The request must offer the tool |
//! | `delay=MS` | waits before the answer |
//! | `status=N` | fails with this status |
//! | `retry-after=S`, `retry-after-ms=MS` | adds this header to the failure |
//! | `redirect` | redirects with a 307 |
//! | `drop` | closes the connection in the middle of the answer |
//! | `refuse`, `cannot` | refuses by stop reason, or in words |
//! | `cut` | cuts the answer at the output limit |
//! | `empty` | answers without content |
//! | `ptl=WORDING` | fails because the prompt is too long |
//! | `window=N` | sets the context window, in tokens |
//! | `max-output=N` | sets the maximum output, in tokens |
//! | `times=N` | applies the behavior to the first N requests with this name only |

use std::time::Duration;

use serde_json::{Value, json};

use crate::refusal::Refusal;

/// The wording of the error for a prompt that is too long.
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
    /// Rejects the request if the scripted tool is not among its tools. `name` is a JSON pointer to the name within a
    /// tool.
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

/// Returns the input of a call as a model would write it. A read of a stored result uses the last reference in the
/// conversation, and requests the last line.
pub(crate) fn input_of(tool: &str, messages: &Value) -> Value {
    let text = messages.to_string();
    let reference = text.rfind("palimpsest://").map(|at| {
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

impl From<Behaviour> for Plan {
    fn from(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            ..Self::default()
        }
    }
}

/// Parses the directives of a model's name. An unknown directive is an error, so that a misspelled test fails.
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
    // `times` limits the behavior. The properties of the model, such as its window, stay.
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
    fn model_names_select_the_behaviour() {
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
