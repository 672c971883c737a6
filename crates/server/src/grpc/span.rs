//! The span of a call: lines of the log show its few fields, and a collector gets it with what the conventions for
//! rpcs ask for. Those are attributes and no fields, which every line would repeat.

use opentelemetry::trace::{Status, TraceContextExt as _};
use palimpsest_core::ids::SessionKey;
use tonic::Code;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::metrics::{RpcMethod, code_name};
use crate::telemetry::{CallTrace, SPANS, not_sampled};

/// The span of a call.
#[derive(Debug, Clone)]
pub(super) struct CallSpan {
    span: Span,
    /// Whether a collector gets it.
    is_exported: bool,
}

impl CallSpan {
    /// Begins it, within the caller's trace.
    pub(super) fn begin(trace: &CallTrace, path: &str, method: &RpcMethod) -> Self {
        let span = tracing::info_span!(
            target: SPANS,
            "call",
            otel.kind = "server",
            method = path,
            trace_id = %trace.id,
            span_id = field::Empty,
            // The handler fills it in.
            session = field::Empty,
        );
        if let Some(parent) = &trace.parent {
            // Where nobody exports there is no such span, and nothing to be done about it.
            let _ = span.set_parent(parent.clone());
        }
        // This begins it: with the trace's id, which has to be known here.
        let context = trace.id.within(|| span.context());
        let begun = context.span();
        let is_exported = begun.span_context().is_sampled();
        if begun.span_context().is_valid() {
            span.record("span_id", field::display(begun.span_context().span_id()));
        }
        if is_exported {
            begun.update_name(if method.is_known() { path } else { "other" }.to_owned());
            span.set_attribute("rpc.system", "grpc");
            span.set_attribute("rpc.service", method.full_service.to_string());
            span.set_attribute("rpc.method", method.name.to_string());
        } else if begun.span_context().is_valid() {
            not_sampled(&span);
        }
        Self { span, is_exported }
    }

    /// The span to work in.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn about(&self, session: &SessionKey) {
        self.span.record("session", field::display(session));
    }

    /// Says how the call ended. Only faults of the service are errors of a server's span.
    pub(super) fn end(&self, code: Code, reason: Option<&str>) {
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
