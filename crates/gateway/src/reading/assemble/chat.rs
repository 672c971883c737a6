//! Assembles a completion of OpenAI's Chat Completions API.

use serde_json::{Map, Value};

use super::{Progress, check_values, parse};
use crate::reading::{ResponseEnd, Unread};

/// The maximum number of elements of a list whose elements have indexes, such as calls. They are found by a linear
/// search.
const MAX_ELEMENTS: usize = 1_024;
/// The estimated memory of a value beside its text, in bytes.
const VALUE_BYTES: usize = 96;

/// The strings that a delta repeats or replaces. All other strings of a delta are appended.
const LABELS: [&str; 7] = [
    "id", "type", "role", "name", "object", "format", "signature",
];

/// A completion so far.
#[derive(Debug, Default)]
pub(in crate::reading) struct Chat {
    completion: Value,
    memory: usize,
}

impl Chat {
    pub(super) fn add(&mut self, data: &[u8]) -> Result<Progress, Unread> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(Progress::Ended(ResponseEnd::Complete));
        }
        check_values(data)?;
        let mut chunk: Map<String, Value> = parse(data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Ok(Progress::Ended(ResponseEnd::Failed));
        }
        // Chunks have the object `chat.completion.chunk` and a `delta` in place of the `message` of a whole completion.
        if let Some(object) = chunk.get_mut("object") {
            *object = Value::from("chat.completion");
        }
        let choices = chunk.get_mut("choices").and_then(Value::as_array_mut);
        for choice in choices
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            if let Some(delta) = choice.remove("delta") {
                choice.insert("message".to_owned(), delta);
            }
        }
        merge(
            &mut self.completion,
            Value::Object(chunk),
            false,
            &mut self.memory,
        )?;
        Ok(Progress::Open)
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns true if each choice has ended.
    pub(super) fn is_finished(&self) -> bool {
        let choices = self.completion["choices"].as_array();
        let is_finished = |choice: &Value| !choice["finish_reason"].is_null();
        choices.is_some_and(|choices| !choices.is_empty() && choices.iter().all(is_finished))
    }

    pub(super) fn finish(mut self) -> serde_json::Result<Option<Vec<u8>>> {
        let choices = self
            .completion
            .get_mut("choices")
            .and_then(Value::as_array_mut);
        let Some(choices) = choices.filter(|choices| !choices.is_empty()) else {
            return Ok(None);
        };
        for choice in choices {
            let calls = choice
                .pointer_mut("/message/tool_calls")
                .and_then(Value::as_array_mut);
            for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
                // The index is a part of deltas only.
                call.remove("index");
            }
        }
        serde_json::to_vec(&self.completion).map(Some)
    }
}

/// Merges a delta into a value. Strings and lists are appended if `appends`, otherwise replaced. `memory` is the
/// size of all content.
fn merge(into: &mut Value, delta: Value, appends: bool, memory: &mut usize) -> Result<(), Unread> {
    match (into, delta) {
        // Later chunks repeat fields as null, such as `"content": null`, and erase nothing.
        (_, Value::Null) => {}
        (Value::String(text), Value::String(part)) if appends => {
            *memory += part.len();
            text.push_str(&part);
        }
        // Some providers repeat the id and the name of a call as empty strings.
        (Value::String(_), Value::String(part)) if part.is_empty() => {}
        (Value::Object(fields), Value::Object(delta)) => {
            for (name, value) in delta {
                // Only parts of a message arrive in pieces. The fields around them are repeated.
                let is_part = appends || matches!(name.as_str(), "message" | "logprobs");
                let appends = is_part && !LABELS.contains(&name.as_str());
                if !fields.contains_key(&name) {
                    *memory += name.len() + VALUE_BYTES;
                }
                merge(
                    fields.entry(name).or_insert(Value::Null),
                    value,
                    appends,
                    memory,
                )?;
            }
        }
        (Value::Array(list), Value::Array(delta)) => merge_lists(list, delta, appends, memory)?,
        // Elements with the same index in one delta become one element, as in a later delta.
        (into @ Value::Null, Value::Array(delta)) => {
            let mut list = Vec::new();
            merge_lists(&mut list, delta, true, memory)?;
            *into = Value::Array(list);
        }
        (into @ Value::Null, Value::Object(delta)) => {
            *into = Value::Object(Map::new());
            merge(into, Value::Object(delta), appends, memory)?;
        }
        (into, delta) => {
            *memory = (*memory + size(&delta)).saturating_sub(size(into));
            *into = delta;
        }
    }
    Ok(())
}

fn merge_lists(
    list: &mut Vec<Value>,
    delta: Vec<Value>,
    appends: bool,
    memory: &mut usize,
) -> Result<(), Unread> {
    // Choices and calls have an index. Other lists, such as `citations` of a chunk, are repeated as a whole.
    let is_indexed = delta.iter().all(|element| element["index"].is_u64());
    if !appends && !is_indexed {
        let replaced: usize = list.drain(..).map(|element| size(&element)).sum();
        *memory = memory.saturating_sub(replaced);
    }
    for element in delta {
        let index = &element["index"];
        let same = list
            .iter()
            .position(|known| index.is_u64() && known["index"] == *index);
        match same {
            Some(at) => merge(&mut list[at], element, appends, memory)?,
            None if index.is_u64() && list.len() >= MAX_ELEMENTS => return Err(Unread::TooLarge),
            None => {
                *memory += size(&element);
                list.push(element);
            }
        }
    }
    Ok(())
}

/// Returns the estimated memory of a value, in bytes.
fn size(value: &Value) -> usize {
    let content = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| name.len() + VALUE_BYTES + size(value);
            fields.iter().map(field).sum()
        }
        _ => 0,
    };
    content + VALUE_BYTES
}
