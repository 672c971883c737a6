//! The span of a request to a model, with the attributes of the OpenTelemetry conventions for generative AI. No attribute
//! contains content.

use http::StatusCode;
use opentelemetry::trace::{Status, TraceContextExt as _};
use palimpsest_core::ids::SessionKey;
use palimpsest_edge::telemetry::SPANS;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::call::GatewayCall;
use super::reading::{ResponseApi, ResponseEnd, ResponseSummary};

/// The maximum length of a model's name in a span, in bytes.
const MAX_MODEL_BYTES: usize = 100;

/// The span of a request to a model, within the span of the agent's request. It ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ModelSpan {
    span: Span,
    call: GatewayCall,
}

impl ModelSpan {
    /// Starts the span.
    pub(crate) fn begin(call: &GatewayCall, api: ResponseApi) -> Self {
        let span = tracing::debug_span!(
            target: SPANS,
            parent: call.span(),
            "chat",
            otel.kind = "client",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = provider(api),
            session = field::Empty,
        );
        let call = call.clone();
        Self { span, call }
    }

    /// Returns the agent's request.
    pub(crate) fn call(&self) -> &GatewayCall {
        &self.call
    }

    /// Records the model and the session of the request, and the kind of its body.
    pub(crate) fn prepared(&self, model: Option<&str>, session: &SessionKey, body: &'static str) {
        self.span.record("session", field::display(session));
        if self.span.is_disabled() {
            return;
        }
        if let Some(model) = model {
            let model = &model[..model.floor_char_boundary(MAX_MODEL_BYTES)];
            // The conventions put the model into the name of the span.
            self.span
                .context()
                .span()
                .update_name(format!("chat {model}"));
            self.span
                .set_attribute("gen_ai.request.model", model.to_owned());
        }
        let session = session.session.to_string();
        self.span.set_attribute("gen_ai.conversation.id", session);
        self.span.set_attribute("palimpsest.body", body);
    }

    /// Records the status of the response.
    pub(crate) fn responded(&self, status: StatusCode) {
        if self.span.is_disabled() {
            return;
        }
        let code = i64::from(status.as_u16());
        self.span.set_attribute("http.response.status_code", code);
        if !status.is_success() {
            self.span.set_attribute("error.type", code.to_string());
            self.span.set_status(Status::error(code.to_string()));
        }
    }

    /// Records usage and end of a response that was read.
    pub(crate) fn ended(&self, end: ResponseEnd, summary: &ResponseSummary) {
        if self.span.is_disabled() {
            return;
        }
        let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        if let Some(usage) = &summary.usage {
            let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
            let counts = [
                ("gen_ai.usage.input_tokens", input),
                ("gen_ai.usage.output_tokens", usage.output_tokens),
                (
                    "gen_ai.usage.cache_read.input_tokens",
                    usage.cache_read_tokens,
                ),
                (
                    "gen_ai.usage.cache_creation.input_tokens",
                    usage.cache_write_tokens,
                ),
            ];
            for (name, tokens) in counts {
                self.span.set_attribute(name, count(tokens));
            }
        }
        if end != ResponseEnd::Complete {
            let error = if end == ResponseEnd::Cut {
                "cut"
            } else {
                "failed"
            };
            self.span.set_attribute("error.type", error);
            self.span.set_status(Status::error(error));
        }
    }
}

/// Returns the name of the provider in the conventions.
const fn provider(api: ResponseApi) -> &'static str {
    match api {
        ResponseApi::Messages => "anthropic",
        ResponseApi::Chat | ResponseApi::Responses => "openai",
    }
}
