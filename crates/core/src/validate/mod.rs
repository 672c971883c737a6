//! Validates an array against the rules of its provider. The checks follow the provider's documentation and read the
//! JSON itself. They share no code with the renderer, so that its mistakes are found.

mod anthropic;
mod cache;
mod openai;
mod report;
mod responses;

use serde_json::Value;

pub use self::report::Violation;
use self::report::ViolationReport;
use crate::view::{Provider, Target};

/// A message in the provider's form. It is parsed once for all arrays that contain it.
#[derive(Debug)]
pub struct ParsedMessage {
    /// The parsed JSON. `None` if the bytes are not JSON.
    value: Option<Value>,
    bytes: usize,
}

impl ParsedMessage {
    /// Parses the JSON of one message. Invalid JSON is reported by the validation.
    pub fn new(json: &[u8]) -> Self {
        Self {
            value: serde_json::from_slice(json).ok(),
            bytes: json.len(),
        }
    }

    /// Returns the length of the JSON in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns all rule violations of an array. Each message is passed as its own JSON.
pub fn validate<M: AsRef<[u8]>>(target: &Target, messages: &[M]) -> Vec<Violation> {
    let parsed: Vec<ParsedMessage> = messages
        .iter()
        .map(|message| ParsedMessage::new(message.as_ref()))
        .collect();
    validate_parsed(target, parsed.iter())
}

/// Returns all rule violations of an array of parsed messages.
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
    // The same limit of 32 MiB applies to every provider here.
    if bytes > 32 * 1024 * 1024 {
        report.add("messages".into(), "exceeds the size limit of a request");
    }
    let options = anthropic::Options {
        thinking: target.thinking,
        system_messages: target.takes_system_messages(),
    };
    // Bedrock's array equals Anthropic's except for cache points, so these are checked and removed first.
    match target.provider {
        Provider::Anthropic => {
            cache::check_fields(&values, &mut report);
            anthropic::check(&values, options, &mut report);
        }
        Provider::Bedrock => {
            let values = cache::check_blocks(&values, &mut report);
            let values: Vec<&Value> = values.iter().collect();
            anthropic::check(&values, options, &mut report);
        }
        Provider::OpenAi => openai::check(&values, &mut report),
        Provider::OpenAiResponses => responses::check(&values, &mut report),
    }
    report.0
}
