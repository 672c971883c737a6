//! Anthropic's Messages API: its validation and its answers.

mod betas;
mod blocks;
pub(crate) mod context_management;
mod markers;
mod mid_system;
mod newest;
mod params;
mod threads;
mod tools;

use std::borrow::Cow;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use betas::Betas;
pub(crate) use threads::Threads;

use crate::billing::{Block, Charge, Counted};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::state::State;
use crate::turn::{Answer, Offered, Prompt, Stop, Turn, Usage};
use crate::{structured, tokens};

/// The context window and the maximum output by a part of the model's name. The last row is for all others.
const LIMITS: [(&str, u64, u64); 8] = [
    ("opus-5", 1_000_000, 128_000),
    ("fable-5", 1_000_000, 128_000),
    ("mythos-5", 1_000_000, 128_000),
    ("sonnet-5", 1_000_000, 128_000),
    ("opus-4-8", 1_000_000, 128_000),
    ("opus-4-7", 1_000_000, 128_000),
    ("opus-4-6", 1_000_000, 128_000),
    ("", 200_000, 64_000),
];

/// Returns the context window and the maximum output of a model.
fn limits(model: &str) -> (u64, u64) {
    // Names have prefixes and suffixes, such as `claude-opus-5-5`, so a row matches anywhere in the name.
    let row = LIMITS.iter().find(|(part, ..)| model.contains(part));
    row.map_or((0, 0), |(_, window, output)| (*window, *output))
}

/// Checks the key and the version.
pub(crate) fn admitted(headers: &HeaderMap) -> Result<(), Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let denied = |message: &str| Refusal::new(401, "authentication_error", message);
    // OAuth clients, such as Claude Code with a subscription, send a bearer token instead of an API key.
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
    let (window, max_output) = limits(body["model"].as_str().unwrap_or_default());
    let max_output = plan.max_output.unwrap_or(max_output);
    let betas = Betas::of(headers)?;
    params::known(body, &params::KNOWN)?;
    let max_tokens = params::check(body, max_output)?;
    conversation(&betas, headers, body)?;
    structured::check_messages(body)?;
    let needed = context_management::size(&context_management::apply(body).body);
    let window = plan.window.unwrap_or(window);
    if needed > window {
        return Err(too_long(needed, window));
    }
    // Input and output share the window. A prompt that fits can still be rejected for its `max_tokens`.
    if needed + max_tokens > window {
        return Err(output_too_long(needed, max_tokens, window));
    }
    Ok(needed)
}

/// Checks a request for a count. Returns the count.
pub(crate) fn counted(headers: &HeaderMap, body: &Value) -> Result<Value, Refusal> {
    let betas = Betas::of(headers)?;
    params::known(body, &params::OF_COUNT)?;
    params::model(body)?;
    conversation(&betas, headers, body)?;
    let original = context_management::size(body);
    let edited = context_management::apply(body);
    // A count previews the edits: `input_tokens` is the size after them.
    let mut counted = json!({"input_tokens": context_management::size(&edited.body)});
    if !body["context_management"].is_null() {
        counted["context_management"] = json!({"original_input_tokens": original});
    }
    Ok(counted)
}

/// Checks the conversation of a request, which responses and counts have in common.
fn conversation(betas: &Betas, headers: &HeaderMap, body: &Value) -> Result<(), Refusal> {
    betas.check(body)?;
    blocks::check(betas, body)?;
    markers::check(body)?;
    tools::check(body)?;
    mid_system::check_places(array(&body["messages"]))?;
    context_management::check(betas, body)?;
    if headers
        .get("anthropic-version")
        .is_some_and(|version| version == newest::NAME)
    {
        newest::check(body)?;
    }
    Ok(())
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
            .map(|tool| {
                let name = tool["name"].as_str().unwrap_or_default();
                Offered::new(name, &tool["input_schema"])
            })
            .collect(),
        array: messages,
        max_output: body["max_tokens"].as_u64().unwrap_or(u64::MAX),
        thinks: matches!(
            body["thinking"]["type"].as_str(),
            Some("enabled" | "adaptive")
        ),
    }
}

/// Returns the message for a valid request.
pub(crate) fn message(
    state: &mut State,
    charge: &Charge<'_>,
    body: &Value,
    answer: &Answer,
) -> Value {
    let edited = context_management::apply(body);
    let compaction = edited
        .summary
        .as_ref()
        .map(|summary| compaction(state, charge, body, summary));
    // A paused response ends after the summary. Its second iteration never runs and is not billed.
    let counted = if edited.pauses {
        Counted::default()
    } else {
        state.billing.messages(charge, &cached_blocks(&edited.body))
    };
    let stop = match answer.stop {
        _ if edited.pauses => "compaction",
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refusal => "refusal",
    };
    let usage = answer.turn.usage.unwrap_or(Usage {
        input: counted.input,
        read: counted.read,
        written: counted.written_5m + counted.written_1h,
        output: counted.output,
    });
    let mut content = Vec::new();
    if let Some(summary) = &edited.summary {
        content.push(json!({"type": "compaction", "content": summary}));
    }
    if !edited.pauses {
        content.extend(self::content(state, body, &answer.turn));
    }
    let mut message = json!({
        "id": state.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": charge.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_input_tokens": usage.read,
            "cache_creation_input_tokens": usage.written,
            "cache_creation": {
                // A scripted usage may be below the counted one, so the two parts are fitted into its total.
                "ephemeral_5m_input_tokens": usage.written.saturating_sub(counted.written_1h),
                "ephemeral_1h_input_tokens": usage.written.min(counted.written_1h),
            },
            "service_tier": "standard",
        },
    });
    if !body["context_management"].is_null() {
        message["context_management"] = json!({"applied_edits": edited.applied});
    }
    if let Some(compaction) = compaction {
        // The usage of the message does not contain that of the compaction.
        let mut iterations = vec![iteration("compaction", &compaction)];
        if !edited.pauses {
            iterations.push(iteration("message", &counted));
        }
        message["usage"]["iterations"] = json!(iterations);
    }
    message
}

/// Bills the request that writes a summary.
fn compaction(state: &mut State, charge: &Charge<'_>, body: &Value, summary: &str) -> Counted {
    let charge = Charge {
        output: tokens::count(summary),
        ..*charge
    };
    state.billing.messages(&charge, &cached_blocks(body))
}

fn iteration(kind: &str, counted: &Counted) -> Value {
    json!({
        "type": kind,
        "input_tokens": counted.input,
        "output_tokens": counted.output,
        "cache_read_input_tokens": counted.read,
        "cache_creation_input_tokens": counted.written_5m + counted.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counted.written_5m,
            "ephemeral_1h_input_tokens": counted.written_1h,
        },
    })
}

/// Returns the blocks of an answer.
fn content(state: &mut State, body: &Value, turn: &Turn) -> Vec<Value> {
    let mut content = Vec::new();
    if !turn.thinking.is_empty() {
        // With `"display": "omitted"`, the block has a signature and no text.
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
    for tool in array(&body["tools"]) {
        blocks.push(cached_block("tool", tool));
    }
    for block in parts(&body["system"]) {
        blocks.push(cached_block("system", &block));
    }
    let first_message = blocks.len();
    for message in array(&body["messages"]) {
        let role = message["role"].as_str().unwrap_or_default();
        for block in parts(&message["content"]) {
            blocks.push(cached_block(role, &block));
        }
    }
    if let Some(first) = blocks.get_mut(first_message) {
        // A change of these parameters invalidates the cached messages, but not the tools and the system prompt.
        let has_images = has_images(&body["messages"]);
        let parameters = format!(
            "{} {} {has_images}\n",
            body["tool_choice"], body["thinking"]
        );
        // Digests are chained. Bytes at the start of the first message change all later positions and no earlier one.
        first.bytes.splice(..0, parameters.into_bytes());
    }
    if let Some(lifetime) = markers::lifetime(body)
        // Blocks without tokens cannot be cached, so the marker of the request moves to an earlier block.
        && let Some(last) = blocks.iter_mut().rev().find(|block| block.tokens > 0)
    {
        last.marker = last.marker.or(Some(lifetime));
    }
    blocks
}

fn has_images(messages: &Value) -> bool {
    let blocks = array(messages)
        .iter()
        .flat_map(|message| array(&message["content"]));
    blocks
        .flat_map(|block| array(&block["content"]).iter().chain([block]))
        .any(|block| block["type"] == "image")
}

fn cached_block(role: &str, value: &Value) -> Block {
    let mut bare = value.clone();
    // Positions end at whole blocks, so a marker inside a tool result counts for the result.
    let inner = array(&value["content"]).iter();
    let marker = inner
        .chain([value])
        .filter_map(markers::lifetime)
        .next_back();
    markers::remove(&mut bare);
    Block {
        bytes: format!("{role}\n{bare}").into_bytes(),
        tokens: tokens::of(&bare),
        marker,
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the blocks of a content. A string equals one text block.
fn parts(content: &Value) -> Vec<Cow<'_, Value>> {
    match content {
        Value::String(text) => vec![Cow::Owned(json!({"type": "text", "text": text}))],
        Value::Array(blocks) => blocks.iter().map(Cow::Borrowed).collect(),
        _ => Vec::new(),
    }
}
