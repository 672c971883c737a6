//! Would a provider take this array? Written from the providers' documented rules, on the JSON
//! itself, and sharing no code with what renders it, so that a mistake there is found here.

mod anthropic;
mod cache;
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

/// A message as a provider gets it, read once for all the arrays that it stands in.
#[derive(Debug)]
pub struct Parsed {
    /// None when it is not JSON.
    value: Option<Value>,
    bytes: usize,
}

impl Parsed {
    /// Reads the JSON of one message.
    pub fn new(json: &[u8]) -> Self {
        Self {
            value: serde_json::from_slice(json).ok(),
            bytes: json.len(),
        }
    }

    /// How long its JSON is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Every rule that an array of messages breaks; each message is given as its own JSON.
pub fn validate<M: AsRef<[u8]>>(target: &Target, messages: &[M]) -> Vec<Violation> {
    let parsed: Vec<Parsed> = messages
        .iter()
        .map(|message| Parsed::new(message.as_ref()))
        .collect();
    validate_parsed(target, parsed.iter())
}

/// The same for messages that were read before.
pub fn validate_parsed<'p>(
    target: &Target,
    messages: impl IntoIterator<Item = &'p Parsed>,
) -> Vec<Violation> {
    let mut report = Report::default();
    let mut values = Vec::new();
    let mut bytes = 0;
    for (index, message) in messages.into_iter().enumerate() {
        bytes += message.bytes;
        match &message.value {
            Some(value) => values.push(value),
            None => report.add(format!("messages[{index}]"), "is not JSON"),
        }
    }
    if bytes > 32 * 1024 * 1024 {
        report.add("messages".into(), "exceeds the size limit of a request");
    }
    match target.provider {
        Provider::Anthropic => {
            cache::check_fields(&values, &mut report);
            anthropic::check(&values, target.thinking, &mut report);
        }
        Provider::Bedrock => {
            let values = cache::check_blocks(&values, &mut report);
            let values: Vec<&Value> = values.iter().collect();
            anthropic::check(&values, target.thinking, &mut report);
        }
        Provider::OpenAi => openai::check(&values, &mut report),
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
