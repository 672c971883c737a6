//! Validation of the relations between items: calls and outputs, reasoning and the item after it, repeated ids.

use std::collections::HashSet;

use serde_json::Value;

use super::{ENCRYPTED, Stored, encrypted};
use crate::refusal::Refusal;

/// The types of calls and of their outputs, with the words of the errors.
const PAIRS: [(&str, &str, &str); 6] = [
    ("function_call", "function_call_output", "function call"),
    (
        "custom_tool_call",
        "custom_tool_call_output",
        "custom tool call",
    ),
    (
        "local_shell_call",
        "local_shell_call_output",
        "local shell call",
    ),
    ("shell_call", "shell_call_output", "shell call"),
    (
        "apply_patch_call",
        "apply_patch_call_output",
        "apply patch call",
    ),
    ("computer_call", "computer_call_output", "computer call"),
];
/// The types of items that a model writes after its reasoning.
const FOLLOWING: [&str; 14] = [
    "reasoning",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "tool_search_call",
    "compaction",
];

pub(super) fn check(stored: &Stored, items: &[Value]) -> Result<(), Refusal> {
    unique(items)?;
    calls(items)?;
    for (at, item) in items.iter().enumerate() {
        match item["type"].as_str() {
            Some("reasoning") => reasoning(stored, item, items.get(at + 1))?,
            Some("item_reference") => persisted(stored, item)?,
            Some("compaction") => compaction(item)?,
            Some("compaction_trigger") if at + 1 < items.len() => {
                return Err(invalid(
                    "A 'compaction_trigger' must be the final input item.",
                ));
            }
            _ => with_reasoning(stored, item, &items[..at])?,
        }
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::invalid(message).param("input")
}

/// Rejects two items with one id. References repeat the id of their item.
fn unique(items: &[Value]) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    let own = items.iter().filter(|item| item["type"] != "item_reference");
    match own
        .filter_map(|item| item["id"].as_str())
        .find(|id| !seen.insert(*id))
    {
        None => Ok(()),
        Some(id) => Err(invalid(format!(
            "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
        ))),
    }
}

/// Rejects an output without an earlier call, and a call without a later output.
fn calls(items: &[Value]) -> Result<(), Refusal> {
    for (call, output, words) in PAIRS {
        // Each type of call has its own output type. A `function_call_output` does not answer a `custom_tool_call`.
        let mut open: Vec<&str> = Vec::new();
        let mut closed = HashSet::new();
        for item in items {
            // A `local_shell_call_output` may have the id of its call in `id` instead of `call_id`.
            let Some(id) = item["call_id"].as_str().or(item["id"].as_str()) else {
                continue;
            };
            if item["type"] == call {
                open.push(id);
            } else if item["type"] == output {
                let found = open.iter().position(|waiting| *waiting == id);
                match found {
                    Some(at) => {
                        open.remove(at);
                        closed.insert(id);
                    }
                    // A second output for one call is accepted, and the model sees both.
                    None if closed.contains(id) => {}
                    None => {
                        return Err(invalid(format!(
                            "No tool call found for {words} output with call_id {id}."
                        )));
                    }
                }
            }
        }
        if let Some(id) = open.first() {
            return Err(invalid(format!("No tool output found for {words} {id}.")));
        }
    }
    Ok(())
}

fn not_decrypted(id: &str) -> Refusal {
    Refusal::invalid(format!(
        "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted or parsed."
    ))
    .code("invalid_encrypted_content")
}

/// Rejects the compaction of another author: encrypted content is base64.
fn compaction(item: &Value) -> Result<(), Refusal> {
    let content = item["encrypted_content"].as_str().unwrap_or_default();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte);
    if content.bytes().all(is_base64) {
        return Ok(());
    }
    Err(not_decrypted(item["id"].as_str().unwrap_or_default()))
}

/// Rejects reasoning that the provider cannot read, or that has lost the item after it.
fn reasoning(stored: &Stored, item: &Value, next: Option<&Value>) -> Result<(), Refusal> {
    let id = item["id"].as_str().unwrap_or_default();
    match item["encrypted_content"].as_str() {
        // Without encrypted content, the provider can only read reasoning that it has stored.
        None => persisted(stored, item)?,
        Some(content) => {
            let is_ours = content.starts_with(ENCRYPTED);
            if is_ours && content != encrypted(&item["summary"]) {
                return Err(not_decrypted(id));
            }
        }
    }
    let follows = next.is_some_and(|next| {
        let kind = next["type"].as_str().unwrap_or("message");
        FOLLOWING.contains(&kind) || kind == "message" && next["role"] == "assistant"
    });
    if follows {
        return Ok(());
    }
    Err(invalid(format!(
        "Item '{id}' of type 'reasoning' was provided without its required following item."
    )))
}

/// Rejects an item that refers to content that the provider has not stored.
fn persisted(stored: &Stored, item: &Value) -> Result<(), Refusal> {
    let id = item["id"].as_str().unwrap_or_default();
    if stored.has_item(id) {
        return Ok(());
    }
    Err(Refusal::new(
        404,
        "invalid_request_error",
        format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
        ),
    )
    .param("input"))
}

/// Rejects a stored item whose reasoning was removed.
fn with_reasoning(stored: &Stored, item: &Value, before: &[Value]) -> Result<(), Refusal> {
    let Some(id) = item["id"].as_str() else {
        return Ok(());
    };
    let Some(reasoning) = stored.reasoning_of(id) else {
        return Ok(());
    };
    if before.iter().any(|item| item["id"] == reasoning) {
        return Ok(());
    }
    let kind = item["type"].as_str().unwrap_or("message");
    Err(invalid(format!(
        "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{reasoning}'."
    )))
}
