//! The span of a request to a model, with the attributes of the OpenTelemetry conventions for generative AI. No attribute
//! contains content.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use opentelemetry::trace::{Status, TraceContextExt as _};
use palimpsest_core::ids::SessionKey;
use palimpsest_edge::telemetry::{CallTrace, SPANS, not_sampled};
use palimpsest_engine::clock::IdSource;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::reading::{ResponseApi, ResponseEnd, ResponseSummary};

/// The maximum length of a model's name in a span, in bytes.
const MAX_MODEL_BYTES: usize = 100;

/// The span of a request to a model. It ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ModelSpan {
    span: Span,
    /// True if the span is exported to a collector.
    is_exported: bool,
}

impl ModelSpan {
    /// Starts the span in the agent's trace, or in a new one.
    pub(crate) fn begin(headers: &HeaderMap, ids: &Arc<IdSource>, api: ResponseApi) -> Self {
        let trace = CallTrace::of(headers, ids);
        let span = tracing::info_span!(
            target: SPANS,
            "chat",
            otel.kind = "client",
            trace_id = %trace.id,
            session = field::Empty,
        );
        if let Some(parent) = &trace.parent {
            // Without an exporter the span has no OpenTelemetry context, and the error is expected.
            let _ = span.set_parent(parent.clone());
        }
        // Reading the context starts the OpenTelemetry span, which takes its trace id from the scope.
        let context = trace.id.within(|| span.context());
        let begun = context.span();
        let is_exported = begun.span_context().is_sampled();
        if is_exported {
            span.set_attribute("gen_ai.operation.name", "chat");
            span.set_attribute("gen_ai.provider.name", provider(api));
        } else if begun.span_context().is_valid() {
            not_sampled(&span);
        }
        Self { span, is_exported }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Records the model and the session of the request, and the kind of its body.
    pub(crate) fn prepared(&self, model: Option<&str>, session: &SessionKey, body: &'static str) {
        self.span.record("session", field::display(session));
        if !self.is_exported {
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
        if !self.is_exported {
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
        if !self.is_exported {
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
