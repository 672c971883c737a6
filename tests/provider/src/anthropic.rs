//! Anthropic's Messages API: its validation and its answers.

mod blocks;
mod newest;
mod params;
mod tools;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::cache::Block;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::state::State;
use crate::tokens;
use crate::turn::{Answer, Offered, Prompt, Stop, Turn, Usage};

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

/// Returns the parts of a request that decide about its answer.
pub(crate) fn prompt(body: &Value) -> Prompt<'_> {
    let messages = &body["messages"];
    let texts = array(messages).iter().flat_map(|message| {
        let blocks = parts(&message["content"]);
        let texts = blocks.into_iter().filter_map(|block| {
            let text = block["text"].as_str()?;
            Some(text.to_owned())
        });
        texts.collect::<Vec<_>>()
    });
    let tool = |tool: &'_ Value| tool["name"].is_string();
    let tools = array(&body["tools"]).iter().filter(|it| tool(it));
    Prompt {
        texts: texts.collect(),
        tools: tools
            .map(|tool| Offered {
                name: tool["name"].as_str().unwrap_or_default(),
                schema: &tool["input_schema"],
            })
            .collect(),
        array: messages,
        max_output: body["max_tokens"].as_u64().unwrap_or(MAX_OUTPUT),
        thinks: matches!(
            body["thinking"]["type"].as_str(),
            Some("enabled" | "adaptive")
        ),
    }
}

/// Returns the message for a valid request.
pub(crate) fn message(state: &mut State, body: &Value, answer: &Answer) -> Value {
    let model = body["model"].as_str().unwrap_or_default();
    let blocks = cached_blocks(body);
    let input: u64 = blocks.iter().map(|block| block.tokens).sum();
    let cached = state.cached(model, &blocks);
    let stop = match answer.stop {
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refusal => "refusal",
    };
    let usage = answer.turn.usage.unwrap_or(Usage {
        input: input - cached.read - cached.written,
        read: cached.read,
        written: cached.written,
        output: answer.tokens(),
    });
    json!({
        "id": state.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content(state, body, &answer.turn),
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_input_tokens": usage.read,
            "cache_creation_input_tokens": usage.written,
            "service_tier": "standard",
        },
    })
}

/// Returns the blocks of an answer.
fn content(state: &mut State, body: &Value, turn: &Turn) -> Vec<Value> {
    let mut content = Vec::new();
    if !turn.thinking.is_empty() {
        let is_omitted = body["thinking"]["display"] == "omitted";
        let shown = if is_omitted { "" } else { &turn.thinking };
        content.push(json!({
            "type": "thinking", "thinking": shown, "signature": blocks::signature(shown),
        }));
    }
    if !turn.text.is_empty() {
        let mut block = json!({"type": "text", "text": turn.text});
        if !turn.citations.is_empty() {
            block["citations"] = turn.citations.iter().map(|quote| citation(quote)).collect();
        }
        content.push(block);
    }
    for call in &turn.calls {
        content.push(json!({
            "type": "tool_use", "id": state.id("toolu_"), "name": call.name, "input": call.input,
        }));
    }
    content
}

fn citation(quote: &str) -> Value {
    json!({
        "type": "char_location", "cited_text": quote, "document_index": 0,
        "document_title": null, "file_id": null,
        "start_char_index": 0, "end_char_index": quote.chars().count(),
    })
}

/// Returns the blocks of a prompt in the order of caching: tools, system, messages.
fn cached_blocks(body: &Value) -> Vec<Block> {
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
