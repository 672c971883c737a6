//! The spans of a call: one that the log shows, and within it one that leaves for a collector.
//!
//! They are two because they say different things: lines of a log repeat their span's fields, of which the exported
//! one has many.

use opentelemetry::trace::TraceContextExt as _;
use palimpsest_core::ids::SessionKey;
use tonic::Code;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::trace::Caller;
use crate::metrics::{Method, code_name};
use crate::telemetry::SPANS;

/// The spans of a call.
#[derive(Debug, Clone)]
pub(super) struct CallSpans {
    logged: Span,
    /// Nothing while nobody exports spans.
    exported: Span,
}

impl CallSpans {
    /// Begins them, within the caller's trace.
    pub(super) fn begin(caller: &Caller, path: &str, method: &Method) -> Self {
        let logged = tracing::info_span!(
            "call",
            method = path,
            trace_id = %caller.trace,
            span_id = field::Empty,
            // The handler fills it in.
            session = field::Empty,
        );
        let exported = tracing::debug_span!(
            target: SPANS,
            parent: &logged,
            "rpc",
            otel.name = if method.is_known() { path } else { "other" },
            otel.kind = "server",
            otel.status_code = field::Empty,
            error.r#type = field::Empty,
            rpc.system = "grpc",
            rpc.service = &*method.full_service,
            rpc.method = &*method.name,
            rpc.grpc.status_code = field::Empty,
            session = field::Empty,
        );
        if !exported.is_disabled() {
            if let Some(parent) = &caller.parent {
                // It has not begun, so that it can still be put there.
                let _ = exported.set_parent(parent.clone());
            }
            // This begins it: with the trace's id, which has to be known here.
            let context = caller.trace.within(|| exported.context());
            let context = context.span().span_context().clone();
            if context.is_valid() {
                logged.record("span_id", field::display(context.span_id()));
            }
        }
        Self { logged, exported }
    }

    /// The span to work in.
    pub(super) fn inner(&self) -> &Span {
        if self.exported.is_disabled() {
            &self.logged
        } else {
            &self.exported
        }
    }

    pub(super) fn about(&self, session: &SessionKey) {
        self.logged.record("session", field::display(session));
        self.exported.record("session", field::display(session));
    }

    /// Says how the call ended. Only faults of the service are errors of a server's span.
    pub(super) fn end(&self, code: Code, reason: Option<&str>) {
        self.exported.record("rpc.grpc.status_code", code as i64);
        if let Some(reason) = reason {
            self.exported.record("error.type", reason);
        } else if code != Code::Ok {
            self.exported.record("error.type", code_name(code));
        }
        if matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ) {
            self.exported.record("otel.status_code", "ERROR");
        }
    }
}
