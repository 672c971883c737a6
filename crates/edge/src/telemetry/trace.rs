//! The trace of a call: the caller's trace from the W3C trace context, or a new one. Outgoing requests continue the
//! same trace.
//!
//! The trace id connects an error with the log, even if spans are not exported.

use std::fmt;
use std::future::Future;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use palimpsest_engine::clock::IdSource;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The header with the trace context.
const HEADER: &str = "traceparent";

/// The trace of a call.
#[derive(Debug, Clone)]
pub struct CallTrace {
    /// The id of the trace.
    pub id: TraceId,
    /// The caller's span, if the header names one.
    pub parent: Option<Context>,
}

impl CallTrace {
    /// Returns the trace in the headers, or a new trace.
    pub fn of(headers: &HeaderMap, ids: &IdSource) -> Self {
        let parent = headers
            .contains_key(HEADER)
            .then(|| extract(headers))
            .flatten();
        let named = parent.as_ref().map(|parent| {
            let id = parent.span().span_context().trace_id();
            TraceId(u128::from_be_bytes(id.to_bytes()))
        });
        Self {
            id: named.unwrap_or_else(|| TraceId::new(ids)),
            parent,
        }
    }
}

fn extract(headers: &HeaderMap) -> Option<Context> {
    let context = TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &HeaderExtractor(headers));
    let is_valid = context.span().span_context().is_valid();
    is_valid.then_some(context)
}

/// Returns the headers that continue the current trace in an outgoing request. Empty if the span has no trace context.
pub fn injected_headers() -> HeaderMap {
    let context = Span::current().context();
    let mut headers = HeaderMap::new();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(&mut headers));
    }
    headers
}

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeaderInjector<'a>(&'a mut HeaderMap);

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` is omitted.
        if value.is_empty() {
            return;
        }
        let name = HeaderName::try_from(key);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// The id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(u128);

tokio::task_local! {
    static CURRENT: TraceId;
}

impl TraceId {
    /// Creates an id from a UUID of version 7.
    ///
    /// Samplers use the first bits of the second half. In such a UUID these are the variant and a counter, so the
    /// second half is rotated to move random bits there.
    fn new(ids: &IdSource) -> Self {
        let (time, random) = ids.uuid().as_u64_pair();
        Self(u128::from(time) << 64 | u128::from(random.rotate_left(32)))
    }

    /// Returns the id as a number.
    pub fn get(self) -> u128 {
        self.0
    }

    /// Returns the trace of the call that the current task works on.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|id| *id).ok()
    }

    /// Runs a future in this trace.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }

    /// Runs a function in this trace.
    pub fn within<T>(self, function: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, function)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_sampler_selects_its_share_of_generated_trace_ids() {
        use std::sync::Arc;

        use opentelemetry::trace::SpanKind;
        use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};

        let ids = IdSource::random(Arc::new(palimpsest_engine::clock::SystemClock::new()));
        let sampler = Sampler::TraceIdRatioBased(0.1);
        let taken = (0..10_000).filter(|_| {
            let id = TraceId::new(&ids).get().into();
            let result = sampler.should_sample(None, id, "rpc", &SpanKind::Server, &[], &[]);
            result.decision == SamplingDecision::RecordAndSample
        });
        let taken = taken.count();
        // The standard deviation is 30, so a correct sampler does not leave this range in practice.
        assert!((800..1_200).contains(&taken), "{taken}");
    }

    #[test]
    fn valid_trace_context_is_parsed_and_other_ignored() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        let parse = |text: &str| {
            let headers = HeaderMap::from_iter([(HEADER.parse().unwrap(), text.parse().unwrap())]);
            let context = extract(&headers)?;
            Some(context.span().span_context().trace_id().to_string())
        };
        assert_eq!(parse(&good).unwrap(), trace);
        // A later version of the header can have further fields. Version `00` cannot, and `ff` is invalid.
        assert!(parse(&format!("cc-{trace}-00f067aa0ba902b7-01-more")).is_some());
        for bad in [
            "",
            "00",
            &format!("{good}-more"),
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            // The header allows lowercase hexadecimal digits only.
            &good.to_uppercase(),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
