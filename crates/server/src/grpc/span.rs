//! The span of a call. Log lines contain its few fields. A collector also receives the attributes of the OpenTelemetry
//! conventions for rpcs, which would be repeated on every log line as fields.

use opentelemetry::trace::{Status, TraceContextExt as _};
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_http::code_name;
use tonic::Code;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::metrics::RpcMethod;
use crate::telemetry::{CallTrace, SPANS, not_sampled};

#[derive(Debug, Clone)]
pub(super) struct CallSpan {
    span: Span,
    /// True if the span is exported to a collector.
    is_exported: bool,
}

impl CallSpan {
    /// Starts the span in the caller's trace.
    pub(super) fn begin(trace: &CallTrace, path: &str, method: &RpcMethod) -> Self {
        let span = tracing::info_span!(
            target: SPANS,
            "call",
            otel.kind = "server",
            method = path,
            trace_id = %trace.id,
            span_id = field::Empty,
            // Recorded later, by the edge and by the handler.
            credential = field::Empty,
            project = field::Empty,
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
        if begun.span_context().is_valid() {
            span.record("span_id", field::display(begun.span_context().span_id()));
        }
        if is_exported {
            // Unknown paths share one name, so that callers cannot create span names.
            begun.update_name(if method.is_known() { path } else { "other" }.to_owned());
            span.set_attribute("rpc.system", "grpc");
            span.set_attribute("rpc.service", method.full_service.to_string());
            span.set_attribute("rpc.method", method.name.to_string());
        } else if begun.span_context().is_valid() {
            not_sampled(&span);
        }
        Self { span, is_exported }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn by(&self, credential: &str) {
        self.span.record("credential", credential);
    }

    pub(super) fn of_project(&self, project: &ProjectId) {
        self.span.record("project", project.as_str());
    }

    pub(super) fn about(&self, session: &SessionKey) {
        self.span.record("session", field::display(session));
    }

    /// Records the outcome. Only faults of the service set the error status, as the conventions require for servers.
    pub(super) fn end(&self, code: Code, reason: Option<&str>) {
        // Attributes of a span that is not exported would only cost time.
        if !self.is_exported {
            return;
        }
        let span = &self.span;
        span.set_attribute("rpc.grpc.status_code", i64::from(i32::from(code)));
        if code == Code::Ok {
            return;
        }
        let reason = reason.unwrap_or(code_name(code)).to_owned();
        span.set_attribute("error.type", reason);
        if matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ) {
            span.set_status(Status::error(code_name(code)));
        }
    }
}
