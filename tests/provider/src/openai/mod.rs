//! OpenAI's Chat Completions: its validation and its answers.

mod messages;
mod params;

use std::time::Duration;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::billing::{Block, Charge};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::state::State;
use crate::structured;
use crate::tokens;
use crate::turn::{Answer, Offered, Prompt, Stop, Usage};

const WINDOW: u64 = 128_000;
const MAX_OUTPUT: u64 = 16_384;
/// The creation time in answers. Fixed, so that answers are equal in each run.
pub(crate) const CREATED: u64 = 1_700_000_000;
/// The lifetime of a cached prefix after its last use.
const CACHE: Duration = Duration::from_mins(10);
/// The lifetime with `prompt_cache_retention: 24h`.
const LONG_CACHE: Duration = Duration::from_hours(24);
/// The text of a refusal.
pub(crate) const REFUSAL: &str = "I'm sorry, I can't assist with that.";

/// Checks the key.
pub(crate) fn admitted(headers: &HeaderMap) -> Result<(), Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    // Azure's clients send the key in the header `api-key`.
    match bearer.or(header("api-key")) {
        None | Some("") => Err(Refusal::new(
            401,
            "invalid_request_error",
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth.",
        )),
        Some("invalid") => {
            Err(
                Refusal::new(401, "invalid_request_error", "Incorrect API key provided.")
                    .code("invalid_api_key"),
            )
        }
        Some(_) => Ok(()),
    }
}

/// Checks a request against all rules. Returns the number of tokens.
pub(crate) fn check(body: &Value, plan: &Plan) -> Result<u64, Refusal> {
    let max_output = plan.max_output.unwrap_or(MAX_OUTPUT);
    let output = params::check(body, max_output)?;
    messages::check(&body["messages"])?;
    structured::check_chat(body)?;
    let needed = tokens::of(&body["messages"]) + tokens::of(&body["tools"]);
    let window = plan.window.unwrap_or(WINDOW);
    if needed > window {
        return Err(too_long(needed, window));
    }
    let asked = needed + output.unwrap_or(0);
    if asked > window {
        let output = output.unwrap_or(0);
        return Err(context(format!(
            "This model's maximum context length is {window} tokens. However, you requested {asked} tokens ({needed} in the messages, {output} in the completion). Please reduce the length of the messages or completion."
        )));
    }
    Ok(needed)
}

pub(crate) fn too_long(needed: u64, limit: u64) -> Refusal {
    context(format!(
        "This model's maximum context length is {limit} tokens. However, your messages resulted in {needed} tokens. Please reduce the length of the messages."
    ))
}

fn context(message: String) -> Refusal {
    Refusal::invalid(message)
        .param("messages")
        .code("context_length_exceeded")
}

/// Returns true for the name of a model that reasons by default.
pub(crate) fn reasons(model: &Value) -> bool {
    model.as_str().is_some_and(params::reasons)
}

/// Returns the parts of a request that decide about its answer.
pub(crate) fn prompt(body: &Value) -> Prompt<'_> {
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    };
    let said = array(&body["messages"])
        .iter()
        .filter(|message| message["role"] != "system");
    // Definitions are nested: `{"type": "function", "function": {"name": …}}`.
    let functions = array(&body["tools"]).iter().map(|tool| &tool["function"]);
    Prompt {
        texts: said.map(text).collect(),
        tools: functions
            .filter_map(|function| {
                let name = function["name"].as_str()?;
                Some(Offered::new(name, &function["parameters"]))
            })
            .collect(),
        array: &body["messages"],
        max_output: params::output(body).unwrap_or(MAX_OUTPUT),
        // The reasoning of a model is not part of a completion.
        thinks: false,
    }
}

/// Returns the completion for a valid request.
pub(crate) fn completion(
    state: &mut State,
    charge: &Charge<'_>,
    body: &Value,
    answer: &Answer,
) -> Value {
    let finish = match answer.stop {
        // A refusal is the field `refusal` of the message, without a finish reason of its own.
        Stop::End | Stop::Refusal => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
    };
    let parts = array(&body["tools"]).iter().chain(array(&body["messages"]));
    let usage = usage(state, charge, body, parts, answer);
    // OpenAI's `prompt_tokens` includes cached tokens. Anthropic's `input_tokens` excludes them.
    let input = usage.input + usage.read + usage.written;
    let text = &answer.turn.text;
    // A completion with calls alone has `"content": null`, which clients distinguish from an empty text.
    let content = if text.is_empty() {
        Value::Null
    } else {
        json!(text)
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if answer.stop == Stop::Refusal {
        message["refusal"] = json!(REFUSAL);
    }
    for call in &answer.turn.calls {
        let function = json!({"name": call.name, "arguments": call.input.to_string()});
        let call = json!({"id": state.id("call_"), "type": "function", "function": function});
        match message["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => message["tool_calls"] = json!([call]),
        }
    }
    json!({
        "id": state.id("chatcmpl-"),
        "object": "chat.completion",
        "created": CREATED,
        "model": charge.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
        "choices": [{
            "index": 0,
            "message": message,
            "finish_reason": finish,
            "logprobs": null,
        }],
        "usage": {
            "prompt_tokens": input,
            "completion_tokens": usage.output,
            "total_tokens": input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.read, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
    })
}

/// Bills a request with these parts of a prompt. Returns the usage that the answer reports.
pub(crate) fn usage<'a>(
    state: &mut State,
    charge: &Charge<'_>,
    body: &Value,
    parts: impl Iterator<Item = &'a Value>,
    answer: &Answer,
) -> Usage {
    let blocks: Vec<Block> = parts
        .map(|part| Block {
            bytes: part.to_string().into_bytes(),
            tokens: tokens::of(part),
            marker: None,
        })
        .collect();
    let cache_key = body["prompt_cache_key"].as_str().unwrap_or_default();
    let lifetime = if body["prompt_cache_retention"] == "24h" {
        LONG_CACHE
    } else {
        CACHE
    };
    let counted = state.billing.openai(charge, cache_key, lifetime, &blocks);
    answer.turn.usage.unwrap_or(Usage {
        input: counted.input,
        read: counted.read,
        written: 0,
        output: counted.output,
    })
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
