//! Metrics of calls: duration, size and outcome.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram};
use opentelemetry::{KeyValue, StringValue};
use palimpsest_core::ids::ProjectId;
use palimpsest_edge::metrics::instruments::{counter, histogram};
use palimpsest_edge::metrics::{Metrics, ProjectCall, names};
use palimpsest_http::code_name;
use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost_reflect::DescriptorPool;
use tonic::Code;

/// A method of the contract. Unknown methods share the name `other`, so that callers cannot create label values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RpcMethod {
    pub(crate) full_service: Arc<str>,
    service: Arc<str>,
    /// The name of the method.
    pub(crate) name: Arc<str>,
}

static METHODS: LazyLock<HashMap<String, RpcMethod>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    let methods = pool.services().flat_map(|service| {
        let (full, short): (Arc<str>, Arc<str>) =
            (service.full_name().into(), service.name().into());
        let methods: Vec<_> = service.methods().collect();
        methods.into_iter().map(move |method| {
            let path = format!("{full}/{}", method.name());
            let method = RpcMethod {
                full_service: Arc::clone(&full),
                service: Arc::clone(&short),
                name: method.name().into(),
            };
            (path, method)
        })
    });
    methods.collect()
});

static OTHER: LazyLock<RpcMethod> = LazyLock::new(|| RpcMethod {
    full_service: "other".into(),
    service: "other".into(),
    name: "other".into(),
});

impl RpcMethod {
    /// Returns the method of a path without its leading slash, or `other`.
    pub(crate) fn of(path: &str) -> &'static Self {
        METHODS.get(path).unwrap_or(&OTHER)
    }

    /// Returns true if the method is part of the contract.
    pub(crate) fn is_known(&self) -> bool {
        !std::ptr::eq(self, &raw const *OTHER)
    }
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct CallReport<'a> {
    pub(crate) method: &'a RpcMethod,
    /// The project. `None` if it is not known.
    pub(crate) project: Option<&'a ProjectId>,
    pub(crate) code: Code,
    /// The reason of a failure, as the name of an `ErrorReason`.
    pub(crate) reason: Option<String>,
    /// The duration. `None` for streams whose duration depends on the caller.
    pub(crate) took: Option<Duration>,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
}

/// The instruments of calls.
#[derive(Debug)]
pub(crate) struct CallMetrics {
    duration: Histogram<f64>,
    errors: Counter<u64>,
    request_bytes: Counter<u64>,
    response_bytes: Counter<u64>,
    metrics: Metrics,
}

impl CallMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let meter = metrics.meter();
        Self {
            duration: histogram(meter, &names::RPC_DURATION),
            errors: counter(meter, &names::RPC_ERRORS),
            request_bytes: counter(meter, &names::RPC_REQUEST_BYTES),
            response_bytes: counter(meter, &names::RPC_RESPONSE_BYTES),
            metrics: metrics.clone(),
        }
    }

    /// Records a call whose last byte was sent or whose caller disconnected.
    pub(crate) fn ended(&self, call: CallReport<'_>) {
        let text = |text: &Arc<str>| StringValue::from(Arc::clone(text));
        let method = KeyValue::new("method", text(&call.method.name));
        // Only the duration has the label `code`: each label multiplies the number of series.
        if let Some(took) = call.took {
            let labels = [
                KeyValue::new("service", text(&call.method.service)),
                method.clone(),
                KeyValue::new("code", code_name(call.code)),
            ];
            self.duration.record(took.as_secs_f64(), &labels);
        }
        if let Some(project) = call.project {
            self.metrics.project_call(&ProjectCall {
                project,
                is_ok: call.code == Code::Ok,
                request_bytes: call.request_bytes,
                response_bytes: call.response_bytes,
            });
        }
        let labels = [method.clone()];
        self.request_bytes.add(call.request_bytes, &labels);
        self.response_bytes.add(call.response_bytes, &labels);
        if let Some(reason) = call.reason {
            self.errors
                .add(1, &[method, KeyValue::new("reason", reason)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_share_one_label() {
        let path = "palimpsest.context.v1.ContextService/PrepareContext";
        let method = RpcMethod::of(path);
        assert_eq!(
            (&*method.service, &*method.name),
            ("ContextService", "PrepareContext")
        );
        assert_eq!(&*RpcMethod::of("somebody.elses/Method").name, "other");
    }
}
