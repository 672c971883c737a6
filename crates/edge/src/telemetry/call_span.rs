//! The span of a call, on every port. Log lines contain its few fields. A collector also receives attributes, which would be
//! repeated on every log line as fields.

use opentelemetry::trace::{Status, TraceContextExt as _};
use opentelemetry::{Key, Value};
use palimpsest_core::ids::{ProjectId, SessionKey};
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{CallTrace, SPANS, not_sampled};

/// The span of a caller's call or request. It ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct CallerSpan {
    span: Span,
    /// True if the span is exported to a collector.
    is_exported: bool,
}

impl CallerSpan {
    /// Starts the span in the caller's trace. `method` is the path of an rpc, or the method and the path of an HTTP request.
    /// `name` is the name for the collector.
    pub fn begin(trace: &CallTrace, method: &str, name: impl Into<String>) -> Self {
        let span = tracing::info_span!(
            target: SPANS,
            "call",
            otel.kind = "server",
            method,
            trace_id = %trace.id,
            span_id = field::Empty,
            // Recorded later, when the caller and the session are known.
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
        // The span of `tracing` has a fixed name, so the name for the collector is set on the OpenTelemetry span.
        if is_exported {
            begun.update_name(name.into());
        } else if begun.span_context().is_valid() {
            not_sampled(&span);
        }
        Self { span, is_exported }
    }

    /// Returns the span.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns true if the span is exported to a collector. Attributes of any other span would only cost time.
    pub fn is_exported(&self) -> bool {
        self.is_exported
    }

    /// Sets an attribute for the collector.
    pub fn set_attribute(&self, name: impl Into<Key>, value: impl Into<Value>) {
        if self.is_exported {
            self.span.set_attribute(name, value);
        }
    }

    /// Marks the span as failed.
    pub fn set_error(&self, description: &'static str) {
        if self.is_exported {
            self.span.set_status(Status::error(description));
        }
    }

    /// Records the credential of the caller.
    pub fn by(&self, credential: &str) {
        self.span.record("credential", credential);
    }

    /// Records the project of the call.
    pub fn of_project(&self, project: &ProjectId) {
        self.span.record("project", project.as_str());
    }

    /// Records the session of the call.
    pub fn about(&self, session: &SessionKey) {
        self.span.record("session", field::display(session));
    }
}
