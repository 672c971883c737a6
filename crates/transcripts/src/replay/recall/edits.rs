//! The lines that an edit replaces. The model must know them word for word.

use palimpsest_core::message::{ToolInput, ToolUse};
use serde_json::Value;

/// The minimum length of a line in bytes. Shorter ones, such as a closing brace, occur in almost every text.
const MIN_BYTES: usize = 8;
/// The input fields that contain the text to replace.
const FIELDS: [&str; 4] = ["old_string", "old_str", "oldString", "oldText"];
/// The beginning of a patch, whose context lines begin with a space and whose removed lines with a minus sign.
const PATCH: &str = "*** Begin Patch";

/// Returns the lines that a call replaces or that it names as context, without the space around them.
pub(super) fn replaced_lines(call: &ToolUse) -> Vec<String> {
    let mut lines = Vec::new();
    match &call.input {
        ToolInput::Text(text) => add_patch(text, &mut lines),
        ToolInput::Object(json) => {
            let input: Value = serde_json::from_str(json.as_str()).unwrap_or_default();
            add_value(&input, &mut lines);
        }
    }
    lines
}

fn add_value(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::String(text) => add_patch(text, lines),
        Value::Array(values) => values.iter().for_each(|value| add_value(value, lines)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if FIELDS.contains(&name.as_str()) => {
                        text.lines().for_each(|line| add_line(line, lines));
                    }
                    _ => add_value(value, lines),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn add_patch(text: &str, lines: &mut Vec<String>) {
    let Some(at) = text.find(PATCH) else {
        return;
    };
    for line in text[at..].lines() {
        if let Some(known) = line.strip_prefix([' ', '-']) {
            add_line(known, lines);
        }
    }
}

fn add_line(line: &str, lines: &mut Vec<String>) {
    let line = line.trim();
    if line.len() >= MIN_BYTES {
        lines.push(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::json::UnknownFields;

    use super::*;

    #[track_caller]
    fn check(input: ToolInput, expected: &[&str]) {
        let call = ToolUse {
            id: "x".into(),
            name: "Edit".into(),
            input,
            extra: UnknownFields::default(),
        };
        assert_eq!(replaced_lines(&call), expected);
    }

    #[test]
    fn the_text_to_replace_is_found_in_edits_and_patches() {
        let edit = r#"{"file_path":"a.rs","old_string":"fn one() {\n    first_line();\n}","new_string":"fn other_one()"}"#;
        check(ToolInput::parse(edit), &["fn one() {", "first_line();"]);
        let several = r#"{"edits":[{"oldText":"let first = 1;"},{"oldText":"let second = 2;"}]}"#;
        check(
            ToolInput::parse(several),
            &["let first = 1;", "let second = 2;"],
        );
        let patch = "*** Begin Patch\n*** Update File: a.rs\n@@ fn main\n context_line();\n-removed_line();\n+added_line();\n*** End Patch";
        let expected = ["context_line();", "removed_line();"];
        check(ToolInput::Text(patch.into()), &expected);
        let in_command = serde_json::json!({ "command": ["apply_patch", patch] });
        check(ToolInput::parse(&in_command.to_string()), &expected);
        check(ToolInput::parse(r#"{"command":"cargo test --all"}"#), &[]);
    }
}
