//! The options of a model request that decide about its session and its view.

use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_engine::turn::BodyFields;
use serde::Deserialize;

use crate::context::ModelOptions;

/// The options of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestFields<'a>(pub(super) &'a UnknownFields);

#[derive(Deserialize)]
struct Typed {
    r#type: String,
}

/// The fields with which a provider adds messages that the body does not contain.
const STATEFUL: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

impl<'a> RequestFields<'a> {
    fn get(self, field: &str) -> Option<&'a RawJson> {
        let value = self.0.get(field)?;
        // A client can send null for an option that is not set.
        (value.as_str() != "null").then_some(value)
    }

    /// Returns true if the provider keeps a part of the conversation.
    pub(super) fn is_stateful(self) -> bool {
        // A request that creates a thread of Anthropic's API has the whole conversation. Later ones continue it.
        let thread: Option<Typed> = self.get("thread").and_then(read);
        let continues = thread.is_some_and(|thread| thread.r#type != "create");
        continues || STATEFUL.iter().any(|field| self.get(field).is_some())
    }

    /// Returns true if the agent asks for a stream.
    pub(super) fn streams(self) -> bool {
        self.get("stream").and_then(read).unwrap_or_default()
    }

    /// Returns the options that traces report.
    pub(super) fn traced(self, body: &BodyFields) -> ModelOptions {
        ModelOptions {
            max_output_tokens: body.max_output_tokens(),
            temperature: self.get("temperature").and_then(read),
            streams: self.streams(),
        }
    }

    /// Returns true if further tools can be added: the request asks for one response.
    pub(super) fn permits_tools(self) -> bool {
        let count: Option<u64> = self.get("n").and_then(read);
        count.is_none_or(|count| count == 1)
    }
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawJson) -> Option<T> {
    serde_json::from_str(json.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_continue_a_conversation_are_found() {
        let check = |json: &str, stateful| {
            let options = UnknownFields::from_object(json).unwrap();
            assert_eq!(RequestFields(&options).is_stateful(), stateful, "{json}");
        };
        check("{}", false);
        check(r#"{"previous_response_id":null}"#, false);
        check(r#"{"previous_response_id":"r"}"#, true);
        check(r#"{"conversation":{"id":"c"}}"#, true);
        check(r#"{"thread":{"type":"create"}}"#, false);
        let thread = r#"{"thread":{"type":"continue","previous_message_id":"m"}}"#;
        check(thread, true);
    }
}
