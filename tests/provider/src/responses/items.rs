//! Validation of each input item: its type, its fields, its ids and its contents.

use serde_json::Value;

use super::params::{invalid_type, invalid_value, missing, unknown_parameter};
use super::{Refusal, array, tools};

/// The maximum length of an id, in bytes.
const MAX_ID: usize = 64;
/// The maximum length of an output, in bytes.
const MAX_OUTPUT: usize = 10 * 1024 * 1024;
/// Fields that each item may have. The last one is an addition of Codex that the API accepts.
const COMMON: [&str; 4] = [
    "type",
    "id",
    "status",
    "internal_chat_message_metadata_passthrough",
];

/// The rules of an item type.
struct Kind {
    name: &'static str,
    /// The beginning of its ids. Empty for any.
    prefix: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const fn kind(
    name: &'static str,
    prefix: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> Kind {
    Kind {
        name,
        prefix,
        required,
        optional,
    }
}

const KINDS: [Kind; 30] = [
    kind("message", "msg", &["role", "content"], &["phase"]),
    kind(
        "function_call",
        "fc",
        &["call_id", "name", "arguments"],
        &["namespace", "caller"],
    ),
    kind(
        "function_call_output",
        "",
        &["call_id", "output"],
        &["caller"],
    ),
    kind(
        "custom_tool_call",
        "ctc",
        &["call_id", "name", "input"],
        &["namespace", "caller"],
    ),
    kind(
        "custom_tool_call_output",
        "",
        &["call_id", "output"],
        &["caller"],
    ),
    kind(
        "reasoning",
        "rs",
        &["summary"],
        &["content", "encrypted_content"],
    ),
    kind("compaction", "", &["encrypted_content"], &["created_by"]),
    kind("compaction_trigger", "", &[], &[]),
    kind("item_reference", "", &["id"], &[]),
    kind("additional_tools", "", &["role", "tools"], &[]),
    kind("local_shell_call", "", &["call_id", "action"], &[]),
    kind("local_shell_call_output", "", &["output"], &["call_id"]),
    kind(
        "shell_call",
        "",
        &["call_id", "action"],
        &["environment", "caller"],
    ),
    kind(
        "shell_call_output",
        "",
        &["call_id", "output"],
        &["max_output_length", "caller"],
    ),
    kind(
        "apply_patch_call",
        "",
        &["call_id", "operation"],
        &["caller"],
    ),
    kind(
        "apply_patch_call_output",
        "",
        &["call_id"],
        &["output", "caller"],
    ),
    kind(
        "computer_call",
        "cu",
        &["call_id"],
        &["action", "actions", "pending_safety_checks"],
    ),
    kind(
        "computer_call_output",
        "",
        &["call_id", "output"],
        &["acknowledged_safety_checks"],
    ),
    kind("web_search_call", "ws", &[], &["action"]),
    kind("file_search_call", "fs", &["queries"], &["results"]),
    kind(
        "code_interpreter_call",
        "ci",
        &["code", "container_id"],
        &["outputs"],
    ),
    kind(
        "image_generation_call",
        "ig",
        &["result"],
        &[
            "action", "background", "output_format", "quality", "revised_prompt", "size",
        ],
    ),
    kind(
        "mcp_list_tools",
        "mcpl",
        &["server_label", "tools"],
        &["error"],
    ),
    kind(
        "mcp_approval_request",
        "mcpr",
        &["arguments", "name", "server_label"],
        &[],
    ),
    kind(
        "mcp_approval_response",
        "",
        &["approval_request_id", "approve"],
        &["reason"],
    ),
    kind(
        "mcp_call",
        "mcp",
        &["arguments", "name", "server_label"],
        &["approval_request_id", "error", "output"],
    ),
    kind(
        "tool_search_call",
        "",
        &["arguments"],
        &["call_id", "execution"],
    ),
    kind(
        "tool_search_output",
        "",
        &["tools"],
        &["call_id", "execution"],
    ),
    kind("program", "", &["call_id", "code", "fingerprint"], &[]),
    kind("program_output", "", &["call_id", "result"], &[]),
];

/// Checks the input: a string, or a list of items.
pub(super) fn check(input: &Value) -> Result<(), Refusal> {
    match input {
        Value::Null | Value::String(_) => Ok(()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| check_item(item, &format!("input[{index}]"))),
        _ => Err(invalid_type(
            "input",
            "one of an array of objects or a string",
        )),
    }
}

fn check_item(item: &Value, at: &str) -> Result<(), Refusal> {
    let Some(object) = item.as_object() else {
        return Err(invalid_type(at, "an object"));
    };
    // A message may leave its type out, and so may a reference.
    let default = if object.contains_key("role") {
        "message"
    } else {
        "item_reference"
    };
    let name = item["type"].as_str().unwrap_or(default);
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(invalid_value(&item["type"], &names).param(at));
    };
    let is_known = |field: &str| {
        COMMON.contains(&field) || kind.required.contains(&field) || kind.optional.contains(&field)
    };
    if let Some(unknown) = object.keys().find(|field| !is_known(field)) {
        return Err(unknown_parameter(&format!("{at}.{unknown}")));
    }
    let is_missing = |field: &&&str| !object.contains_key(**field);
    if let Some(field) = kind.required.iter().find(is_missing) {
        return Err(missing(&format!("{at}.{field}")));
    }
    ids(item, kind, at)?;
    match name {
        "message" => message(item, at),
        "function_call" | "custom_tool_call" => {
            tools::name(&item["name"], &format!("{at}.name"), true)?;
            strings(item, &["arguments", "input"], at)
        }
        "function_call_output" | "custom_tool_call_output" => output(&item["output"], at),
        "reasoning" => summary(&item["summary"], &format!("{at}.summary")),
        "compaction" => strings(item, &["encrypted_content"], at),
        "additional_tools" => tools::check(&item["tools"], &format!("{at}.tools")),
        _ => Ok(()),
    }
}

fn strings(item: &Value, fields: &[&str], at: &str) -> Result<(), Refusal> {
    let is_other = |field: &&&str| !item[**field].is_null() && !item[**field].is_string();
    match fields.iter().find(is_other) {
        None => Ok(()),
        Some(field) => Err(invalid_type(&format!("{at}.{field}"), "a string")),
    }
}

/// Checks the id and the call id: their lengths, and the beginning of the id.
fn ids(item: &Value, kind: &Kind, at: &str) -> Result<(), Refusal> {
    for field in ["id", "call_id"] {
        let param = format!("{at}.{field}");
        let value = &item[field];
        if value.is_null() && !kind.required.contains(&field) {
            continue;
        }
        let Some(id) = value.as_str() else {
            return Err(invalid_type(&param, "a string"));
        };
        if id.is_empty() {
            return Err(Refusal::invalid(format!(
                "Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead."
            ))
            .param(param)
            .code("empty_string"));
        }
        if id.len() > MAX_ID {
            return Err(Refusal::invalid(format!(
                "Invalid '{param}': string too long. Expected a string with maximum length {MAX_ID}, but got a string with length {} instead.",
                id.len()
            ))
            .param(param)
            .code("string_above_max_length"));
        }
        // Only `id` has a prefix by type, such as `fc`. A `call_id` is any short string.
        if field == "id" && !id.starts_with(kind.prefix) {
            return Err(Refusal::invalid(format!(
                "Invalid '{param}': '{id}'. Expected an ID that begins with '{}'.",
                kind.prefix
            ))
            .param(param)
            .code("invalid_value"));
        }
    }
    Ok(())
}

fn message(item: &Value, at: &str) -> Result<(), Refusal> {
    // No role `tool`: results are items of their own, such as `function_call_output`.
    let roles = ["assistant", "system", "developer", "user"];
    let is_known = item["role"]
        .as_str()
        .is_some_and(|role| roles.contains(&role));
    if !is_known {
        return Err(invalid_value(&item["role"], &roles).param(format!("{at}.role")));
    }
    // Repeated answers keep the part types of output. All other roles write input parts.
    let allowed: &[&str] = if item["role"] == "assistant" {
        &["output_text", "refusal"]
    } else {
        &["input_text", "input_image", "input_file", "input_audio"]
    };
    content(&item["content"], allowed, &format!("{at}.content"))
}

fn output(output: &Value, at: &str) -> Result<(), Refusal> {
    let param = format!("{at}.output");
    if let Some(text) = output.as_str()
        && text.len() > MAX_OUTPUT
    {
        return Err(Refusal::invalid(format!(
            "Invalid '{param}': string too long. Expected a string with maximum length {MAX_OUTPUT}, but got a string with length {} instead.",
            text.len()
        ))
        .param(param)
        .code("string_above_max_length"));
    }
    content(output, &["input_text", "input_image", "input_file"], &param)
}

/// Checks a string or a list of parts.
fn content(content: &Value, allowed: &[&str], param: &str) -> Result<(), Refusal> {
    match content {
        Value::String(_) => Ok(()),
        Value::Array(parts) => parts.iter().enumerate().try_for_each(|(index, part)| {
            let at = format!("{param}[{index}]");
            let Some(kind) = part["type"].as_str() else {
                return Err(missing(&format!("{at}.type")));
            };
            if !allowed.contains(&kind) {
                return Err(invalid_value(&part["type"], allowed).param(at));
            }
            let field = match kind {
                "input_text" | "output_text" => "text",
                "refusal" => "refusal",
                _ => return Ok(()),
            };
            if part[field].is_string() {
                Ok(())
            } else {
                Err(missing(&format!("{at}.{field}")))
            }
        }),
        _ => Err(invalid_type(
            param,
            "one of an array of objects or a string",
        )),
    }
}

fn summary(summary: &Value, param: &str) -> Result<(), Refusal> {
    if !summary.is_array() {
        return Err(invalid_type(param, "an array"));
    }
    let mut parts = array(summary).iter().enumerate();
    parts.try_for_each(|(index, part)| {
        if part["type"] == "summary_text" && part["text"].is_string() {
            return Ok(());
        }
        let allowed = ["summary_text"];
        Err(invalid_value(&part["type"], &allowed).param(format!("{param}[{index}]")))
    })
}
