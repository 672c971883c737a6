//! Trace ids. A call has an id even without a trace of its caller, because its log lines and errors contain one.

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::trace;

/// An id generator whose new traces take the id of the current call.
#[derive(Debug, Default)]
pub(super) struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        let of_call = trace::TraceId::current().map(|id| TraceId::from(id.get()));
        of_call.unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}
