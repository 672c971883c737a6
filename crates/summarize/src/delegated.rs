//! Requests that a caller sends to its own model.

use bytes::Bytes;

use crate::redact::redact;
use crate::request::{ChatMessage, SummaryRequest};
use crate::{anthropic, openai};

/// The API for which the request is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiFormat {
    /// Anthropic's Messages API, with a cache marker after the conversation.
    Anthropic,
    /// OpenAI's Chat Completions API.
    OpenAi,
    /// OpenAI's Responses API. The provider does not store the response.
    OpenAiResponses,
}

/// Returns the body of a request as JSON, without the model. The caller adds the model and sends the
/// body.
pub fn request_body(api: ApiFormat, request: &SummaryRequest) -> Bytes {
    let body = match api {
        ApiFormat::Anthropic => anthropic::body(request, true),
        ApiFormat::OpenAi => openai::delegated(request),
        ApiFormat::OpenAiResponses => openai::delegated_response(request),
    };
    body.to_string().into()
}

/// Returns a copy of the request without secrets.
#[must_use]
pub fn redacted_request(request: &SummaryRequest) -> SummaryRequest {
    let clean = |text: &str| redact(text).text.into_owned();
    let turn = |turn: &ChatMessage| ChatMessage {
        role: turn.role,
        text: clean(&turn.text),
    };
    SummaryRequest {
        system: clean(&request.system),
        turns: request.turns.iter().map(turn).collect(),
        instruction: clean(&request.instruction),
        ..request.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::{ApiFormat, redacted_request, request_body};
    use crate::request::{ChatMessage, Purpose, SummaryRequest};

    fn request() -> SummaryRequest {
        SummaryRequest {
            purpose: Purpose::Compaction,
            conversation: None,
            model: None,
            system: "Be brief.".into(),
            turns: vec![
                ChatMessage::user("the key is AKIAIOSFODNN7EXAMPLE"),
                ChatMessage::assistant("seen"),
            ],
            instruction: "Summarise.".into(),
            max_output_tokens: 77,
            deadline: Instant::now(),
        }
    }

    #[test]
    fn a_request_body_has_no_model_and_no_tools() {
        let body =
            |api| -> Value { serde_json::from_slice(&request_body(api, &request())).unwrap() };
        let anthropic = body(ApiFormat::Anthropic);
        assert_eq!(anthropic["max_tokens"], 77);
        assert_eq!(anthropic["system"], "Be brief.");
        assert_eq!(
            anthropic["messages"][1]["content"][0]["cache_control"],
            json!({"type": "ephemeral"})
        );
        assert_eq!(anthropic["messages"][2]["content"][0]["text"], "Summarise.");
        let openai = body(ApiFormat::OpenAi);
        assert_eq!(openai["max_completion_tokens"], 77);
        assert_eq!(openai["messages"][0]["role"], "system");
        for body in [anthropic, openai] {
            assert!(body.get("model").is_none() && body.get("tools").is_none());
        }
    }

    #[test]
    fn the_request_contains_no_secret() {
        let clean = redacted_request(&request());
        let body = String::from_utf8(request_body(ApiFormat::Anthropic, &clean).to_vec()).unwrap();
        assert!(!body.contains("AKIAIOSFODNN7EXAMPLE") && body.contains("[redacted: "));
    }
}
