//! OpenAI's Responses API: its validation and its answers.

mod compact;
mod items;
mod pairs;
mod params;
mod stored;
mod tools;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(crate) use compact::compacted;
pub(crate) use stored::Stored;

use crate::billing::Charge;
use crate::openai::{self, CREATED, REFUSAL};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::state::State;
use crate::structured;
use crate::tokens;
use crate::turn::{Answer, Offered, Prompt, Stop};

const WINDOW: u64 = 272_000;
const MAX_OUTPUT: u64 = 128_000;
/// The beginning of this provider's encrypted contents. Others, such as those of transcripts, are not verified.
const ENCRYPTED: &str = "ZmFrZS";

/// Checks a request against all rules. Returns the number of tokens.
pub(crate) fn check(stored: &Stored, body: &Value, plan: &Plan) -> Result<u64, Refusal> {
    params::check(body, plan.max_output.unwrap_or(MAX_OUTPUT))?;
    tools::check(&body["tools"], "tools")?;
    tools::choice(body)?;
    structured::check_responses(body)?;
    let context = context(stored, body)?;
    // Stored items were valid when they were stored. Relations span requests: an output here can answer a stored call.
    items::check(&body["input"])?;
    pairs::check(stored, &context)?;
    let needed = size(body, &context);
    let window = plan.window.unwrap_or(WINDOW);
    if needed > window {
        return Err(too_long());
    }
    Ok(needed)
}

/// Returns the items of the previous response and those of the request.
fn context(stored: &Stored, body: &Value) -> Result<Vec<Value>, Refusal> {
    let mut context = match body["previous_response_id"].as_str() {
        None => Vec::new(),
        Some(id) => stored.context(id).ok_or_else(|| {
            Refusal::new(
                404,
                "invalid_request_error",
                format!("Previous response with id '{id}' not found."),
            )
            .param("previous_response_id")
            .code("previous_response_not_found")
        })?,
    };
    context.extend(input(body));
    Ok(context)
}

/// Returns the items of a request. A string equals one message of the user.
fn input(body: &Value) -> Vec<Value> {
    match &body["input"] {
        Value::String(text) => vec![json!({"type": "message", "role": "user", "content": text})],
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    }
}

fn size(body: &Value, context: &[Value]) -> u64 {
    let fixed = tokens::of(&body["instructions"]) + tokens::of(&body["tools"]);
    fixed + context.iter().map(tokens::of).sum::<u64>()
}

pub(crate) fn too_long() -> Refusal {
    Refusal::invalid(
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    )
    .param("input")
    .code("context_length_exceeded")
}

/// Returns the parts of a request that decide about its answer.
pub(crate) fn prompt(body: &Value) -> Prompt<'_> {
    let text = |item: &Value| match (&item["content"], &item["output"]) {
        (Value::String(text), _) | (_, Value::String(text)) => Some(text.clone()),
        (Value::Array(parts), _) | (_, Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            Some(texts.collect())
        }
        _ => None,
    };
    let is_said = |item: &&Value| {
        !matches!(item["role"].as_str(), Some("system" | "developer"))
            && item["type"] != "reasoning"
    };
    let texts = match &body["input"] {
        Value::String(text) => vec![text.clone()],
        input => array(input)
            .iter()
            .filter(is_said)
            .filter_map(text)
            .collect(),
    };
    // Codex adds tools during a conversation with items `{"type": "additional_tools", "tools": [...]}`.
    let added = array(&body["input"])
        .iter()
        .filter(|item| item["type"] == "additional_tools")
        .flat_map(|item| array(&item["tools"]));
    let tools = array(&body["tools"]).iter().chain(added);
    Prompt {
        texts,
        tools: tools.flat_map(offered).collect(),
        array: &body["input"],
        max_output: body["max_output_tokens"].as_u64().unwrap_or(MAX_OUTPUT),
        // Reasoning models reason without a request for it.
        thinks: !body["reasoning"].is_null() || openai::reasons(&body["model"]),
    }
}

/// Returns the tools of an entry of `tools`: one, or those of a namespace.
fn offered(entry: &Value) -> Vec<Offered<'_>> {
    let (namespace, tools) = if entry["type"] == "namespace" {
        (entry["name"].as_str(), array(&entry["tools"]))
    } else {
        (None, std::slice::from_ref(entry))
    };
    let callable = tools
        .iter()
        .filter(|tool| tool["type"] == "function" || tool["type"] == "custom");
    let described = callable.filter_map(|tool| {
        Some(Offered {
            namespace,
            name: tool["name"].as_str()?,
            schema: &tool["parameters"],
        })
    });
    described.collect()
}

/// Returns the response to a valid request, and stores it if the request wants that.
pub(crate) fn response(
    state: &mut State,
    charge: &Charge<'_>,
    body: &Value,
    answer: &Answer,
) -> Value {
    // The request was validated, so its previous response exists unless it was evicted since.
    let mut context = context(&state.stored, body).unwrap_or_else(|_| input(body));
    let usage = usage(state, charge, body, &context, answer);
    // With `{"type": "compaction_trigger"}` as the last item, the response is a compaction item and no answer.
    let is_trigger = |item: &Value| item["type"] == "compaction_trigger";
    let output = if context.last().is_some_and(is_trigger) {
        vec![compact::item(state)]
    } else {
        output(state, body, answer)
    };
    let (status, details) = match answer.stop {
        Stop::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        _ => ("completed", Value::Null),
    };
    let id = state.id("resp_");
    if is_stored(body) {
        context.extend(output.iter().cloned());
        state.stored.add(&id, context);
    }
    let mut whole = empty(body, &id);
    whole["status"] = json!(status);
    whole["completed_at"] = json!(CREATED);
    whole["incomplete_details"] = details;
    whole["output"] = json!(output);
    whole["usage"] = usage;
    whole
}

fn is_stored(body: &Value) -> bool {
    // The default of `store` is true.
    body["store"] != json!(false)
}

/// Returns a response without output, as a stream begins with it.
pub(crate) fn empty(body: &Value, id: &str) -> Value {
    let or = |name: &str, default: Value| match &body[name] {
        Value::Null => default,
        value => value.clone(),
    };
    json!({
        "id": id,
        "object": "response",
        "created_at": CREATED,
        "completed_at": null,
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": body["instructions"],
        "max_output_tokens": body["max_output_tokens"],
        "metadata": or("metadata", json!({})),
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
        "previous_response_id": body["previous_response_id"],
        "prompt_cache_key": body["prompt_cache_key"],
        "reasoning": or("reasoning", json!({"effort": null, "summary": null})),
        "service_tier": "default",
        "store": is_stored(body),
        "temperature": or("temperature", json!(1.0)),
        "text": or("text", json!({"format": {"type": "text"}})),
        "tool_choice": or("tool_choice", json!("auto")),
        "tools": or("tools", json!([])),
        "top_p": or("top_p", json!(1.0)),
        "truncation": or("truncation", json!("disabled")),
        "usage": null,
        "user": null,
    })
}

/// Returns the usage of a response.
fn usage(
    state: &mut State,
    charge: &Charge<'_>,
    body: &Value,
    context: &[Value],
    answer: &Answer,
) -> Value {
    let instructions = std::iter::once(&body["instructions"]).filter(|it| !it.is_null());
    let parts = array(&body["tools"]).iter().chain(instructions);
    let usage = openai::usage(state, charge, body, parts.chain(context), answer);
    let input = usage.input + usage.read + usage.written;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": tokens::count(&answer.turn.thinking)},
        "total_tokens": input + usage.output,
    })
}

/// Returns the items of an answer: reasoning, message, calls.
fn output(state: &mut State, body: &Value, answer: &Answer) -> Vec<Value> {
    let turn = &answer.turn;
    let mut output = Vec::new();
    if !turn.thinking.is_empty() {
        let summary = json!([{"type": "summary_text", "text": turn.thinking}]);
        let mut item = json!({"id": state.id("rs_"), "type": "reasoning", "summary": summary});
        let wants = |name: &Value| name == "reasoning.encrypted_content";
        // Clients that store nothing need the encrypted content to send reasoning back in the next request.
        if array(&body["include"]).iter().any(wants) {
            item["encrypted_content"] = json!(encrypted(&summary));
        }
        output.push(item);
    }
    let part = if answer.stop == Stop::Refusal {
        Some(json!({"type": "refusal", "refusal": REFUSAL}))
    } else if turn.text.is_empty() {
        None
    } else {
        Some(json!({
            "type": "output_text", "text": turn.text, "annotations": [], "logprobs": [],
        }))
    };
    let status = match answer.stop {
        Stop::Length => "incomplete",
        _ => "completed",
    };
    if let Some(part) = part {
        output.push(json!({
            "id": state.id("msg_"), "type": "message", "role": "assistant", "status": status,
            "content": [part],
        }));
    }
    let offers_custom = |name: &str| {
        let mut tools = array(&body["tools"]).iter();
        tools.any(|tool| tool["type"] == "custom" && tool["name"] == name)
    };
    for call in &turn.calls {
        let (name, call_id) = (&call.name, state.id("call_"));
        // A custom tool takes free text, so its call has `input` in place of JSON in `arguments`.
        output.push(if offers_custom(name) {
            let input = call.input["input"].as_str().unwrap_or_default();
            json!({
                "id": state.id("ctc_"), "type": "custom_tool_call", "status": status,
                "call_id": call_id, "name": name, "input": input,
            })
        } else {
            let mut item = json!({
                "id": state.id("fc_"), "type": "function_call", "status": status,
                "call_id": call_id, "name": name, "arguments": call.input.to_string(),
            });
            if let Some(namespace) = &call.namespace {
                item["namespace"] = json!(namespace);
            }
            item
        });
    }
    output
}

/// Returns the encrypted content for a reasoning summary.
fn encrypted(summary: &Value) -> String {
    let digest = blake3::hash(summary.to_string().as_bytes());
    format!("{ENCRYPTED}{}", STANDARD.encode(digest.as_bytes()))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
