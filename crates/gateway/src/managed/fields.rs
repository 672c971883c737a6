//! The options of a model request that decide about its session and its view.

use palimpsest_core::json::{RawJson, UnknownFields};
use serde::Deserialize;

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
        (value.as_str() != "null").then_some(value)
    }

    /// Returns true if the provider keeps a part of the conversation.
    pub(super) fn is_stateful(self) -> bool {
        // A request that creates a thread of Anthropic's API has the whole conversation. Later ones continue it.
        let thread: Option<Typed> = self.get("thread").and_then(read);
        let continues = thread.is_some_and(|thread| thread.r#type != "create");
        continues || STATEFUL.iter().any(|field| self.get(field).is_some())
    }

    /// Returns true if the request of Anthropic's API enables extended thinking.
    pub(super) fn has_thinking(self) -> bool {
        let thinking: Option<Typed> = self.get("thinking").and_then(read);
        thinking.is_some_and(|thinking| thinking.r#type != "disabled")
    }

    /// Returns true if the agent asks for a stream.
    pub(super) fn streams(self) -> bool {
        self.get("stream").and_then(read).unwrap_or_default()
    }

    /// Returns true if further tools can be added: the request asks for one response.
    pub(super) fn permits_tools(self) -> bool {
        let count: Option<u64> = self.get("n").and_then(read);
        count.is_none_or(|count| count == 1)
    }

    /// Returns the maximum number of tokens of the response.
    pub(super) fn max_output_tokens(self) -> Option<u64> {
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        names.iter().find_map(|name| read(self.get(name)?))
    }
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawJson) -> Option<T> {
    serde_json::from_str(json.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_apis_are_read() {
        let check = |json: &str, thinking, stateful, output| {
            let options = UnknownFields::from_object(json).unwrap();
            let fields = RequestFields(&options);
            assert_eq!(fields.has_thinking(), thinking, "{json}");
            assert_eq!(fields.is_stateful(), stateful, "{json}");
            assert_eq!(fields.max_output_tokens(), output, "{json}");
        };
        check("{}", false, false, None);
        check(
            r#"{"thinking":{"type":"enabled","budget_tokens":9},"max_tokens":5}"#,
            true,
            false,
            Some(5),
        );
        check(
            r#"{"thinking":{"type":"disabled"},"max_output_tokens":6}"#,
            false,
            false,
            Some(6),
        );
        check(r#"{"previous_response_id":null}"#, false, false, None);
        check(r#"{"previous_response_id":"r"}"#, false, true, None);
        check(r#"{"conversation":{"id":"c"}}"#, false, true, None);
        check(r#"{"thread":{"type":"create"}}"#, false, false, None);
        let thread = r#"{"thread":{"type":"continue","previous_message_id":"m"}}"#;
        check(thread, false, true, None);
    }
}
