//! The ids of traces: a call that nobody traces has one already, which the log and its errors name.

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::trace;

/// A new trace has the id of the call that begins it.
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
