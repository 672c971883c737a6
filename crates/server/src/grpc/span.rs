//! The span of an rpc, with the attributes of the OpenTelemetry conventions for rpcs.

use std::ops::Deref;

use palimpsest_edge::telemetry::CallerSpan;
use palimpsest_http::code_name;
use tonic::Code;

use crate::metrics::RpcMethod;
use crate::telemetry::CallTrace;

#[derive(Debug, Clone)]
pub(super) struct CallSpan(CallerSpan);

impl Deref for CallSpan {
    type Target = CallerSpan;

    fn deref(&self) -> &CallerSpan {
        &self.0
    }
}

impl CallSpan {
    /// Starts the span in the caller's trace.
    pub(super) fn begin(trace: &CallTrace, path: &str, method: &RpcMethod) -> Self {
        // Unknown paths share one name, so that callers cannot create span names.
        let name = if method.is_known() { path } else { "other" };
        let span = CallerSpan::begin(trace, path, name);
        if span.is_exported() {
            span.set_attribute("rpc.system", "grpc");
            span.set_attribute("rpc.service", method.full_service.to_string());
            span.set_attribute("rpc.method", method.name.to_string());
        }
        Self(span)
    }

    /// Records the outcome. Only faults of the service set the error status, as the conventions require for servers.
    pub(super) fn end(&self, code: Code, reason: Option<&str>) {
        // Attributes of a span that is not exported would only cost time.
        if !self.is_exported() {
            return;
        }
        self.set_attribute("rpc.grpc.status_code", i64::from(i32::from(code)));
        if code == Code::Ok {
            return;
        }
        let reason = reason.unwrap_or(code_name(code)).to_owned();
        self.set_attribute("error.type", reason);
        if matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ) {
            self.set_error(code_name(code));
        }
    }
}
