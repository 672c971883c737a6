//! Would a provider take this array? Written from the providers' documented rules, on the JSON
//! itself, and sharing no code with what renders it, so that a mistake there is found here.

mod anthropic;
mod cache;
mod openai;
mod report;

use serde_json::Value;

pub use self::report::Violation;
use self::report::ViolationReport;
use crate::view::{Provider, Target};

/// A message as a provider gets it, read once for all the arrays that it stands in.
#[derive(Debug)]
pub struct ParsedMessage {
    /// None when it is not JSON.
    value: Option<Value>,
    bytes: usize,
}

impl ParsedMessage {
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
    let parsed: Vec<ParsedMessage> = messages
        .iter()
        .map(|message| ParsedMessage::new(message.as_ref()))
        .collect();
    validate_parsed(target, parsed.iter())
}

/// The same for messages that were read before.
pub fn validate_parsed<'p>(
    target: &Target,
    messages: impl IntoIterator<Item = &'p ParsedMessage>,
) -> Vec<Violation> {
    let mut report = ViolationReport::default();
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
