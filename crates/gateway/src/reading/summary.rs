//! The facts of a finished response that are no content: usage, stop reason, id and model.

use palimpsest_core::message::Usage;
use serde::Deserialize;

use super::{ResponseApi, ResponseEnd};

/// The facts of a response that the gateway reports. None of them is content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// The reported usage. `None` if the response has none.
    pub usage: Option<Usage>,
    /// The reason for the end of the output. `None` if the response has none.
    pub stop_reason: Option<String>,
    /// The id of the response.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
}

/// The fields of the responses of all APIs that a summary needs.
#[derive(Deserialize)]
struct Body {
    id: Option<String>,
    model: Option<String>,
    usage: Option<Counts>,
    stop_reason: Option<String>,
    choices: Option<Vec<Choice>>,
    status: Option<String>,
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// Reads the summary of a response, and its end by its own status.
pub(super) fn read(
    api: ResponseApi,
    json: &[u8],
) -> serde_json::Result<(ResponseSummary, ResponseEnd)> {
    let body: Body = serde_json::from_slice(json)?;
    let usage = body.usage.map(|counts| counts.usage(api));
    let mut end = ResponseEnd::Complete;
    let stop_reason = match api {
        ResponseApi::Messages => body.stop_reason,
        ResponseApi::Chat => {
            let choice = body.choices.into_iter().flatten().next();
            choice.and_then(|choice| choice.finish_reason)
        }
        ResponseApi::Responses => {
            if !matches!(body.status.as_deref(), Some("completed" | "incomplete")) {
                end = ResponseEnd::Failed;
            }
            // `max_output_tokens` explains more than the status `incomplete`.
            let details = body.incomplete_details.and_then(|details| details.reason);
            details.or(body.status)
        }
    };
    let summary = ResponseSummary {
        usage,
        stop_reason,
        id: body.id,
        model: body.model,
    };
    Ok((summary, end))
}

impl Counts {
    fn usage(self, api: ResponseApi) -> Usage {
        let cached = |details: Option<Details>| details.and_then(|details| details.cached_tokens);
        let (input, cached, output) = match api {
            ResponseApi::Messages => {
                // Anthropic reports cached tokens apart from the input, so nothing is subtracted.
                return Usage {
                    input_tokens: self.input_tokens.unwrap_or(0),
                    cache_read_tokens: self.cache_read_input_tokens.unwrap_or(0),
                    cache_write_tokens: self.cache_creation_input_tokens.unwrap_or(0),
                    output_tokens: self.output_tokens.unwrap_or(0),
                };
            }
            ResponseApi::Chat => {
                let cached = cached(self.prompt_tokens_details);
                (self.prompt_tokens, cached, self.completion_tokens)
            }
            ResponseApi::Responses => {
                let cached = cached(self.input_tokens_details);
                (self.input_tokens, cached, self.output_tokens)
            }
        };
        // The input of OpenAI includes cached tokens. Inconsistent reports must not underflow.
        let (input, cached) = (input.unwrap_or(0), cached.unwrap_or(0));
        Usage {
            input_tokens: input.saturating_sub(cached),
            cache_read_tokens: cached.min(input),
            cache_write_tokens: 0,
            output_tokens: output.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(api: ResponseApi, json: &str, usage: [u64; 4], stop: &str, end: ResponseEnd) {
        let (summary, ended) = read(api, json.as_bytes()).unwrap();
        let read = summary.usage.unwrap();
        let counts = [
            read.input_tokens,
            read.cache_read_tokens,
            read.cache_write_tokens,
            read.output_tokens,
        ];
        assert_eq!(counts, usage, "{json}");
        assert_eq!(summary.stop_reason.as_deref(), Some(stop), "{json}");
        assert_eq!(ended, end, "{json}");
    }

    #[test]
    fn usage_and_stop_reason_are_those_of_the_api() {
        let messages = r#"{"stop_reason":"tool_use","usage":{"input_tokens":1,"cache_read_input_tokens":2,
            "cache_creation_input_tokens":3,"output_tokens":4,"service_tier":"standard"}}"#;
        let complete = ResponseEnd::Complete;
        check(
            ResponseApi::Messages,
            messages,
            [1, 2, 3, 4],
            "tool_use",
            complete,
        );
        let chat = r#"{"choices":[{"finish_reason":"length"}],"usage":{"prompt_tokens":10,
            "completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        check(ResponseApi::Chat, chat, [2, 8, 0, 5], "length", complete);
        let usage = r#""usage":{"input_tokens":7,"output_tokens":3,"input_tokens_details":{"cached_tokens":9}}"#;
        let responses = |status: &str, details: &str| {
            format!(r#"{{"status":"{status}","incomplete_details":{details},{usage}}}"#)
        };
        let whole = responses("completed", "null");
        check(
            ResponseApi::Responses,
            &whole,
            [0, 7, 0, 3],
            "completed",
            complete,
        );
        let half = responses("incomplete", r#"{"reason":"max_output_tokens"}"#);
        check(
            ResponseApi::Responses,
            &half,
            [0, 7, 0, 3],
            "max_output_tokens",
            complete,
        );
        let failed = responses("failed", "null");
        check(
            ResponseApi::Responses,
            &failed,
            [0, 7, 0, 3],
            "failed",
            ResponseEnd::Failed,
        );
    }
}
