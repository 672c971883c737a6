//! Client for Anthropic's Messages API: one call without streaming, tools or thinking.

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoint::{ModelEndpoint, call, not_json};
use crate::error::Error;
use crate::http::{HttpClient, HttpResponse};
use crate::provider_error::ProviderError;
use crate::request::{Role, StopReason, SummaryReply, SummaryRequest, Usage};
use crate::retry::AttemptError;
use crate::summarizer::Summarizer;
use crate::wire::alternating;

const VERSION: &str = "2023-06-01";

/// A summarizer for Anthropic's Messages API and compatible gateways.
#[derive(Clone, Debug)]
pub struct Anthropic {
    endpoint: ModelEndpoint,
    http: HttpClient,
    cache_marker: bool,
}

impl Anthropic {
    /// The base URL of Anthropic.
    pub const BASE_URL: &'static str = "https://api.anthropic.com";

    /// Creates a client without opening a connection.
    pub fn new(endpoint: ModelEndpoint) -> Result<Self, Error> {
        Ok(Self {
            http: HttpClient::new(endpoint.http)?,
            endpoint,
            cache_marker: true,
        })
    }

    /// Disables the cache marker, for gateways that reject it.
    #[must_use]
    pub fn without_cache_marker(mut self) -> Self {
        self.cache_marker = false;
        self
    }

    fn body(&self, request: &SummaryRequest) -> Bytes {
        let mut body = body(request, self.cache_marker);
        body["model"] = json!(request.model.as_ref().unwrap_or(&self.endpoint.model));
        body.to_string().into()
    }
}

/// Builds the body of a request without the model.
pub(crate) fn body(request: &SummaryRequest, cache_marker: bool) -> Value {
    let turns = alternating(&request.turns);
    let block = |text: &&str| json!({"type": "text", "text": text});
    let mut messages: Vec<(Role, Vec<Value>)> = turns
        .iter()
        .map(|(role, texts)| (*role, texts.iter().map(block).collect()))
        .collect();
    // The cache marker is placed before the instruction: retries and the next summary share the
    // conversation, but not the instruction.
    let last = messages
        .last_mut()
        .and_then(|(_, blocks)| blocks.last_mut());
    if let Some(last) = last.filter(|_| cache_marker) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
    let instruction = block(&request.instruction.as_str());
    match messages.last_mut() {
        Some((Role::User, blocks)) => blocks.push(instruction),
        _ => messages.push((Role::User, vec![instruction])),
    }
    let messages: Vec<Value> = messages
        .into_iter()
        .map(|(role, content)| json!({"role": role.name(), "content": content}))
        .collect();
    let mut body = json!({
        "max_tokens": request.max_output_tokens,
        "messages": messages,
    });
    if !request.system.trim().is_empty() {
        body["system"] = json!(request.system);
    }
    body
}

#[async_trait]
impl Summarizer for Anthropic {
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        let mut headers = self.endpoint.headers(Some("x-api-key")).await?;
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        let url = self.endpoint.url("/v1", "/messages");
        let body = self.body(request);
        let target = ("anthropic", &url, &headers);
        call(
            &self.endpoint,
            &self.http,
            request,
            target,
            || body.clone(),
            read,
        )
        .await
    }
}

#[derive(Deserialize)]
struct ResponseMessage {
    model: String,
    content: Vec<ResponseBlock>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: ResponseUsage,
}

#[derive(Deserialize)]
struct ResponseBlock {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// The usage of a response. Some gateways omit fields or return null.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseUsage {
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_write: Option<u64>,
}

fn read(answer: &HttpResponse) -> Result<SummaryReply, AttemptError> {
    let message: ResponseMessage =
        serde_json::from_slice(&answer.body).map_err(|_| not_json(answer))?;
    // A compatible server may return thinking blocks, which are not part of the summary.
    let texts = message.content.iter().filter(|block| block.kind == "text");
    let text: String = texts.map(|block| block.text.as_str()).collect();
    // An output that reaches the end of the context window is cut off as one that reaches `max_tokens`.
    let stop = match message.stop_reason.as_deref() {
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("refusal") => StopReason::Refusal,
        _ => StopReason::EndTurn,
    };
    // A refusal with text stays a reply, so that the chain can return it if every other model fails.
    if text.trim().is_empty() {
        return Err(AttemptError::Final(match stop {
            StopReason::Refusal => Error::Refused {
                fault: ProviderError::local("stop reason refusal"),
            },
            StopReason::EndTurn | StopReason::MaxTokens => Error::Empty,
        }));
    }
    let usage = message.usage;
    Ok(SummaryReply {
        text,
        stop,
        model: message.model,
        usage: Usage {
            input: usage.input.unwrap_or(0),
            output: usage.output.unwrap_or(0),
            cache_read: usage.cache_read.unwrap_or(0),
            cache_write: usage.cache_write.unwrap_or(0),
        },
    })
}
