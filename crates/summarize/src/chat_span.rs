//! The span of one request to a model, with the attributes of the OpenTelemetry conventions for generative AI. No
//! attribute contains conversation text.

use http::StatusCode;
use opentelemetry::trace::Status;
use opentelemetry::{Array, Key, StringValue, Value};
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::request::Usage;

/// The maximum length of a name that a caller or a provider chooses, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// The facts about a request that its span reports.
#[derive(Clone, Copy, Debug)]
pub struct ChatRequest<'a> {
    /// The provider in the conventions.
    pub provider: &'static str,
    /// The model. `None` if it is not known.
    pub model: Option<&'a str>,
    /// The id of the conversation. `None` if it is not known.
    pub conversation: Option<&'a str>,
    /// The maximum output in tokens. `None` if it is not known.
    pub max_output_tokens: Option<u64>,
    /// The temperature. `None` if the request has none.
    pub temperature: Option<f64>,
    /// True if the response is a stream.
    pub streams: bool,
    /// The host and the port of the server.
    pub server: (&'a str, u16),
}

/// The facts about a response that its span reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatResponse<'a> {
    /// The id of the response.
    pub id: Option<&'a str>,
    /// The model that answered.
    pub model: Option<&'a str>,
    /// The reason for the end of the output, in the provider's words.
    pub finish_reason: Option<&'a str>,
    /// The token usage.
    pub usage: Option<Usage>,
}

/// The span of one request. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ChatSpan(Span);

impl ChatSpan {
    /// Starts the span within another one.
    pub fn begin(parent: &Span, request: &ChatRequest<'_>) -> Self {
        let model = request.model.map(bounded);
        let (host, port) = request.server;
        // Log lines have no use for these fields, so the span is below their level.
        Self(tracing::debug_span!(
            target: "palimpsest::span",
            parent: parent,
            "chat",
            otel.name = model.map(|model| format!("chat {model}")),
            otel.kind = "client",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = request.provider,
            gen_ai.request.model = model,
            gen_ai.request.max_tokens = request.max_output_tokens.map(integer),
            gen_ai.request.temperature = request.temperature,
            gen_ai.request.stream = request.streams.then_some(true),
            gen_ai.conversation.id = request.conversation,
            server.address = host,
            server.port = i64::from(port),
            error.type = field::Empty,
        ))
    }

    /// Returns the span.
    pub fn span(&self) -> &Span {
        &self.0
    }

    /// Returns true if the span is not exported. Attributes would then only cost time.
    pub fn is_disabled(&self) -> bool {
        self.0.is_disabled()
    }

    /// Sets an attribute.
    pub fn set_attribute(&self, name: impl Into<Key>, value: impl Into<Value>) {
        if !self.is_disabled() {
            self.0.set_attribute(name, value);
        }
    }

    /// Records the status of the response.
    pub fn responded(&self, status: StatusCode) {
        let code = i64::from(status.as_u16());
        self.set_attribute("http.response.status_code", code);
        if !status.is_success() && !self.is_disabled() {
            self.failed(status.as_str());
        }
    }

    /// Records the class of the error that ended the request.
    pub fn failed(&self, error: &str) {
        if self.is_disabled() {
            return;
        }
        self.0.set_attribute("error.type", error.to_owned());
        self.0.set_status(Status::error(error.to_owned()));
    }

    /// Records the response.
    pub fn ended(&self, response: &ChatResponse<'_>) {
        if self.is_disabled() {
            return;
        }
        let texts = [
            ("gen_ai.response.id", response.id),
            ("gen_ai.response.model", response.model),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                self.set_attribute(name, bounded(text).to_owned());
            }
        }
        if let Some(reason) = response.finish_reason {
            let reason = StringValue::from(bounded(reason).to_owned());
            let reasons = Value::Array(Array::String(vec![reason]));
            self.set_attribute("gen_ai.response.finish_reasons", reasons);
        }
        let Some(usage) = response.usage else {
            return;
        };
        // The conventions count the tokens of the cache as a part of the input.
        let input = usage
            .input
            .saturating_add(usage.cache_read)
            .saturating_add(usage.cache_write);
        for (name, tokens) in [
            ("gen_ai.usage.input_tokens", input),
            ("gen_ai.usage.output_tokens", usage.output),
            ("gen_ai.usage.cache_read.input_tokens", usage.cache_read),
            (
                "gen_ai.usage.cache_creation.input_tokens",
                usage.cache_write,
            ),
        ] {
            self.set_attribute(name, integer(tokens));
        }
    }
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn bounded(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}
