//! An OTLP collector that accepts spans and metrics over gRPC and HTTP, and stores them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State as Of;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use palimpsest_tests::ReservedPort;
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

#[derive(Debug, Default)]
struct State {
    spans: Mutex<Vec<Span>>,
    /// Every request as text, for searches.
    text: Mutex<String>,
    metrics: Mutex<BTreeSet<String>>,
    resources: Mutex<BTreeSet<(String, String)>>,
    metadata: Mutex<Vec<MetadataMap>>,
    delay: Mutex<Duration>,
    /// The protocols of the exports: `grpc` or `http/protobuf`.
    protocols: Mutex<BTreeSet<&'static str>>,
    /// True for measurements: only the first spans are stored, to save processor time.
    keeps_little: bool,
}

/// A running collector. It ends with the runtime of its test.
#[derive(Debug, Clone)]
pub(super) struct Receiver {
    state: Arc<State>,
    stop: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    pub(super) url: String,
}

impl Receiver {
    pub(super) fn start() -> Self {
        Self::on(local(), None)
    }

    /// Starts a collector on a listener.
    pub(super) fn at(port: &ReservedPort) -> Self {
        Self::on(port.listen().into(), None)
    }

    /// Starts a collector with TLS.
    pub(super) fn with_tls(tls: ServerTlsConfig) -> Self {
        Self::on(local(), Some(tls))
    }

    fn on(incoming: TcpIncoming, tls: Option<ServerTlsConfig>) -> Self {
        Self::with(State::default(), incoming, tls)
    }

    /// Starts a collector for measurements, which stores almost nothing.
    pub(super) fn start_light() -> Self {
        let state = State {
            keeps_little: true,
            ..State::default()
        };
        Self::with(state, local(), None)
    }

    fn with(state: State, incoming: TcpIncoming, tls: Option<ServerTlsConfig>) -> Self {
        let port = incoming.local_addr().unwrap().port();
        // The certificate is valid for a name only.
        let place = if tls.is_some() {
            "https://localhost"
        } else {
            "http://127.0.0.1"
        };
        let state = Arc::new(state);
        let served = Served(Arc::clone(&state));
        let over_grpc = Routes::new(TraceServiceServer::new(served.clone()))
            .add_service(MetricsServiceServer::new(served.clone()));
        let over_http = over_grpc
            .into_axum_router()
            .route("/v1/traces", post(traces).with_state(served.clone()))
            .route("/v1/metrics", post(metrics).with_state(served));
        // Exporters of OTLP over HTTP use HTTP/1.1.
        let collector = Server::builder().accept_http1(true);
        let collector = match tls {
            Some(tls) => collector.tls_config(tls),
            None => Ok(collector),
        };
        let collector = collector.unwrap().add_routes(Routes::from(over_http));
        let (stop, stopped) = oneshot::channel();
        let stopped = async move {
            // Ends on stop or at the end of the test.
            let _ = stopped.await;
        };
        tokio::spawn(collector.serve_with_incoming_shutdown(incoming, stopped));
        Self {
            state,
            stop: Arc::new(Mutex::new(Some(stop))),
            url: format!("{place}:{port}"),
        }
    }

    /// Stops the collector and closes its connections.
    pub(super) fn stop(&self) {
        let stop = self.stop.lock().unwrap().take();
        stop.unwrap().send(()).unwrap();
    }

    /// Returns the protocols of the exports.
    pub(super) fn protocols(&self) -> Vec<&'static str> {
        self.state
            .protocols
            .lock()
            .unwrap()
            .iter()
            .copied()
            .collect()
    }

    /// Delays all answers from now on.
    pub(super) fn delay(&self, delay: Duration) {
        *self.state.delay.lock().unwrap() = delay;
    }

    pub(super) fn spans(&self) -> Vec<Span> {
        self.state.spans.lock().unwrap().clone()
    }

    /// Waits for a span with this name in a trace. Returns all spans of the trace.
    pub(super) async fn trace_with(&self, trace: &str, name: &str) -> Vec<Span> {
        for _ in 0..200 {
            let spans = self.spans();
            let of_trace = spans
                .into_iter()
                .filter(|span| hex(&span.trace_id) == trace);
            let of_trace: Vec<Span> = of_trace.collect();
            if of_trace.iter().any(|span| span.name == name) {
                return of_trace;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no span {name} of {trace} in {:?}", names(&self.spans()));
    }

    /// Waits for a span with this name.
    pub(super) async fn span(&self, name: &str) {
        for _ in 0..600 {
            if self.spans().iter().any(|span| span.name == name) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no span {name} in {:?}", names(&self.spans()));
    }

    /// Returns the names of received metrics.
    pub(super) fn metrics(&self) -> BTreeSet<String> {
        self.state.metrics.lock().unwrap().clone()
    }

    /// Returns the resource attributes of the senders.
    pub(super) fn resources(&self) -> BTreeSet<(String, String)> {
        self.state.resources.lock().unwrap().clone()
    }

    /// Returns the headers of the last export.
    pub(super) fn last_metadata(&self) -> MetadataMap {
        self.state.metadata.lock().unwrap().last().unwrap().clone()
    }

    /// Returns all received data as text.
    pub(super) fn text(&self) -> String {
        self.state.text.lock().unwrap().clone()
    }
}

/// Listens on a free port.
fn local() -> TcpIncoming {
    TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

pub(super) fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns an attribute as text.
pub(super) fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|one| one.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        Value::BoolValue(truth) => Some(truth.to_string()),
        other => Some(format!("{other:?}")),
    }
}

#[derive(Debug, Clone)]
struct Served(Arc<State>);

/// Accepts traces over HTTP. The body equals the gRPC message.
async fn traces(of: Of<Served>, headers: HeaderMap, body: Bytes) -> Result<Bytes, StatusCode> {
    let message = read(&of, &headers, body)?;
    let reply = TraceService::export(&of.0, message).await;
    let reply = reply.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(ExportTraceServiceResponse::encode_to_vec(reply.get_ref()).into())
}

async fn metrics(of: Of<Served>, headers: HeaderMap, body: Bytes) -> Result<Bytes, StatusCode> {
    let message = read(&of, &headers, body)?;
    let reply = MetricsService::export(&of.0, message).await;
    let reply = reply.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(ExportMetricsServiceResponse::encode_to_vec(reply.get_ref()).into())
}

fn read<T: prost::Message + Default>(
    of: &Served,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Request<T>, StatusCode> {
    let kind = headers
        .get("content-type")
        .and_then(|kind| kind.to_str().ok());
    if kind != Some("application/x-protobuf") {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    of.0.protocols.lock().unwrap().insert("http/protobuf");
    let mut request = Request::new(T::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?);
    *request.metadata_mut() = MetadataMap::from_headers(headers.clone());
    Ok(request)
}

impl Served {
    async fn note<T: std::fmt::Debug>(&self, request: &Request<T>) {
        if self.0.keeps_little {
            return;
        }
        let text = format!("{:?}\n", request.get_ref());
        self.0.text.lock().unwrap().push_str(&text);
        let metadata = request.metadata().clone();
        let kind = metadata.get("content-type");
        if kind.is_none_or(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
            self.0.protocols.lock().unwrap().insert("grpc");
        }
        self.0.metadata.lock().unwrap().push(metadata);
        // The delay is copied, so that the wait holds no lock.
        let delay = *self.0.delay.lock().unwrap();
        tokio::time::sleep(delay).await;
    }
}

#[tonic::async_trait]
impl TraceService for Served {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.note(&request).await;
        if self.0.keeps_little && !self.0.spans.lock().unwrap().is_empty() {
            return Ok(Response::new(ExportTraceServiceResponse::default()));
        }
        for of_resource in request.into_inner().resource_spans {
            let attributes = of_resource.resource.unwrap_or_default().attributes;
            let mut resources = self.0.resources.lock().unwrap();
            for one in attributes {
                if let Some(Value::StringValue(text)) = one.value.and_then(|value| value.value) {
                    resources.insert((one.key, text));
                }
            }
            let spans = of_resource.scope_spans.into_iter();
            let spans = spans.flat_map(|of_scope| of_scope.spans);
            self.0.spans.lock().unwrap().extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Served {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.note(&request).await;
        let all = request.into_inner().resource_metrics.into_iter();
        let all = all.flat_map(|of_resource| of_resource.scope_metrics);
        let all = all.flat_map(|of_scope| of_scope.metrics);
        let names = all.map(|metric| metric.name);
        self.0.metrics.lock().unwrap().extend(names);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
