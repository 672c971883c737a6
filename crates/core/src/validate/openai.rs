//! Rules of OpenAI's Chat Completions API.

use std::collections::HashSet;

use serde_json::Value;

use super::report::{ViolationReport, is_name, text};

pub(super) fn check(messages: &[&Value], report: &mut ViolationReport) {
    report.unless(
        !messages.is_empty(),
        "messages",
        "at least one message is required",
    );
    // `open` contains the call ids that the following tool messages must answer.
    let mut open: HashSet<String> = HashSet::new();
    let mut ids = HashSet::new();
    let mut spoken = false;
    for (index, message) in messages.iter().enumerate() {
        let path = format!("messages[{index}]");
        let role = text(message, "role").unwrap_or_default();
        if role == "tool" {
            let id = text(message, "tool_call_id").unwrap_or_default();
            report.unless(open.remove(id), &path, "messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
            content(message.get("content"), &["text"], true, &path, report);
            continue;
        }
        report.unless(open.is_empty(), &path, "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'");
        open.clear();
        match role {
            "system" | "developer" => {
                content(message.get("content"), &["text"], false, &path, report);
            }
            "user" => {
                spoken = true;
                let kinds = ["text", "image_url", "input_audio", "file"];
                content(message.get("content"), &kinds, false, &path, report);
            }
            "assistant" => {
                report.unless(spoken, &path, "the conversation must begin with the user");
                let calls = message.get("tool_calls");
                let said = message.get("content").filter(|content| !content.is_null());
                report.unless(
                    said.is_some() || calls.is_some(),
                    &path,
                    "an assistant message needs content or tool_calls",
                );
                if said.is_some() {
                    content(said, &["text", "refusal"], false, &path, report);
                }
                if let Some(calls) = calls {
                    open = tool_calls(calls, &mut ids, &path, report);
                }
            }
            _ => report.add(path, "unknown role"),
        }
    }
    report.unless(
        open.is_empty(),
        "messages",
        "the last tool_calls have no tool messages",
    );
    let last = messages.last().and_then(|message| text(message, "role"));
    report.unless(
        last != Some("assistant"),
        "messages",
        "the last message must not be the assistant's",
    );
}

fn tool_calls(
    calls: &Value,
    ids: &mut HashSet<String>,
    path: &str,
    report: &mut ViolationReport,
) -> HashSet<String> {
    let mut open = HashSet::new();
    let Some(calls) = calls.as_array() else {
        report.add(path.to_owned(), "tool_calls must be an array");
        return open;
    };
    report.unless(!calls.is_empty(), path, "tool_calls must not be empty");
    report.unless(calls.len() <= 128, path, "too many tool_calls");
    for (index, call) in calls.iter().enumerate() {
        let path = format!("{path}.tool_calls[{index}]");
        let id = text(call, "id").unwrap_or_default().to_owned();
        report.unless(
            !id.is_empty() && id.len() <= 40,
            &path,
            "id must have 1 to 40 characters",
        );
        // Ids must be unique in the whole array, so `ids` outlives the message.
        report.unless(ids.insert(id.clone()), &path, "ids must be unique");
        open.insert(id);
        let (body, input) = match text(call, "type") {
            Some("function") => (call.get("function"), "arguments"),
            Some("custom") => (call.get("custom"), "input"),
            _ => (None, ""),
        };
        let named = body.and_then(|body| text(body, "name"));
        report.unless(
            named.is_some_and(|name| is_name(name, 64)),
            &path,
            "name must match ^[a-zA-Z0-9_-]{1,64}$",
        );
        report.unless(
            body.is_some_and(|body| text(body, input).is_some()),
            &path,
            "arguments must be a string",
        );
    }
    open
}

fn content(
    value: Option<&Value>,
    kinds: &[&str],
    may_be_empty: bool,
    path: &str,
    report: &mut ViolationReport,
) {
    match value {
        Some(Value::String(text)) => {
            report.unless(
                may_be_empty || !text.is_empty(),
                path,
                "content must not be empty",
            );
        }
        Some(Value::Array(parts)) => {
            report.unless(
                may_be_empty || !parts.is_empty(),
                path,
                "content must not be empty",
            );
            for (index, part) in parts.iter().enumerate() {
                let path = format!("{path}.content[{index}]");
                let kind = text(part, "type").unwrap_or_default();
                report.unless(
                    kinds.contains(&kind),
                    &path,
                    "this part is not allowed here",
                );
                // Other part types are accepted without a check of their content.
                let filled = match kind {
                    "text" => text(part, "text").is_some_and(|text| !text.is_empty()),
                    "image_url" => part
                        .get("image_url")
                        .and_then(|image| text(image, "url"))
                        .is_some_and(|url| {
                            url.starts_with("https://")
                                || url.starts_with("http://")
                                || url.starts_with("data:")
                        }),
                    _ => true,
                };
                report.unless(filled, &path, "the part is empty");
            }
        }
        _ => report.add(path.to_owned(), "content must be a string or an array"),
    }
}
