//! The spans of requests to models upstream, within the span of an agent's request.

use http::StatusCode;
use palimpsest_core::ids::SessionKey;
use palimpsest_summarize::{ChatRequest, ChatResponse, ChatSpan, Usage};
use tokio::time::Instant;

use super::call::GatewayCall;
use super::context::ModelOptions;
use super::reading::{ResponseApi, ResponseEnd, ResponseSummary};
use super::upstream::Upstream;

/// The parts that the spans of all requests for one response share.
#[derive(Debug, Clone)]
pub(crate) struct ModelTarget {
    provider: &'static str,
    server: (Box<str>, u16),
    model: Option<String>,
    options: ModelOptions,
}

/// The span of one request to a model. It ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ModelSpan {
    span: ChatSpan,
    call: GatewayCall,
    begun: Instant,
}

impl ModelTarget {
    /// Creates the parts. The model and the options are known if a session has read the request.
    pub(crate) fn new(
        api: ResponseApi,
        upstream: &Upstream,
        read: Option<(Option<String>, ModelOptions)>,
    ) -> Self {
        let (model, options) = read.unwrap_or_default();
        Self {
            provider: provider(api),
            server: upstream.server(),
            model,
            options,
        }
    }

    /// Starts the span of a request. `session` is the session that has taken the conversation, if it is known.
    pub(crate) fn begin(&self, call: &GatewayCall, session: Option<&SessionKey>) -> ModelSpan {
        let span = ChatSpan::begin(
            call.span(),
            &ChatRequest {
                provider: self.provider,
                model: self.model.as_deref(),
                conversation: session.map(|session| session.session.as_str()),
                max_output_tokens: self.options.max_output_tokens,
                temperature: self.options.temperature,
                streams: self.options.streams,
                server: (&self.server.0, self.server.1),
            },
        );
        ModelSpan {
            span,
            call: call.clone(),
            begun: Instant::now(),
        }
    }
}

impl ModelSpan {
    /// Returns the agent's request.
    pub(crate) fn call(&self) -> &GatewayCall {
        &self.call
    }

    /// Records the session, which was not known at the start.
    pub(crate) fn of_session(&self, session: &SessionKey) {
        // Without a collector, the name is not formatted.
        if !self.span.is_disabled() {
            let conversation = session.session.to_string();
            self.span
                .set_attribute("gen_ai.conversation.id", conversation);
        }
    }

    /// Records the status of the response.
    pub(crate) fn responded(&self, status: StatusCode) {
        self.span.responded(status);
    }

    /// Records the class of the error that left the request without a response.
    pub(crate) fn failed(&self, error: &str) {
        self.span.failed(error);
    }

    /// Records the arrival of the first part of a stream.
    pub(crate) fn first_chunk(&self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.span
            .set_attribute("gen_ai.response.time_to_first_chunk", seconds);
    }

    /// Records a response that was read.
    pub(crate) fn ended(&self, end: ResponseEnd, summary: &ResponseSummary) {
        self.span.ended(&ChatResponse {
            id: summary.id.as_deref(),
            model: summary.model.as_deref(),
            finish_reason: summary.stop_reason.as_deref(),
            usage: summary.usage.map(|usage| Usage {
                input: usage.input_tokens,
                output: usage.output_tokens,
                cache_read: usage.cache_read_tokens,
                cache_write: usage.cache_write_tokens,
            }),
        });
        match end {
            ResponseEnd::Complete => {}
            ResponseEnd::Cut => self.failed("cut"),
            ResponseEnd::Failed => self.failed("failed"),
        }
    }
}

/// Returns the name of the provider in the conventions: the one whose API the request uses.
const fn provider(api: ResponseApi) -> &'static str {
    match api {
        ResponseApi::Messages => "anthropic",
        ResponseApi::Chat | ResponseApi::Responses => "openai",
    }
}
