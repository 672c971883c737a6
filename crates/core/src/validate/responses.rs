//! Rules of OpenAI's Responses API.

use std::collections::HashSet;

use serde_json::Value;

use super::report::{ViolationReport, is_name, text};

/// The types of calls with their outputs and required fields.
const CALLS: [(&str, &str, &[&str]); 6] = [
    (
        "function_call",
        "function_call_output",
        &["name", "arguments"],
    ),
    (
        "custom_tool_call",
        "custom_tool_call_output",
        &["name", "input"],
    ),
    ("local_shell_call", "local_shell_call_output", &["action"]),
    ("shell_call", "shell_call_output", &["action"]),
    (
        "apply_patch_call",
        "apply_patch_call_output",
        &["operation"],
    ),
    ("computer_call", "computer_call_output", &[]),
];
/// The ends of the types of items that a caller adds. The model writes all others, including those of newer types.
const GIVEN: [&str; 4] = [
    "_output", "_response", "additional_tools", "compaction_trigger",
];

pub(super) fn check(items: &[&Value], report: &mut ViolationReport) {
    report.unless(!items.is_empty(), "input", "at least one item is required");
    let mut calls = CallValidator::default();
    let mut ids = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("input[{index}]");
        // A message may leave its type out, and so may a reference.
        let default = match item.get("role") {
            Some(_) => "message",
            None => "item_reference",
        };
        let kind = text(item, "type").unwrap_or(default);
        let id = text(item, "id").filter(|_| {
            // A reference and the output of a local shell repeat the id of another item.
            !matches!(kind, "item_reference" | "local_shell_call_output")
        });
        report.unless(
            id.is_none_or(|id| ids.insert(id.to_owned())),
            &path,
            "duplicate item id",
        );
        match kind {
            "message" => message(item, &path, report),
            "reasoning" => {
                report.unless(
                    item.get("summary").is_some_and(Value::is_array),
                    &path,
                    "summary must be an array",
                );
                report.unless(
                    items.get(index + 1).is_some_and(|next| is_written(next)),
                    &path,
                    "reasoning was provided without its required following item",
                );
            }
            "compaction_trigger" => report.unless(
                index + 1 == items.len(),
                &path,
                "a 'compaction_trigger' must be the final input item",
            ),
            _ => calls.item(item, kind, &path, report),
        }
    }
    for (id, output) in calls.open {
        report.add(format!("input: {output} {id}"), "no tool output found");
    }
}

/// Returns true if the model wrote the item.
fn is_written(item: &Value) -> bool {
    match text(item, "type").unwrap_or("message") {
        "message" => text(item, "role") == Some("assistant"),
        kind => !GIVEN.iter().any(|end| kind.ends_with(end)),
    }
}

/// The calls without an output, and the ids of all calls.
#[derive(Default)]
struct CallValidator {
    open: Vec<(String, &'static str)>,
    ids: HashSet<String>,
}

impl CallValidator {
    fn item(&mut self, item: &Value, kind: &str, path: &str, report: &mut ViolationReport) {
        let call = CALLS.iter().find(|(call, ..)| *call == kind);
        let output = CALLS.iter().find(|(_, output, _)| *output == kind);
        // A `local_shell_call_output` has the id of its call in the field `id`.
        let id = text(item, "call_id").or_else(|| text(item, "id"));
        let id = id.unwrap_or_default().to_owned();
        if call.is_some() || output.is_some() {
            report.unless(
                !id.is_empty() && id.len() <= 64,
                path,
                "call_id must have 1 to 64 characters",
            );
        }
        if let Some((_, output, required)) = call {
            let has_all = required.iter().all(|field| item.get(field).is_some());
            report.unless(has_all, path, "a required field is missing");
            let name = text(item, "name");
            report.unless(
                !required.contains(&"name") || name.is_some_and(|name| is_name(name, 128)),
                path,
                "name must match ^[a-zA-Z0-9_-]+$",
            );
            let is_string = |field: &str| !required.contains(&field) || item[field].is_string();
            report.unless(
                is_string("arguments") && is_string("input"),
                path,
                "arguments must be a string",
            );
            report.unless(self.ids.insert(id.clone()), path, "call ids must be unique");
            self.open.push((id, output));
        } else if let Some((_, output, _)) = output {
            // An output must have the type of its call: a `shell_call_output` does not answer a `function_call`.
            let waiting = (id, *output);
            let found = self.open.iter().position(|open| *open == waiting);
            match found {
                Some(at) => {
                    self.open.remove(at);
                }
                None => report.add(path.to_owned(), "no tool call found for this output"),
            }
            self::output(item, output, path, report);
        }
    }
}

fn output(item: &Value, kind: &str, path: &str, report: &mut ViolationReport) {
    // Indexing an absent field gives `null`, which no check below accepts.
    match kind {
        "function_call_output" | "custom_tool_call_output" => {
            let kinds = ["input_text", "input_image", "input_file"];
            parts(&item["output"], &kinds, true, path, report);
        }
        "shell_call_output" => {
            report.unless(item["output"].is_array(), path, "output must be an array");
        }
        "apply_patch_call_output" => report.unless(
            item["status"].is_string(),
            path,
            "a required field is missing",
        ),
        "local_shell_call_output" => {
            report.unless(item["output"].is_string(), path, "output must be a string");
        }
        _ => {}
    }
}

fn message(item: &Value, path: &str, report: &mut ViolationReport) {
    let kinds: &[&str] = match text(item, "role") {
        Some("assistant") => &["output_text", "refusal"],
        Some("user" | "system" | "developer") => &[
            "input_text",
            "input_image",
            "input_file",
            "input_audio",
            "computer_screenshot",
        ],
        _ => {
            report.add(path.to_owned(), "unknown role");
            return;
        }
    };
    parts(&item["content"], kinds, false, path, report);
}

fn parts(
    value: &Value,
    kinds: &[&str],
    may_be_empty: bool,
    path: &str,
    report: &mut ViolationReport,
) {
    match value {
        Value::String(text) => report.unless(
            may_be_empty || !text.is_empty(),
            path,
            "content must not be empty",
        ),
        Value::Array(parts) => {
            report.unless(
                may_be_empty || !parts.is_empty(),
                path,
                "content must not be empty",
            );
            for (index, part) in parts.iter().enumerate() {
                self::part(part, kinds, &format!("{path}.content[{index}]"), report);
            }
        }
        _ => report.add(path.to_owned(), "content must be a string or an array"),
    }
}

fn part(part: &Value, kinds: &[&str], path: &str, report: &mut ViolationReport) {
    let kind = text(part, "type").unwrap_or_default();
    report.unless(kinds.contains(&kind), path, "this part is not allowed here");
    let is_url = |field: &str| {
        text(part, field).is_some_and(|url| {
            ["https://", "http://", "data:"]
                .iter()
                .any(|start| url.starts_with(start))
        })
    };
    let is_filled = match kind {
        "input_text" | "output_text" => text(part, "text").is_some_and(|text| !text.is_empty()),
        "refusal" => text(part, "refusal").is_some_and(|text| !text.is_empty()),
        "input_image" => is_url("image_url") || text(part, "file_id").is_some(),
        "input_file" => {
            is_url("file_url") || is_url("file_data") || text(part, "file_id").is_some()
        }
        _ => true,
    };
    report.unless(is_filled, path, "the part is empty");
}
