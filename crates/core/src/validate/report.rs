//! The report of rule violations, and JSON checks that all providers share.

use std::fmt;

use serde_json::Value;

/// One violated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The path of the violation, such as `messages[3].content[0]`.
    pub path: String,
    /// The error text that the provider would return.
    pub rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.rule)
    }
}

#[derive(Default)]
pub(super) struct ViolationReport(pub(super) Vec<Violation>);

impl ViolationReport {
    pub(super) fn add(&mut self, path: String, rule: &'static str) {
        self.0.push(Violation { path, rule });
    }

    pub(super) fn unless(&mut self, holds: bool, path: &str, rule: &'static str) {
        if !holds {
            self.add(path.to_owned(), rule);
        }
    }
}

pub(super) fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}

/// Returns true if a value is an object without any other fields than these.
pub(super) fn has_only(value: &Value, fields: &[&str]) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.keys().all(|key| fields.contains(&key.as_str())))
}

/// Returns true if a text is a legal name: 1 to `max_len` ASCII letters, digits, `_` and `-`.
pub(super) fn is_name(text: &str, max_len: usize) -> bool {
    !text.is_empty()
        && text.len() <= max_len
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
