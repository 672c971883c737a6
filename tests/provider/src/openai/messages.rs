//! Validation of messages: roles, contents, and calls with the tool messages that answer them.

use serde_json::Value;

use crate::refusal::Refusal;

// Chat Completions limits the ids of calls to 40 characters, the Responses API to 64.
const MAX_ID: usize = 40;
const USER_PARTS: [&str; 4] = ["text", "image_url", "input_audio", "file"];

pub(super) fn check(messages: &Value) -> Result<(), Refusal> {
    let Some(messages) = messages.as_array() else {
        return Err(Refusal::invalid("Missing required parameter: 'messages'.")
            .param("messages")
            .code("missing_required_parameter"));
    };
    if messages.is_empty() {
        return Err(empty_array("messages"));
    }
    let mut open: Vec<&str> = Vec::new();
    let mut may_answer = false;
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        let role = role(message, &at)?;
        if role == "tool" {
            answer(message, &at, may_answer, &mut open)?;
        } else {
            // All results come before any other message: even a user message between them is an error.
            all_answered(&open, &at)?;
            open = calls(message, &at)?;
            may_answer = !open.is_empty();
        }
        content(message, role, &at)?;
    }
    all_answered(&open, "messages")
}

fn empty_array(param: &str) -> Refusal {
    Refusal::invalid(format!(
        "Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    ))
    .param(param)
    .code("empty_array")
}

fn role<'a>(message: &'a Value, at: &str) -> Result<&'a str, Refusal> {
    let known = [
        "system", "assistant", "user", "function", "tool", "developer",
    ];
    let Some(role) = message["role"].as_str() else {
        return Err(
            Refusal::invalid(format!("Missing required parameter: '{at}.role'."))
                .param(format!("{at}.role"))
                .code("missing_required_parameter"),
        );
    };
    if !known.contains(&role) {
        return Err(Refusal::invalid(format!(
            "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."
        ))
        .param(format!("{at}.role"))
        .code("invalid_value"));
    }
    let fields = [
        "role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call",
        "audio", "annotations",
    ];
    match message
        .as_object()
        .and_then(|object| object.keys().find(|name| !fields.contains(&name.as_str())))
    {
        None => Ok(role),
        Some(unknown) => Err(
            Refusal::invalid(format!("Unknown parameter: '{at}.{unknown}'."))
                .param(format!("{at}.{unknown}"))
                .code("unknown_parameter"),
        ),
    }
}

fn calls<'a>(message: &'a Value, at: &str) -> Result<Vec<&'a str>, Refusal> {
    let Some(calls) = message["tool_calls"].as_array() else {
        return Ok(Vec::new());
    };
    if calls.is_empty() {
        return Err(empty_array(&format!("{at}.tool_calls")));
    }
    let mut ids = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let at = format!("{at}.tool_calls[{index}]");
        let missing = |name: &str| {
            Refusal::invalid(format!("Missing required parameter: '{at}.{name}'."))
                .param(format!("{at}.{name}"))
                .code("missing_required_parameter")
        };
        let id = call["id"].as_str().ok_or_else(|| missing("id"))?;
        if id.len() > MAX_ID {
            return Err(Refusal::invalid(format!(
                "Invalid '{at}.id': string too long. Expected a string with maximum length {MAX_ID}, but got a string with length {} instead.",
                id.len()
            ))
            .param(format!("{at}.id"))
            .code("invalid_tool_call_id"));
        }
        if call["type"] != "function" {
            return Err(missing("type"));
        }
        let name = call["function"]["name"]
            .as_str()
            .ok_or_else(|| missing("function.name"))?;
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(legal) {
            return Err(Refusal::invalid(format!(
                "Invalid '{at}.function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ))
            .param(format!("{at}.function.name"))
            .code("invalid_value"));
        }
        // `arguments` is JSON inside a string, such as `"{}"`. An object is an error.
        if !call["function"]["arguments"].is_string() {
            return Err(missing("function.arguments"));
        }
        if ids.contains(&id) {
            return Err(
                Refusal::invalid(format!("Duplicate value for 'tool_call_id' of '{id}'"))
                    .param(&at),
            );
        }
        ids.push(id);
    }
    Ok(ids)
}

fn answer(
    message: &Value,
    at: &str,
    may_answer: bool,
    open: &mut Vec<&str>,
) -> Result<(), Refusal> {
    let stray = || {
        Refusal::invalid(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        )
        .param(format!("{at}.role"))
    };
    if !may_answer {
        return Err(stray());
    }
    let Some(id) = message["tool_call_id"].as_str() else {
        return Err(Refusal::invalid("Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.")
            .param(format!("{at}.tool_call_id")));
    };
    // An id that was answered already is stray too, so a second result for one call is rejected.
    let position = open
        .iter()
        .position(|waiting| *waiting == id)
        .ok_or_else(stray)?;
    open.remove(position);
    Ok(())
}

fn all_answered(open: &[&str], at: &str) -> Result<(), Refusal> {
    if open.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    ))
    .param(format!("{at}.role")))
}

fn content(message: &Value, role: &str, at: &str) -> Result<(), Refusal> {
    let param = format!("{at}.content");
    match &message["content"] {
        Value::String(_) => Ok(()),
        Value::Array(parts) if parts.is_empty() => Err(empty_array(&param)),
        Value::Array(parts) => parts.iter().enumerate().try_for_each(|(index, part)| {
            let kind = part["type"].as_str().unwrap_or_default();
            let allowed = match role {
                "user" => USER_PARTS.contains(&kind),
                "assistant" => matches!(kind, "text" | "refusal"),
                _ => kind == "text",
            };
            if allowed {
                return Ok(());
            }
            Err(Refusal::invalid(format!("Invalid value: '{kind}'."))
                .param(format!("{param}[{index}].type"))
                .code("invalid_value"))
        }),
        // A message of the model may have no content if it has something else, such as `tool_calls`.
        Value::Null if role == "assistant" && speaks_otherwise(message) => Ok(()),
        _ => Err(
            Refusal::invalid("Invalid value for 'content': expected a string, got null.")
                .param(param),
        ),
    }
}

fn speaks_otherwise(message: &Value) -> bool {
    ["tool_calls", "refusal", "function_call", "audio"]
        .iter()
        .any(|name| !message[*name].is_null())
}
