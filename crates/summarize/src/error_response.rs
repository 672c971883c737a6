//! Mapping of a provider's error response to an [`Error`].

use serde_json::Value;

use crate::error::Error;
use crate::http::HttpResponse;
use crate::overflow::prompt_too_long;
use crate::provider_error::ProviderError;
use crate::redact::redact;
use crate::request::SummaryRequest;
use crate::retry::AttemptError;

impl ProviderError {
    fn of(answer: &HttpResponse, request: &SummaryRequest) -> Self {
        let body = ErrorBody::read(&answer.body);
        Self {
            status: Some(answer.status),
            kind: body.kind(),
            message: body
                .message
                .and_then(|message| safe_message(&message, request)),
            // Anthropic sends `request-id`, OpenAI `x-request-id`. The id reaches logs, so its length and characters
            // are limited.
            request_id: ["request-id", "x-request-id"]
                .iter()
                .find_map(|name| answer.header(name))
                .map(|id| id.chars().filter(char::is_ascii_graphic).take(80).collect()),
        }
    }
}

/// The common fields of all providers' error bodies.
#[derive(Default)]
struct ErrorBody {
    types: Vec<String>,
    message: Option<String>,
}

impl ErrorBody {
    fn read(body: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return Self::default();
        };
        // Known forms: `{"error": {…}}`, `{"error": "…"}`, and the fields at the top level.
        let error = body
            .get("error")
            .filter(|error| !error.is_null())
            .unwrap_or(&body);
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        // `code` precedes `type`, because OpenAI's types are general: `invalid_request_error` has many codes.
        Self {
            types: ["code", "type"].into_iter().filter_map(text).collect(),
            message: error
                .as_str()
                .map(str::to_owned)
                .or_else(|| text("message"))
                .or_else(|| {
                    body.get("detail")
                        .and_then(Value::as_str)
                        .map(str::to_owned)
                }),
        }
    }

    fn kind(&self) -> Option<String> {
        // Errors must not contain conversation text, so only a short identifier counts as a kind.
        let plain = |kind: &&String| {
            let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            (1..=64).contains(&kind.len()) && kind.bytes().all(fine)
        };
        self.types.iter().find(plain).cloned()
    }

    fn has_type(&self, kinds: &[&str]) -> bool {
        self.types.iter().any(|kind| kinds.contains(&kind.as_str()))
    }

    fn message_contains(&self, part: &str) -> bool {
        let message = self.message.as_deref().unwrap_or_default();
        message.to_ascii_lowercase().contains(part)
    }
}

const MAX_MESSAGE_BYTES: usize = 240;
/// The length of a common substring, in bytes, at which an error message counts as a repetition of
/// the request.
const ECHO_BYTES: usize = 16;

/// Returns the provider's message. Returns `None` if the message repeats a part of the request.
fn safe_message(message: &str, request: &SummaryRequest) -> Option<String> {
    let message: String = message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    // Redaction precedes the cut, because a shortened secret would not be recognized.
    let message = redact(&message).text.into_owned();
    let message = &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)];
    let sent = || request.turns.iter().map(|turn| turn.text.as_str());
    // Each run begins and ends between characters, so that repeated text of several bytes per character is found too.
    let last = message.len().saturating_sub(ECHO_BYTES);
    // Runs overlap by half, so every repetition of at least 24 ASCII characters contains a whole run.
    let echoes = (0..=last)
        .step_by(ECHO_BYTES / 2)
        .map(|at| {
            let start = message.floor_char_boundary(at);
            &message[start..message.ceil_char_boundary(start + ECHO_BYTES)]
        })
        .filter(|run| run.len() >= ECHO_BYTES)
        .any(|run| sent().any(|text| text.contains(run)));
    (!echoes && !message.trim().is_empty()).then(|| message.trim().to_owned())
}

/// Classifies an error response: the error to report, and whether a retry can succeed.
pub(crate) fn classify_rejection(answer: &HttpResponse, request: &SummaryRequest) -> AttemptError {
    let text = String::from_utf8_lossy(&answer.body);
    // This check comes first, because providers report long prompts with several different
    // statuses.
    if let Some(found) = prompt_too_long(Some(answer.status), &text) {
        return AttemptError::Final(Error::PromptTooLong(found));
    }
    let said = ErrorBody::read(&answer.body);
    let fault = ProviderError::of(answer, request);
    // Neither waiting nor a retry helps an account without credit, regardless of the status.
    let broke = said.has_type(&["insufficient_quota", "billing_error", "billing_not_active"])
        || said.message_contains("credit balance is too low");
    let filtered = said.has_type(&[
        "content_filter",
        "content_policy_violation",
        "ResponsibleAIPolicyViolation",
    ]);
    match answer.status {
        _ if broke => AttemptError::Final(Error::Auth { fault }),
        401..=403 => AttemptError::Final(Error::Auth { fault }),
        _ if filtered => AttemptError::Final(Error::Refused { fault }),
        429 | 500..=599 => {
            let after = answer.retry_after();
            let error = Error::Unavailable {
                retry_after: after,
                fault,
            };
            // The providers send this header to their own SDKs. Its `false` overrides the rule of the status.
            if answer.header("x-should-retry") == Some("false") {
                return AttemptError::Final(error);
            }
            AttemptError::Retryable { error, after }
        }
        _ => AttemptError::Final(Error::BadRequest { fault }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;
    use tokio::time::Instant;

    use super::classify_rejection;
    use crate::error::Error;
    use crate::http::HttpResponse;
    use crate::provider_error::ProviderError;
    use crate::request::{ChatMessage, Purpose, SummaryRequest};
    use crate::retry::AttemptError;

    fn request() -> SummaryRequest {
        SummaryRequest {
            purpose: Purpose::Compaction,
            conversation: None,
            model: None,
            system: String::new(),
            turns: vec![ChatMessage::user(
                "the launch code is 0451 and the dog is called Rex",
            )],
            instruction: "go".to_owned(),
            max_output_tokens: 100,
            deadline: Instant::now(),
        }
    }

    fn answer(status: u16, body: &str) -> HttpResponse {
        HttpResponse {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        }
    }

    #[track_caller]
    fn check(status: u16, body: &str, name: &str, again: bool) {
        let (error, asks_again) = match classify_rejection(&answer(status, body), &request()) {
            AttemptError::Final(error) => (error, false),
            AttemptError::Retryable { error, .. } => (error, true),
        };
        assert_eq!((error.name(), asks_again), (name, again), "{status} {body}");
    }

    #[test]
    fn a_message_that_repeats_the_request_is_left_out_in_any_script() {
        let said = |turn: &str, message: &str| {
            let mut request = request();
            request.turns = vec![ChatMessage::user(turn)];
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            ProviderError::of(&answer(400, &body), &request).message
        };
        for turn in [
            "the launch code is 0451 and the dog is called Rex",
            "発射コードは零四五一で、犬の名前はレックスです",
            "пусковой код 0451, а собаку зовут Рекс",
        ] {
            assert_eq!(said(turn, &format!("invalid text: {turn}")), None);
            assert_eq!(said(turn, "invalid").as_deref(), Some("invalid"));
        }
    }

    #[test]
    fn statuses_are_classified() {
        check(
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"model: x"}}"#,
            "bad_request",
            false,
        );
        check(
            400,
            r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#,
            "auth",
            false,
        );
        check(
            400,
            r#"{"error":{"code":"content_filter","message":"filtered"}}"#,
            "refused",
            false,
        );
        check(
            400,
            r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#,
            "prompt_too_long",
            false,
        );
        check(401, "", "auth", false);
        check(403, "<html>", "auth", false);
        check(
            404,
            r#"{"error":"model 'x' not found"}"#,
            "bad_request",
            false,
        );
        check(408, "", "bad_request", false);
        check(413, "", "prompt_too_long", false);
        check(
            429,
            r#"{"error":{"code":"rate_limit_exceeded"}}"#,
            "unavailable",
            true,
        );
        check(
            429,
            r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}"#,
            "auth",
            false,
        );
        check(500, "", "unavailable", true);
        // 529 is Anthropic's status for an overloaded service.
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "unavailable",
            true,
        );
        check(302, "", "bad_request", false);
    }

    #[test]
    fn an_error_contains_the_providers_message() {
        let body = r#"{"error":{"type":"not_found_error","message":"model: nope"}}"#;
        let mut answer = answer(404, body);
        answer
            .headers
            .insert("request-id", "req_7".parse().unwrap());
        let AttemptError::Final(error) = classify_rejection(&answer, &request()) else {
            panic!("no retry");
        };
        let text = error.to_string();
        assert!(
            text.contains("404, not_found_error, model: nope, request req_7"),
            "{text}"
        );
    }

    #[test]
    fn a_message_that_repeats_the_conversation_is_omitted() {
        let body =
            r#"{"error":{"message":"cannot read 'launch code is 0451 and the dog' in messages"}}"#;
        let fault = ProviderError::of(&answer(400, body), &request());
        assert_eq!(fault.message, None);
        let key = format!("sk-{}", "a1".repeat(20));
        let fault = ProviderError::of(
            &answer(
                401,
                &format!(r#"{{"error":{{"message":"bad key {key}"}}}}"#),
            ),
            &request(),
        );
        assert_eq!(
            fault.message.as_deref(),
            Some("bad key [redacted: openai key]")
        );
    }

    #[test]
    fn the_providers_should_retry_header_is_respected() {
        let mut answer = answer(503, "");
        answer
            .headers
            .insert("x-should-retry", "false".parse().unwrap());
        answer.headers.insert("retry-after", "7".parse().unwrap());
        let AttemptError::Final(Error::Unavailable { retry_after, .. }) =
            classify_rejection(&answer, &request())
        else {
            panic!("final");
        };
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
    }
}
