//! The positions of an array and of its elements in a JSON text, and the fields beside the array.

use palimpsest_core::json::{self, ObjectFields, RawJson, UnknownFields};
use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The fields of a request body beside its array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyFields {
    /// The system prompt.
    pub system: Option<RawJson>,
    /// The tool definitions.
    pub tools: Option<RawJson>,
    /// All other fields, such as the model.
    pub options: UnknownFields,
}

#[derive(Deserialize)]
struct Typed {
    r#type: String,
}

impl BodyFields {
    /// Returns the model that the request names.
    pub fn model(&self) -> Option<String> {
        self.read("model")
    }

    /// Returns true if the request of Anthropic's API enables extended thinking.
    pub fn has_thinking(&self) -> bool {
        let thinking: Option<Typed> = self.read("thinking");
        thinking.is_some_and(|thinking| thinking.r#type != "disabled")
    }

    /// Returns the maximum number of tokens of the response.
    pub fn max_output_tokens(&self) -> Option<u64> {
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        names.iter().find_map(|name| self.read(name))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.options.get(name)?.as_str()).ok()
    }
}

/// The parts of a JSON text that contains an array.
pub(super) struct Layout {
    /// The opening bracket of the array.
    pub(super) open: usize,
    /// The positions after the elements.
    pub(super) ends: Vec<usize>,
    /// The closing bracket of the array.
    pub(super) close: usize,
    /// The fields before and after the array. `None` if the JSON is no body.
    pub(super) fields: Option<[BodyFields; 2]>,
}

impl BodyFields {
    /// Returns both parts together. `None` if both have the same field, which is invalid.
    pub(super) fn with(&self, other: &Self) -> Option<Self> {
        let both = |one: &Option<RawJson>, other: &Option<RawJson>| match (one, other) {
            (Some(_), Some(_)) => None,
            (one, other) => Some(one.clone().or_else(|| other.clone())),
        };
        Some(Self {
            system: both(&self.system, &other.system)?,
            tools: both(&self.tools, &other.tools)?,
            options: self.options.with_last(&other.options)?,
        })
    }
}

/// Returns the names of the fields with the conversation and with the system prompt.
pub(super) const fn field_names(provider: Provider) -> (&'static str, Option<&'static str>) {
    match provider {
        Provider::Anthropic | Provider::Bedrock => ("messages", Some("system")),
        Provider::OpenAi => ("messages", None),
        Provider::OpenAiResponses => ("input", Some("instructions")),
    }
}

impl Layout {
    /// Returns `None` for JSON that contains no array of messages.
    pub(super) fn of(provider: Provider, text: &str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        if raw.get().starts_with('[') {
            return Self::around(text, raw, None);
        }
        let mut fields = ObjectFields::read(raw).ok()?;
        let (conversation, system) = field_names(provider);
        let array = fields.take(conversation).ok()??;
        let system = match system {
            Some(name) => fields.take(name).ok()?,
            None => None,
        };
        let tools = fields.take("tools").ok()?;
        let at = offset(text, array);
        let [before, after] = fields.rest_around(|raw| offset(text, raw) < at);
        let part = |options, is_part: &dyn Fn(usize) -> bool| {
            let of = |raw: Option<&RawValue>| {
                raw.filter(|raw| is_part(offset(text, raw)))
                    .map(RawJson::of)
            };
            BodyFields {
                system: of(system),
                tools: of(tools),
                options,
            }
        };
        let fields = [
            part(before, &|place| place < at),
            part(after, &|place| place > at),
        ];
        Self::around(text, array, Some(fields))
    }

    fn around(text: &str, array: &RawValue, fields: Option<[BodyFields; 2]>) -> Option<Self> {
        let elements = json::array(array).ok()?;
        let end = |element: &&RawValue| offset(text, element) + element.get().len();
        let open = offset(text, array);
        Some(Self {
            open,
            ends: elements.iter().map(end).collect(),
            close: open + array.get().len() - 1,
            fields,
        })
    }
}

/// Returns the position of a value in the text that contains it.
fn offset(text: &str, part: &RawValue) -> usize {
    // A raw value borrows from the text that it was parsed from, so both addresses belong to one allocation.
    part.get().as_ptr().addr() - text.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_apis_are_read() {
        let check = |json: &str, has_thinking, max_output_tokens| {
            let body = BodyFields {
                options: UnknownFields::from_object(json).unwrap(),
                ..BodyFields::default()
            };
            assert_eq!(body.has_thinking(), has_thinking, "{json}");
            assert_eq!(body.max_output_tokens(), max_output_tokens, "{json}");
        };
        check("{}", false, None);
        let enabled = r#"{"thinking":{"type":"enabled","budget_tokens":9},"max_tokens":5}"#;
        check(enabled, true, Some(5));
        let disabled = r#"{"thinking":{"type":"disabled"},"max_output_tokens":6}"#;
        check(disabled, false, Some(6));
        check(
            r#"{"thinking":null,"max_completion_tokens":7}"#,
            false,
            Some(7),
        );
    }
}
