//! The behavior that a model's name defines. A name can contain directives after `+` signs:
//! `claude-fake+delay=200+status=529+times=2`.
//!
//! | directive | effect |
//! |---|---|
//! | `say=TEXT` | answers with this text (`_` for spaces) |
//! | `call=TOOL` | calls this tool without input. The request must offer the tool |
//! | `agent=N` | calls the first shell-like tool in N rounds, then answers. `output-bytes=N` sets the size of its output |
//! | `delay=MS` | waits before the answer |
//! | `first-byte=MS`, `gap=MS` | waits before the first event, and before each later one |
//! | `split=BORDER`, `crlf`, `one-byte`, `delta=N` | sets the framing, as in [`Pace`] |
//! | `coding=NAME` | compresses the answer if the client accepts it |
//! | `status=N` | fails with this status |
//! | `retry-after=S`, `retry-after-ms=MS` | adds this header to the failure |
//! | `retry-after-date=S`, `retry-after-limits=S` | adds a date, or the rate-limit headers of the API |
//! | `html=N` | answers with this status and the page of a proxy |
//! | `reset`, `refuse-ms=MS` | resets the connection, and refuses new ones for a time |
//! | `cut-event=N`, `cut-byte=N`, `reset-event=N` | closes or resets the connection after N events or bytes |
//! | `malformed=N`, `error-event=N`, `failed=N` | breaks event N, or ends the stream with an error after N events |
//! | `redirect` | redirects with a 307 |
//! | `drop` | closes the connection in the middle of the answer |
//! | `refuse`, `cannot` | refuses by stop reason, or in words |
//! | `cut` | cuts the answer at the output limit |
//! | `empty` | answers without content |
//! | `ptl=WORDING` | fails because the prompt is too long |
//! | `window=N` | sets the context window, in tokens |
//! | `max-output=N` | sets the maximum output, in tokens |
//! | `no-edits` | rejects `context_management`, as a server with the API of Anthropic and without this feature |
//! | `times=N` | applies the behavior to the first N requests with this name only |

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::anthropic::context_management;
use crate::faults::{Fault, RetryAfter, Status};
use crate::plan::{Behaviour, Plan, Wording};
use crate::script::Agent;
use crate::stream::pace::Pace;

/// The behavior that a name defines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) plan: Plan,
    /// The work of an agent, which lasts for several requests.
    pub(crate) agent: Option<Agent>,
}

/// Parses the directives of a model's name. An unknown directive is an error, so that a misspelled test fails.
pub(crate) fn named(model: &str, asked_before: u64) -> Result<Named, String> {
    let mut plan = Plan::default();
    let mut always = Plan::default();
    let mut retry_after = None;
    let mut times = None;
    let mut agent: Option<Agent> = None;
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
            "agent" => agent.get_or_insert_default().rounds = number()?,
            "output-bytes" => {
                agent.get_or_insert_default().output_bytes = (number()?, number()?);
            }
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
            // The validation of a request reads this directive itself.
            context_management::ABSENT => {}
            // The guard applies the directive if it is one of the pace. All other names must be faults.
            _ if pace(&mut always.pace, name, value)? => {}
            _ => plan.fault = Some(fault(name, value)?),
        }
    }
    // `times` limits the behavior. The properties of the model, such as its window, stay.
    if times.is_some_and(|times| asked_before >= times) {
        return Ok(Named {
            plan: always,
            agent: None,
        });
    }
    if let Behaviour::Fail {
        retry_after: wait, ..
    } = &mut plan.behaviour
    {
        *wait = retry_after;
    }
    (plan.window, plan.max_output, plan.pace) = (always.window, always.max_output, always.pace);
    Ok(Named { plan, agent })
}

/// Sets a property of the pace. Returns false for another directive.
fn pace(pace: &mut Pace, name: &str, value: &str) -> Result<bool, String> {
    let number = || value.parse().map_err(|_| format!("{name} needs a number"));
    match name {
        "first-byte" => pace.first_byte_ms = number()?,
        "gap" => pace.gap_ms = number()?,
        "delta" => pace.delta_bytes = usize::try_from(number()?).unwrap_or(usize::MAX),
        "split" => pace.split = parse(value)?,
        "crlf" => pace.crlf = true,
        "one-byte" => pace.one_byte_writes = true,
        "coding" => pace.coding = Some(parse(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses a value by its name in JSON.
fn parse<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_value(Value::from(value)).map_err(|error| error.to_string())
}

fn fault(name: &str, value: &str) -> Result<Fault, String> {
    let number = || {
        value
            .parse::<usize>()
            .map_err(|_| format!("{name} needs a number"))
    };
    let status = |status: usize| u16::try_from(status).map_err(|_| "no such status".to_owned());
    let limited = |wait: RetryAfter| {
        Fault::Status(Status {
            status: 429,
            retry_after: Some(wait),
        })
    };
    Ok(match name {
        "html" => Fault::Html(status(number()?)?),
        "reset" => Fault::Reset,
        "refuse-ms" => Fault::RefuseMs(number()? as u64),
        "cut-event" => Fault::CutAfterEvent(number()?),
        "cut-byte" => Fault::CutAfterByte(number()?),
        "reset-event" => Fault::ResetAfterEvent(number()?),
        "malformed" => Fault::MalformedAfterEvent(number()?),
        "error-event" => Fault::ErrorAfterEvent(number()?),
        "failed" => Fault::FailedAfterEvent(number()?),
        "retry-after-date" => limited(RetryAfter::Date(number()? as u64)),
        "retry-after-limits" => limited(RetryAfter::Limits(number()? as u64)),
        _ => return Err(format!("the fake provider knows no directive {name}")),
    })
}

fn wording(value: &str) -> Result<Wording, String> {
    Ok(match value {
        "anthropic" => Wording::Anthropic,
        "anthropic-output" => Wording::AnthropicOutput,
        "openai" => Wording::OpenAi,
        "responses" => Wording::Responses,
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

    use super::named;
    use crate::faults::Fault;
    use crate::plan::{Behaviour, Plan, Wording};
    use crate::stream::coding::Coding;
    use crate::stream::pace::Split;

    fn plan(model: &str, asked_before: u64) -> Plan {
        named(model, asked_before).unwrap().plan
    }

    #[test]
    fn model_names_select_the_behaviour() {
        assert_eq!(plan("claude-fake", 0), Plan::default());
        let of_name = plan("m+status=429+retry-after=2+delay=5", 0);
        assert_eq!(of_name.delay, Duration::from_millis(5));
        let retry_after = Some(Duration::from_secs(2));
        assert_eq!(
            of_name.behaviour,
            Behaviour::Fail {
                status: 429,
                retry_after
            }
        );
        let of_name = plan("m+call=look+times=1", 0);
        assert_eq!(of_name.behaviour, Behaviour::Call("look".to_owned()));
        let of_name = plan("m+ptl=gemini+window=9+times=2", 1);
        assert_eq!(of_name.behaviour, Behaviour::TooLong(Wording::Gemini));
        let of_name = plan("m+ptl=gemini+window=9+times=2", 2);
        assert_eq!(
            (of_name.behaviour, of_name.window),
            (Behaviour::Echo, Some(9))
        );
        let of_name = plan("m+split=utf8+crlf+coding=br+cut-event=3", 0);
        assert_eq!(of_name.pace.split, Split::Utf8);
        assert_eq!(of_name.pace.coding, Some(Coding::Br));
        assert_eq!(of_name.fault, Some(Fault::CutAfterEvent(3)));
        let agent = named("m+agent=7+output-bytes=90", 0).unwrap().agent;
        assert_eq!(
            agent.map(|agent| (agent.rounds, agent.output_bytes)),
            Some((7, (90, 90)))
        );
        assert!(named("m+split=word", 0).is_err());
        assert!(named("m+dealy=5", 0).is_err());
        assert!(named("m+delay=x", 0).is_err());
    }
}
