//! Messages that an importer writes itself, because the program stores them in a form of its own.

use std::borrow::Cow;

use palimpsest_core::ids::{Attributes, MessageId, Timestamp};
use palimpsest_core::view::Provider;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::imported::ImportedMessage;
use crate::utc;

/// The parts of a message that its payload does not contain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'e> {
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The id.
    pub(super) id: Option<MessageId>,
    /// The time as in the file.
    pub(super) time: Option<&'e str>,
    /// The working directory.
    pub(super) cwd: Option<&'e str>,
}

impl Entry<'_> {
    /// Returns the message with a payload of the file or of the importer.
    pub(super) fn message(
        self,
        provider: Provider,
        payload: Cow<'_, RawValue>,
    ) -> ImportedMessage<'_> {
        ImportedMessage {
            line: self.line,
            id: self.id,
            provider,
            payload,
            parent: None,
            at: self.at(),
            machine_generated: false,
            transcript_only: false,
            attributes: self.attributes(),
            model: None,
            usage: None,
            decoded: None,
        }
    }

    fn at(self) -> Option<Timestamp> {
        self.time.and_then(utc::parse)
    }

    fn attributes(self) -> Attributes {
        let cwd = self.cwd.map(|cwd| ("cwd".into(), cwd.into()));
        cwd.into_iter().collect()
    }
}

/// Returns the id of a message that the program identifies by a number within `base`. Each import yields the same id.
pub(super) fn derived_id(base: Uuid, number: usize) -> MessageId {
    // The lowest bits of the program's ids are random, so the number may change them.
    MessageId::new(Uuid::from_u128(base.as_u128() ^ number as u128))
}

/// Returns a value as the payload of a message.
pub(super) fn to_payload<'a>(value: &Value) -> Cow<'a, RawValue> {
    let raw = serde_json::value::to_raw_value(value);
    Cow::Owned(raw.expect("a JSON value can be written as JSON"))
}

/// Returns a call in a response of Chat Completions.
pub(super) fn chat_call(id: &str, name: &str, arguments: &Value) -> Value {
    let function = json!({"name": name, "arguments": arguments.to_string()});
    json!({"id": id, "type": "function", "function": function})
}

/// Returns a response of Chat Completions.
pub(super) fn chat_response(text: &str, calls: Vec<Value>) -> Value {
    // The API has `null` in place of an empty text.
    let content = (!text.is_empty()).then_some(text);
    let mut payload = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        payload["tool_calls"] = calls.into();
    }
    payload
}

/// Returns a result in the format of Chat Completions.
pub(super) fn chat_result(call: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": call, "content": text})
}
