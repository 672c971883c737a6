//! Anthropic's Messages API: its validation and its answers.

mod blocks;
mod newest;
mod params;
mod tools;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::cache::Block;
use crate::refusal::Refusal;
use crate::script::{Behaviour, Plan, input_of};
use crate::state::State;
use crate::{echo, tokens};

const WINDOW: u64 = 200_000;
const MAX_OUTPUT: u64 = 64_000;

/// Checks the key and the version.
pub(crate) fn admitted(headers: &HeaderMap) -> Result<(), Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let denied = |message: &str| Refusal::new(401, "authentication_error", message);
    match header("x-api-key").or(bearer) {
        None => return Err(denied("x-api-key header is required")),
        Some("" | "invalid") => return Err(denied("invalid x-api-key")),
        Some(_) => {}
    }
    match header("anthropic-version") {
        None => Err(Refusal::invalid("anthropic-version: header is required")),
        Some("2023-06-01" | "2023-01-01" | newest::NAME) => Ok(()),
        Some(version) => Err(Refusal::invalid(format!(
            "anthropic-version: \"{version}\" is not a valid version"
        ))),
    }
}

/// Checks a request against the rules of the API version in its headers. Returns the number of tokens.
pub(crate) fn check(headers: &HeaderMap, body: &Value, plan: &Plan) -> Result<u64, Refusal> {
    let max_output = plan.max_output.unwrap_or(MAX_OUTPUT);
    let max_tokens = params::check(body, max_output)?;
    blocks::check(body)?;
    tools::check(body)?;
    if headers
        .get("anthropic-version")
        .is_some_and(|version| version == newest::NAME)
    {
        newest::check(body)?;
    }
    plan.fits(&body["tools"], "/name")?;
    let needed = ["system", "tools", "messages"]
        .iter()
        .map(|name| tokens::of(&body[*name]))
        .sum();
    let window = plan.window.unwrap_or(WINDOW);
    if needed > window {
        return Err(too_long(needed, window));
    }
    if needed + max_tokens > window {
        return Err(output_too_long(needed, max_tokens, window));
    }
    Ok(needed)
}

pub(crate) fn too_long(needed: u64, limit: u64) -> Refusal {
    Refusal::invalid(format!(
        "prompt is too long: {needed} tokens > {limit} maximum"
    ))
}

pub(crate) fn output_too_long(needed: u64, output: u64, limit: u64) -> Refusal {
    Refusal::invalid(format!(
        "input length and `max_tokens` exceed context limit: {needed} + {output} > {limit}, decrease input length or `max_tokens` and try again"
    ))
}

/// Returns the answer to a valid request.
pub(crate) fn message(state: &mut State, body: &Value, plan: &Plan) -> Value {
    let model = body["model"].as_str().unwrap_or_default();
    let cap = body["max_tokens"].as_u64().unwrap_or(MAX_OUTPUT);
    let (text, stop) = match &plan.behaviour {
        Behaviour::Say(text) => (text.clone(), "end_turn"),
        Behaviour::Refuse => (String::new(), "refusal"),
        Behaviour::Cannot => (
            "I'm sorry, but I can't help with that.".to_owned(),
            "end_turn",
        ),
        Behaviour::Empty => (String::new(), "end_turn"),
        Behaviour::Call(_) => (String::new(), "tool_use"),
        Behaviour::Cut => (echoed(body), "max_tokens"),
        _ => (echoed(body), "end_turn"),
    };
    let whole = tokens::count(&text);
    let (text, stop) = if whole > cap {
        (tokens::start(&text, cap).to_owned(), "max_tokens")
    } else if stop == "max_tokens" {
        (tokens::start(&text, whole / 2).to_owned(), stop)
    } else {
        (text, stop)
    };
    let blocks = prompt(body);
    let input: u64 = blocks.iter().map(|block| block.tokens).sum();
    let cached = state.cached(model, &blocks);
    let content = match &plan.behaviour {
        Behaviour::Call(name) => {
            let input = input_of(name, &body["messages"]);
            json!([{"type": "tool_use", "id": state.id("toolu_"), "name": name, "input": input}])
        }
        _ if text.is_empty() => json!([]),
        _ => json!([{"type": "text", "text": text}]),
    };
    json!({
        "id": state.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": {
            "input_tokens": input - cached.read - cached.written,
            "output_tokens": tokens::count(&text),
            "cache_read_input_tokens": cached.read,
            "cache_creation_input_tokens": cached.written,
        },
    })
}

/// Returns the prompt in the order of caching: tools, system, messages.
fn prompt(body: &Value) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut add = |role: &str, value: &Value| {
        let breakpoint = value
            .get("cache_control")
            .is_some_and(|control| !control.is_null());
        let mut bare = value.clone();
        if let Some(object) = bare.as_object_mut() {
            object.remove("cache_control");
        }
        blocks.push(Block {
            bytes: format!("{role}\n{bare}").into_bytes(),
            tokens: tokens::of(&bare),
            breakpoint,
        });
    };
    for tool in array(&body["tools"]) {
        add("tool", tool);
    }
    for block in parts(&body["system"]) {
        add("system", &block);
    }
    for message in array(&body["messages"]) {
        let role = message["role"].as_str().unwrap_or_default();
        for block in parts(&message["content"]) {
            add(role, &block);
        }
    }
    blocks
}

fn echoed(body: &Value) -> String {
    let mut texts: Vec<String> = Vec::new();
    for message in array(&body["messages"]) {
        let blocks = parts(&message["content"]);
        texts.extend(
            blocks
                .iter()
                .filter_map(|block| Some(block["text"].as_str()?.to_owned())),
        );
    }
    let prompt = texts.pop().unwrap_or_default();
    echo::answer(&texts, &prompt)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the blocks of a content. A string equals one text block.
fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    }
}
