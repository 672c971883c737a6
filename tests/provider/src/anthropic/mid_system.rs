//! Validation of `system` messages inside `messages`.

use serde_json::Value;

use super::betas::{Betas, extra};
use super::{array, blocks};
use crate::refusal::Refusal;

/// The betas with which a request may have such messages.
const MESSAGES: [&str; 3] = ["mid-conversation-", "per-turn-control-", "inline-tools-"];
/// The betas with which such a message may have an output configuration.
const OUTPUT_CONFIG: [&str; 2] = ["per-turn-control-", "mid-conversation-output-config-"];
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

pub(super) fn check(betas: &Betas, message: &Value, at: &str) -> Result<(), Refusal> {
    if !betas.has(&MESSAGES) {
        return Err(Refusal::invalid(
            "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.",
        ));
    }
    fields(betas, message, at)?;
    let has_config = message["output_config"]
        .as_object()
        .is_some_and(|config| !config.is_empty());
    match &message["content"] {
        Value::Null if has_config => Ok(()),
        Value::String(text) if text.trim().is_empty() && !has_config => Err(empty(at)),
        Value::String(_) => Ok(()),
        Value::Array(content) if content.is_empty() && !has_config => Err(empty(at)),
        Value::Array(content) => content
            .iter()
            .enumerate()
            .try_for_each(|(index, block)| part(betas, block, &format!("{at}.content.{index}"))),
        _ => Err(Refusal::invalid(format!("{at}.content: Field required"))),
    }
}

/// Checks the places of all system messages. Consecutive ones have one place.
pub(super) fn check_places(messages: &[Value]) -> Result<(), Refusal> {
    let is_system = |message: &Value| message["role"] == "system";
    // A message with an output configuration only is accepted everywhere.
    let is_directive = |message: &Value| {
        is_system(message)
            && array(&message["content"]).is_empty()
            && !message["content"].is_string()
    };
    for (index, message) in messages.iter().enumerate() {
        if !is_system(message) || is_directive(message) {
            continue;
        }
        let misplaced = |rule: &str| {
            Err(Refusal::invalid(format!(
                "messages.{index}: role 'system' must {rule}; the directive-only form (content: [] with output_config) is accepted at any position"
            )))
        };
        // A run of system messages has one place, so its neighbors are the next messages of other roles.
        let before = messages[..index]
            .iter()
            .rev()
            .find(|before| !is_system(before));
        let follows =
            before.is_some_and(|before| before["role"] == "user" || ends_with_result(before));
        if !follows {
            return misplaced(
                "follow a 'user' message or an 'assistant' message ending in a server tool result",
            );
        }
        let after = messages[index..].iter().find(|after| !is_system(after));
        if after.is_some_and(|after| after["role"] != "assistant") {
            return misplaced("precede an 'assistant' message or end the array");
        }
    }
    Ok(())
}

/// Returns true if a message of the model ends with the result of a tool that the provider runs.
fn ends_with_result(message: &Value) -> bool {
    let last = array(&message["content"]).last();
    last.and_then(|block| block["type"].as_str())
        .is_some_and(|kind| kind.ends_with("_tool_result"))
}

fn empty(at: &str) -> Refusal {
    Refusal::invalid(format!(
        "{at}: system messages must have content or a non-empty output_config"
    ))
}

fn fields(betas: &Betas, message: &Value, at: &str) -> Result<(), Refusal> {
    for (name, value) in message.as_object().into_iter().flatten() {
        let is_allowed = match name.as_str() {
            "role" | "content" => true,
            "output_config" => betas.has(&OUTPUT_CONFIG),
            "clear_at" => betas.has(&["mid-conversation-system-clear-at-"]),
            _ => false,
        };
        if !is_allowed {
            return Err(extra(&format!("{at}.{name}")));
        }
        if name == "clear_at"
            && !matches!(value.as_str(), None | Some("next_user_message" | "never"))
        {
            return Err(Refusal::invalid(format!(
                "{at}.clear_at: Input should be 'next_user_message' or 'never'"
            )));
        }
    }
    for (name, value) in message["output_config"].as_object().into_iter().flatten() {
        if name != "effort" {
            return Err(extra(&format!("{at}.output_config.{name}")));
        }
        if !value
            .as_str()
            .is_some_and(|effort| EFFORTS.contains(&effort))
        {
            return Err(Refusal::invalid(format!(
                "{at}.output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"
            )));
        }
    }
    Ok(())
}

fn part(betas: &Betas, block: &Value, at: &str) -> Result<(), Refusal> {
    match block["type"].as_str() {
        Some("text") => blocks::text(block, at, "messages"),
        Some("tool_addition" | "tool_removal")
            if betas.has(&["mid-conversation-tool-changes-", "inline-tools-"]) =>
        {
            Ok(())
        }
        kind => Err(Refusal::invalid(format!(
            "{at}: Input tag '{}' found using 'type' does not match any of the expected tags: 'text'",
            kind.unwrap_or_default()
        ))),
    }
}
