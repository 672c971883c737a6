//! Client for OpenAI's Chat Completions API and compatible servers: vLLM, Ollama, llama.cpp, Azure
//! and gateways.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoint::{ModelEndpoint, call, not_json};
use crate::error::Error;
use crate::error_response::classify_rejection;
use crate::http::{HttpClient, HttpResponse};
use crate::provider_error::ProviderError;
use crate::request::{Role, StopReason, SummaryReply, SummaryRequest, Usage};
use crate::retry::AttemptError;
use crate::summarizer::Summarizer;
use crate::wire::alternating;

/// The name of the parameter that limits the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputLimitField {
    /// Starts with `max_tokens`, which nearly all servers accept. Switches to the other name after
    /// the provider requires it.
    #[default]
    Either,
    /// Always `max_tokens`.
    MaxTokens,
    /// Always `max_completion_tokens`, which OpenAI's reasoning models require and many servers
    /// ignore.
    MaxCompletionTokens,
}

/// A summarizer for any server with the Chat Completions API.
#[derive(Debug)]
pub struct OpenAi {
    endpoint: ModelEndpoint,
    http: HttpClient,
    /// True if the client may switch to the other parameter name.
    either: bool,
    /// True if `max_completion_tokens` is sent, by setting or after a rejection of `max_tokens`.
    completion_tokens: AtomicBool,
}

impl OpenAi {
    /// The base URL of OpenAI. The path `/chat/completions` is appended to a base URL.
    pub const BASE_URL: &'static str = "https://api.openai.com/v1";

    /// Creates a client without opening a connection.
    pub fn new(endpoint: ModelEndpoint, cap: OutputLimitField) -> Result<Self, Error> {
        Ok(Self {
            http: HttpClient::new(endpoint.http)?,
            endpoint,
            either: cap == OutputLimitField::Either,
            completion_tokens: AtomicBool::new(cap == OutputLimitField::MaxCompletionTokens),
        })
    }

    fn body(&self, request: &SummaryRequest, cap: &str) -> Bytes {
        let mut body = body(request, cap);
        body["model"] = json!(request.model.as_ref().unwrap_or(&self.endpoint.model));
        body.to_string().into()
    }

    async fn ask(&self, request: &SummaryRequest, cap: &str) -> Result<SummaryReply, Error> {
        let headers = self.endpoint.headers(None).await?;
        let url = self.endpoint.url("", "/chat/completions");
        let body = self.body(request, cap);
        let read = |answer: &HttpResponse| read(answer, request);
        let target = ("openai", &url, &headers);
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

/// Builds the body of a request without the model.
fn body(request: &SummaryRequest, cap: &str) -> Value {
    let system = (!request.system.trim().is_empty())
        .then(|| json!({"role": "system", "content": request.system}));
    let messages: Vec<Value> = system.into_iter().chain(messages(request)).collect();
    let mut body = json!({ "messages": messages });
    body[cap] = json!(request.max_output_tokens);
    body
}

/// Returns the conversation and the instruction as messages.
fn messages(request: &SummaryRequest) -> Vec<Value> {
    let mut turns = alternating(&request.turns);
    match turns.last_mut() {
        Some((Role::User, texts)) => texts.push(&request.instruction),
        _ => turns.push((Role::User, vec![&request.instruction])),
    }
    // Each message has a single string, because some servers do not support several text parts.
    let message = |(role, texts): &(Role, Vec<&str>)| json!({"role": role.name(), "content": texts.join("\n\n")});
    turns.iter().map(message).collect()
}

/// Builds the body of a request to the Responses API, without the model.
pub(crate) fn delegated_response(request: &SummaryRequest) -> Value {
    let mut body = json!({
        "input": messages(request),
        "max_output_tokens": request.max_output_tokens,
        "store": false,
    });
    if !request.system.trim().is_empty() {
        body["instructions"] = json!(request.system);
    }
    body
}

/// Builds the body of a request that a caller sends to its own model. Uses `max_completion_tokens`:
/// servers that do not know the name ignore it, but some models reject the older name.
pub(crate) fn delegated(request: &SummaryRequest) -> Value {
    body(request, MAX_COMPLETION_TOKENS)
}

#[async_trait]
impl Summarizer for OpenAi {
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        if self.completion_tokens.load(Ordering::Relaxed) {
            return self.ask(request, MAX_COMPLETION_TOKENS).await;
        }
        match self.ask(request, MAX_TOKENS).await {
            Err(error) if self.either && rejects_limit_field(&error) => {
                // The result is remembered, so that later requests need no second attempt.
                // Concurrent writes store the same value.
                self.completion_tokens.store(true, Ordering::Relaxed);
                self.ask(request, MAX_COMPLETION_TOKENS).await
            }
            result => result,
        }
    }
}

const MAX_TOKENS: &str = "max_tokens";
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

/// Returns true if the provider rejected only the name of the output limit. The request contains no
/// other parameter that a provider might not support.
fn rejects_limit_field(error: &Error) -> bool {
    let Error::BadRequest { fault } = error else {
        return false;
    };
    let said = fault.message.as_deref().unwrap_or_default();
    // OpenAI sends `{"code": "unsupported_parameter"}`. The accepted name in the message is the sign without that code.
    fault.kind.as_deref() == Some("unsupported_parameter") || said.contains(MAX_COMPLETION_TOKENS)
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    model: String,
    choices: Vec<ResponseChoice>,
    usage: Option<ResponseUsage>,
}

#[derive(Deserialize)]
struct ResponseChoice {
    message: ResponseMessage,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ResponseMessage {
    /// The content as a string. Some gateways return a list of text parts.
    #[serde(default)]
    content: Value,
    refusal: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseUsage {
    #[serde(rename = "prompt_tokens")]
    prompt: Option<u64>,
    #[serde(rename = "completion_tokens")]
    completion: Option<u64>,
    #[serde(rename = "prompt_tokens_details")]
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
}

fn read(answer: &HttpResponse, request: &SummaryRequest) -> Result<SummaryReply, AttemptError> {
    let body: Value = serde_json::from_slice(&answer.body).map_err(|_| not_json(answer))?;
    // Gateways return status 200 for errors of the server behind them, with the real status in the
    // body.
    if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
        // `code` can also be a name or a number of the server's own. Without a status, the error counts as 500 and is
        // retried.
        let status = error.get("code").and_then(Value::as_u64);
        let status = status
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| *code >= 400);
        let behind = HttpResponse {
            status: status.unwrap_or(500),
            headers: answer.headers.clone(),
            body: answer.body.clone(),
        };
        return Err(classify_rejection(&behind, request));
    }
    let not_this = |_| AttemptError::Final(Error::bad_request("its answer is no chat completion"));
    let completion: Completion = serde_json::from_value(body).map_err(not_this)?;
    let choice = completion
        .choices
        .into_iter()
        .next()
        .ok_or(AttemptError::Final(Error::Empty))?;
    let text = without_thinking(&content(&choice.message.content)).to_owned();
    let refusal = choice
        .message
        .refusal
        .filter(|refusal| !refusal.trim().is_empty());
    let stop = match choice.finish_reason.as_deref() {
        _ if refusal.is_some() => StopReason::Refusal,
        Some("content_filter") => StopReason::Refusal,
        Some("length") => StopReason::MaxTokens,
        _ => StopReason::EndTurn,
    };
    // A refusal may have its text in a separate field.
    let text = if text.trim().is_empty() {
        refusal.unwrap_or_default()
    } else {
        text
    };
    if text.trim().is_empty() {
        return Err(AttemptError::Final(match stop {
            StopReason::Refusal => Error::Refused {
                fault: ProviderError::local("content filter"),
            },
            StopReason::EndTurn | StopReason::MaxTokens => Error::Empty,
        }));
    }
    Ok(SummaryReply {
        text,
        stop,
        model: completion.model,
        usage: usage(&completion.usage.unwrap_or_default()),
    })
}

fn usage(used: &ResponseUsage) -> Usage {
    let details = used.details.as_ref();
    let cached = details
        .and_then(|details| details.cached_tokens)
        .unwrap_or(0);
    // `prompt_tokens` includes the cached tokens, but the input of `Usage` does not.
    Usage {
        input: used.prompt.unwrap_or(0).saturating_sub(cached),
        output: used.completion.unwrap_or(0),
        cache_read: cached,
        cache_write: 0,
    }
}

fn content(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Removes the reasoning that self-hosted models write into the answer. Returns an empty text if the
/// answer was cut off within the reasoning.
fn without_thinking(text: &str) -> &str {
    let start = text.trim_start();
    let Some(thinking) = start.strip_prefix("<think>") else {
        return text;
    };
    thinking
        .split_once("</think>")
        .map_or("", |(_, answer)| answer.trim_start())
}

#[cfg(test)]
mod tests {
    use super::without_thinking;

    #[test]
    fn thinking_is_removed_from_a_summary() {
        assert_eq!(
            without_thinking("<think>\nhm\n</think>\n\nThe summary"),
            "The summary"
        );
        assert_eq!(without_thinking("<think> cut off"), "");
        assert_eq!(without_thinking("about <think> tags"), "about <think> tags");
    }
}
