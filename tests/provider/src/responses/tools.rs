//! Validation of tools and of the tool choice.

use serde_json::Value;

use super::params::{invalid_type, invalid_value, missing};
use super::{Refusal, array};

const TYPES: [&str; 18] = [
    "function",
    "custom",
    "namespace",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "image_generation",
    "mcp",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
    "programmatic_tool_calling",
];

/// Checks a list of tools at this path.
pub(super) fn check(tools: &Value, path: &str) -> Result<(), Refusal> {
    array(tools)
        .iter()
        .enumerate()
        .try_for_each(|(index, tool)| definition(tool, &format!("{path}[{index}]")))
}

fn definition(tool: &Value, at: &str) -> Result<(), Refusal> {
    let Some(kind) = tool["type"].as_str() else {
        return Err(missing(&format!("{at}.type")));
    };
    if !TYPES.contains(&kind) {
        return Err(invalid_value(&tool["type"], &TYPES).param(format!("{at}.type")));
    }
    match kind {
        // The definition is flat, without the object `function` of Chat Completions.
        "function" => {
            name(&tool["name"], &format!("{at}.name"), true)?;
            let schema = &tool["parameters"];
            if schema.is_null() || schema.is_object() {
                strict(tool)
            } else {
                Err(invalid_type(&format!("{at}.parameters"), "an object"))
            }
        }
        "custom" => name(&tool["name"], &format!("{at}.name"), true),
        "namespace" => {
            name(&tool["name"], &format!("{at}.name"), true)?;
            if array(&tool["tools"]).is_empty() {
                return Err(missing(&format!("{at}.tools")));
            }
            check(&tool["tools"], &format!("{at}.tools"))
        }
        _ => Ok(()),
    }
}

/// Checks the name of a function: 1 to 128 characters of a fixed set.
pub(super) fn name(name: &Value, param: &str, is_required: bool) -> Result<(), Refusal> {
    let Some(name) = name.as_str() else {
        return if is_required {
            Err(missing(param))
        } else {
            Ok(())
        };
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(legal) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    ))
    .param(param)
    .code("invalid_value"))
}

/// Rejects a strict schema that allows unknown fields.
fn strict(tool: &Value) -> Result<(), Refusal> {
    let schema = &tool["parameters"];
    if tool["strict"] != Value::Bool(true) || schema["additionalProperties"] == Value::Bool(false) {
        return Ok(());
    }
    let name = tool["name"].as_str().unwrap_or_default();
    Err(Refusal::invalid(format!(
        "Invalid schema for function '{name}': In context=(), 'additionalProperties' is required to be supplied and to be false."
    ))
    .param("tools")
    .code("invalid_function_parameters"))
}

/// Checks that a named tool choice is offered.
pub(super) fn choice(body: &Value) -> Result<(), Refusal> {
    let choice = &body["tool_choice"];
    match choice {
        Value::Null => Ok(()),
        Value::String(mode) if matches!(mode.as_str(), "none" | "auto" | "required") => Ok(()),
        Value::String(_) => {
            let modes = ["none", "auto", "required"];
            Err(invalid_value(choice, &modes).param("tool_choice"))
        }
        _ => {
            let mut tools = array(&body["tools"]).iter();
            // Built-in tools are chosen by their type alone, such as `{"type": "file_search"}`.
            let Some(name) = choice["name"].as_str() else {
                return Ok(());
            };
            if tools.any(|tool| tool["name"] == name) {
                return Ok(());
            }
            Err(Refusal::invalid(format!(
                "Tool choice '{name}' not found in 'tools' parameter."
            ))
            .param("tool_choice"))
        }
    }
}
