//! OpenAI's Chat Completions: its validation and its answers.

mod messages;
mod params;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::cache::Block;
use crate::refusal::Refusal;
use crate::script::{Behaviour, Plan, input_of};
use crate::state::State;
use crate::{echo, tokens};

const WINDOW: u64 = 128_000;
const MAX_OUTPUT: u64 = 16_384;
/// The creation time in answers. Fixed, so that answers are equal in each run.
const CREATED: u64 = 1_700_000_000;

/// Checks the key.
pub(crate) fn admitted(headers: &HeaderMap) -> Result<(), Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
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
    plan.fits(&body["tools"], "/function/name")?;
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

/// Returns the answer to a valid request.
pub(crate) fn completion(state: &mut State, body: &Value, plan: &Plan) -> Value {
    let model = body["model"].as_str().unwrap_or_default();
    let (text, refusal, finish) = match &plan.behaviour {
        Behaviour::Say(text) => (text.clone(), Value::Null, "stop"),
        Behaviour::Refuse => (
            String::new(),
            json!("I'm sorry, I can't assist with that."),
            "stop",
        ),
        Behaviour::Cannot => (
            "I'm sorry, but I can't help with that.".to_owned(),
            Value::Null,
            "stop",
        ),
        Behaviour::Empty => (String::new(), Value::Null, "stop"),
        Behaviour::Call(_) => (String::new(), Value::Null, "tool_calls"),
        Behaviour::Cut => (echoed(body), Value::Null, "length"),
        _ => (echoed(body), Value::Null, "stop"),
    };
    let whole = tokens::count(&text);
    let cap = params::output(body).unwrap_or(MAX_OUTPUT);
    let (text, finish) = if whole > cap {
        (tokens::start(&text, cap).to_owned(), "length")
    } else if finish == "length" {
        (tokens::start(&text, whole / 2).to_owned(), finish)
    } else {
        (text, finish)
    };
    let (input, cached) = cached(state, model, body);
    let output = tokens::count(&text);
    let content = if text.is_empty() {
        Value::Null
    } else {
        json!(text)
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": refusal});
    if let Behaviour::Call(name) = &plan.behaviour {
        let input = input_of(name, &body["messages"]);
        let function = json!({"name": name, "arguments": input.to_string()});
        message["tool_calls"] =
            json!([{"id": state.id("call_"), "type": "function", "function": function}]);
    }
    json!({
        "id": state.id("chatcmpl-"),
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [{
            "index": 0,
            "message": message,
            "finish_reason": finish,
            "logprobs": null,
        }],
        "usage": {
            "prompt_tokens": input,
            "completion_tokens": output,
            "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    })
}

/// Returns the cached and the total tokens. OpenAI's cache is automatic: any message can end a cached prefix, in steps
/// of 128 tokens.
fn cached(state: &mut State, model: &str, body: &Value) -> (u64, u64) {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
    let blocks: Vec<Block> = tools
        .iter()
        .chain(messages)
        .map(|part| Block {
            bytes: part.to_string().into_bytes(),
            tokens: tokens::of(part),
            breakpoint: true,
        })
        .collect();
    let input = blocks.iter().map(|block| block.tokens).sum();
    let read = state.cached(model, &blocks).read;
    (input, read - read % 128)
}

fn echoed(body: &Value) -> String {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let said = messages
        .iter()
        .filter(|message| message["role"] != "system");
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    };
    let mut texts: Vec<String> = said.map(text).collect();
    let prompt = texts.pop().unwrap_or_default();
    echo::answer(&texts, &prompt)
}
