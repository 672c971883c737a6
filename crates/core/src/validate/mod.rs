//! Would a provider take this array? Written from the providers' documented rules, on the JSON
//! itself, and sharing no code with what renders it, so that a mistake there is found here.

mod anthropic;
mod openai;

use std::fmt;

use serde_json::Value;

use crate::view::{Provider, Target};

/// A rule that an array breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where: a path such as `messages[3].content[0]`.
    pub path: String,
    /// What the provider would say.
    pub rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.rule)
    }
}

/// Every rule that an array of messages breaks; each message is given as its own JSON.
pub fn validate<M: AsRef<[u8]>>(target: &Target, messages: &[M]) -> Vec<Violation> {
    let mut report = Report::default();
    let mut parsed = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        match serde_json::from_slice::<Value>(message.as_ref()) {
            Ok(value) => parsed.push(value),
            Err(_) => report.add(format!("messages[{index}]"), "is not JSON"),
        }
    }
    let bytes: usize = messages.iter().map(|message| message.as_ref().len()).sum();
    if bytes > 32 * 1024 * 1024 {
        report.add("messages".into(), "exceeds the size limit of a request");
    }
    match target.provider {
        Provider::Anthropic => anthropic::check(&parsed, target.thinking, &mut report),
        Provider::OpenAi => openai::check(&parsed, &mut report),
    }
    report.0
}

#[derive(Default)]
struct Report(Vec<Violation>);

impl Report {
    fn add(&mut self, path: String, rule: &'static str) {
        self.0.push(Violation { path, rule });
    }

    fn unless(&mut self, holds: bool, path: &str, rule: &'static str) {
        if !holds {
            self.add(path.to_owned(), rule);
        }
    }
}

fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}

/// Whether an object has no other fields than these.
fn has_only(value: &Value, fields: &[&str]) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.keys().all(|key| fields.contains(&key.as_str())))
}

/// Whether every character of a name may stand in it, and there are not too many.
fn is_name(text: &str, max_len: usize) -> bool {
    !text.is_empty()
        && text.len() <= max_len
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
