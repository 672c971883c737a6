//! Compaction of a conversation by the provider.

use serde_json::{Value, json};

use super::{ENCRYPTED, Stored, array, context, items, pairs, params, usage};
use crate::billing::Charge;
use crate::openai::CREATED;
use crate::refusal::Refusal;
use crate::state::State;
use crate::turn::Answer;

const KNOWN: [&str; 8] = [
    // `stream`, `store` and `tools` are missing on purpose: the endpoint rejects them as unknown.
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
];
/// The output tokens of a compaction.
const OUTPUT: u64 = 64;

/// Returns a compaction item.
pub(super) fn item(state: &mut State) -> Value {
    json!({
        "id": state.id("cmp_"), "type": "compaction",
        "encrypted_content": format!("{ENCRYPTED}compaction"),
    })
}

/// Returns the compacted conversation: the messages of the user, then a compaction item.
pub(crate) fn compacted(
    state: &mut State,
    charge: &Charge<'_>,
    body: &Value,
) -> Result<Value, Refusal> {
    params::known(body, &KNOWN)?;
    params::model(body)?;
    items::check(&body["input"])?;
    let context = checked(&state.stored, body)?;
    let mut output: Vec<Value> = context
        .iter()
        .filter(|item| item["role"] == "user")
        .map(|item| user_message(state, item))
        .collect();
    output.push(item(state));
    let answer = Answer::default();
    let charge = Charge {
        output: OUTPUT,
        ..*charge
    };
    let usage = usage(state, &charge, body, &context, &answer);
    Ok(json!({
        "id": state.id("resp_"),
        "object": "response.compaction",
        "created_at": CREATED,
        "output": output,
        "usage": usage,
    }))
}

fn checked(stored: &Stored, body: &Value) -> Result<Vec<Value>, Refusal> {
    let context = context(stored, body)?;
    pairs::check(stored, &context)?;
    Ok(context)
}

/// Returns a message in the form of output: with an id, a status, and a list of contents.
fn user_message(state: &mut State, item: &Value) -> Value {
    let content = match &item["content"] {
        Value::String(text) => json!([{"type": "input_text", "text": text}]),
        content => json!(array(content)),
    };
    json!({
        "id": state.id("msg_"), "type": "message", "role": "user", "status": "completed",
        "content": content,
    })
}
