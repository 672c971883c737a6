//! Which trace a call belongs to: the caller's, by W3C trace context, or one of its own.
//!
//! The exporter of traces plugs in here; until then the id ties a refused call to the log.

use std::fmt;
use std::future::Future;

use http::HeaderMap;

use crate::clock::IdSource;

/// The header that carries the trace context.
const HEADER: &str = "traceparent";

/// The id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(u128);

tokio::task_local! {
    static CURRENT: TraceId;
}

impl TraceId {
    /// The trace that the caller names, or a new one.
    pub fn of(headers: &HeaderMap, ids: &IdSource) -> Self {
        headers
            .get(HEADER)
            .and_then(|value| parse(value.to_str().ok()?))
            .unwrap_or_else(|| Self(ids.uuid().as_u128()))
    }

    /// The trace of the call that the current task works on.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|id| *id).ok()
    }

    /// Runs a future as a part of this trace.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }

    /// Runs a function as a part of this trace.
    pub(super) fn within<T>(self, function: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, function)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Reads `version-trace-parent-flags`; a later version may add fields at the end.
fn parse(text: &str) -> Option<TraceId> {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut parts = text.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (parent, flags) = (parts.next()?, parts.next()?);
    let complete = version != "00" || parts.next().is_none();
    let well_formed = hex(version, 2) && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    if !(complete && well_formed && version != "ff") {
        return None;
    }
    let id = u128::from_str_radix(trace, 16).ok()?;
    (id != 0).then_some(TraceId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_context_is_read_or_ignored() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(parse(&good).unwrap().to_string(), trace);
        assert!(parse(&format!("cc-{trace}-00f067aa0ba902b7-01-more")).is_some());
        for bad in [
            "",
            "00",
            &format!("{good}-more"),
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &good.to_uppercase(),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
