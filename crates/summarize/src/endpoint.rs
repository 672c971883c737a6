//! Endpoints of model providers and their authentication.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tracing::{Instrument as _, Span};
use url::Url;

use crate::chat_span::{ChatRequest, ChatResponse, ChatSpan};
use crate::error::Error;
use crate::error_response::classify_rejection;
use crate::http::{HttpClient, HttpResponse, HttpSettings, connection_error};
use crate::request::{SummaryReply, SummaryRequest};
use crate::retry::{AttemptError, Jitter, RetrySettings, with_retries};
use crate::secret::SecretSource;

/// An endpoint of a provider and the model to use.
#[derive(Clone, Debug)]
pub struct ModelEndpoint {
    /// The base URL without the path of the call. A query string is preserved (Azure's
    /// `api-version`).
    pub base_url: Url,
    /// The authentication method.
    pub auth: Auth,
    /// The model that is used if the request names none.
    pub model: String,
    /// The limits of one attempt.
    pub http: HttpSettings,
    /// The settings of retries.
    pub retry: RetrySettings,
    /// The source of randomness for the waits between retries.
    pub jitter: Jitter,
    /// Returns the headers that add the call to the trace of the current span.
    pub trace: fn() -> HeaderMap,
}

/// The authentication method of an endpoint.
#[derive(Clone, Debug)]
pub enum Auth {
    /// No authentication: for a local server or a gateway that adds the credentials.
    None,
    /// A key in the provider's usual header: `x-api-key` for Anthropic, a bearer token for OpenAI.
    Key(SecretSource),
    /// A bearer token in the `Authorization` header.
    Bearer(SecretSource),
    /// A key in another header, such as Azure's `api-key`.
    Header(String, SecretSource),
}

impl ModelEndpoint {
    /// Creates an endpoint with default limits. Returns an error if the base URL is not an `http` or
    /// `https` URL.
    pub fn new(base_url: &str, auth: Auth, model: impl Into<String>) -> Result<Self, Error> {
        let base_url = Url::parse(base_url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| Error::bad_request("the base URL is not an http or https URL"))?;
        Ok(Self {
            base_url,
            auth,
            model: model.into(),
            http: HttpSettings::default(),
            retry: RetrySettings::default(),
            jitter: Jitter::default(),
            trace: HeaderMap::new,
        })
    }

    /// Returns the base URL with a path. `version` is omitted if the base URL ends with it.
    pub(crate) fn url(&self, version: &str, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        let version = if version.is_empty() || base.ends_with(version) {
            ""
        } else {
            version
        };
        url.set_path(&format!("{base}{version}{path}"));
        url
    }

    /// Returns the headers of a call. `usual` is the provider's header for [`Auth::Key`]. Without it
    /// the key is sent as a bearer token.
    pub(crate) async fn headers(&self, usual: Option<&str>) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let (name, scheme, source) = match (&self.auth, usual) {
            (Auth::None, _) => return Ok(headers),
            (Auth::Key(source), Some(name)) => (name, "", source),
            (Auth::Key(source) | Auth::Bearer(source), _) => ("authorization", "Bearer ", source),
            (Auth::Header(name, source), _) => (name.as_str(), "", source),
        };
        let key = source.read().await?;
        let name: HeaderName = name
            .parse()
            .map_err(|_| Error::auth("the header's name is not one"))?;
        let mut value =
            HeaderValue::from_str(&format!("{scheme}{}", key.expose_secret().trim()))
                .map_err(|_| Error::auth("the key has characters that no header can contain"))?;
        // Sensitive values are hidden in debug output, and `redact_credentials` removes them from error
        // responses.
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(headers)
    }
}

/// Makes one call with retries. `body` builds the body of each attempt, and `read` parses a
/// successful response. `provider` is the name of the provider in traces.
pub(crate) async fn call(
    endpoint: &ModelEndpoint,
    http: &HttpClient,
    request: &SummaryRequest,
    (provider, url, headers): (&'static str, &Url, &HeaderMap),
    body: impl Fn() -> Bytes + Sync,
    read: impl Fn(&HttpResponse) -> Result<SummaryReply, AttemptError> + Sync,
) -> Result<SummaryReply, Error> {
    // References are copied into the future of each attempt. `async move` would consume the functions.
    let (body, read) = (&body, &read);
    with_retries(
        &endpoint.retry,
        &endpoint.jitter,
        request.deadline,
        |number| async move {
            let span = chat(endpoint, request, provider, number);
            let post = async {
                let mut headers = headers.clone();
                // The trace headers must name the span of this attempt, so they are created inside
                // it.
                headers.extend((endpoint.trace)());
                http.post(url, headers, body(), request.deadline).await
            };
            let posted = post.instrument(span.span().clone()).await;
            let mut answer = posted.inspect_err(|error| span.failed(error.name()))?;
            if let Ok(status) = StatusCode::from_u16(answer.status) {
                span.responded(status);
            }
            // Credentials are removed before the response can reach an error or a log.
            if !(200..300).contains(&answer.status) {
                answer.redact_credentials(headers);
            }
            tracing::debug!(
                purpose = request.purpose.name(),
                attempt = number,
                status = answer.status,
                "a model responded"
            );
            if !(200..300).contains(&answer.status) {
                return Err(classify_rejection(&answer, request));
            }
            let reply = read(&answer).inspect_err(|error| span.failed(error.name()))?;
            describe(&span, &answer, &reply);
            Ok(reply)
        },
    )
    .await
}

/// Starts the span of one attempt.
fn chat(
    endpoint: &ModelEndpoint,
    request: &SummaryRequest,
    provider: &'static str,
    attempt: u32,
) -> ChatSpan {
    let url = &endpoint.base_url;
    let span = ChatSpan::begin(
        &Span::current(),
        &ChatRequest {
            provider,
            model: Some(request.model.as_deref().unwrap_or(&endpoint.model)),
            conversation: request.conversation.as_deref(),
            max_output_tokens: Some(request.max_output_tokens.into()),
            temperature: None,
            streams: false,
            server: (
                url.host_str().unwrap_or_default(),
                url.port_or_known_default().unwrap_or_default(),
            ),
        },
    );
    span.set_attribute("palimpsest.purpose", request.purpose.name());
    span.set_attribute("palimpsest.attempt", i64::from(attempt));
    span
}

/// The fields of the responses of both APIs that only traces need.
#[derive(Deserialize)]
struct TracedFields {
    id: Option<String>,
    stop_reason: Option<String>,
    choices: Option<Vec<TracedChoice>>,
}

#[derive(Deserialize)]
struct TracedChoice {
    finish_reason: Option<String>,
}

/// Describes a response on its span.
fn describe(span: &ChatSpan, answer: &HttpResponse, reply: &SummaryReply) {
    if span.is_disabled() {
        return;
    }
    // The body is parsed a second time only for an exported span.
    let traced: Option<TracedFields> = serde_json::from_slice(&answer.body).ok();
    let choices = traced.as_ref().and_then(|traced| traced.choices.as_ref());
    let choice = choices.and_then(|choices| choices.first());
    let of_choice = choice.and_then(|choice| choice.finish_reason.as_deref());
    let of_message = traced
        .as_ref()
        .and_then(|traced| traced.stop_reason.as_deref());
    // Anthropic has `stop_reason` at the top level. OpenAI has `choices[0].finish_reason`.
    span.ended(&ChatResponse {
        id: traced.as_ref().and_then(|traced| traced.id.as_deref()),
        model: Some(&reply.model),
        finish_reason: of_message.or(of_choice),
        usage: Some(reply.usage),
    });
}

/// Classifies a successful response without valid JSON: it was cut off in transit (retryable), or
/// another API answered.
pub(crate) fn not_json(answer: &HttpResponse) -> AttemptError {
    let declared = answer.header("content-type").unwrap_or_default();
    if declared.contains("json") {
        return connection_error("its answer is no whole JSON");
    }
    AttemptError::Final(Error::bad_request(
        "its answer is no JSON: the base URL is not that of this API",
    ))
}

#[cfg(test)]
mod tests {
    use super::{Auth, ModelEndpoint};

    #[track_caller]
    fn check(base: &str, version: &str, expected: &str) {
        let endpoint = ModelEndpoint::new(base, Auth::None, "m").unwrap();
        assert_eq!(endpoint.url(version, "/messages").as_str(), expected);
    }

    #[test]
    fn endpoint_urls_are_joined() {
        check(
            "https://api.anthropic.com",
            "/v1",
            "https://api.anthropic.com/v1/messages",
        );
        check(
            "https://gateway/anthropic/",
            "/v1",
            "https://gateway/anthropic/v1/messages",
        );
        check("https://gateway/v1", "/v1", "https://gateway/v1/messages");
        check(
            "https://h/openai?api-version=1",
            "",
            "https://h/openai/messages?api-version=1",
        );
        assert!(ModelEndpoint::new("ftp://x", Auth::None, "m").is_err());
        assert!(ModelEndpoint::new("nothing", Auth::None, "m").is_err());
    }
}
