//! Export of spans and metrics to a collector, over OTLP.
//!
//! Calls never wait for the export. Spans go into a bounded queue that drops excess spans, and metrics are read
//! periodically. Both are sent by separate threads and a separate runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::PeriodicReader;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};
use palimpsest_settings::{OtlpConfig, OtlpProtocol};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::runtime::Runtime;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use super::TelemetryError;
use super::export_stats::{CountingProcessor, ExportStats, QUEUE_SPANS, TrackedExporter};
use super::ids::Ids;
use super::tls::OtlpTls;

/// The maximum number of spans in one export.
const BATCH_SPANS: usize = 512;
/// The maximum delay of a span before its export.
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// The maximum time for stopping the runtime after the last export.
const RUNTIME_CLOSE: Duration = Duration::from_millis(200);

/// The export to a collector.
pub(super) struct Otlp {
    tracers: SdkTracerProvider,
    pub(super) exported: Arc<ExportStats>,
    runtime: Runtime,
    timeout: Duration,
}

impl Otlp {
    /// Starts the export. Nothing is sent yet, and the collector need not be reachable.
    pub(super) fn start(
        config: &OtlpConfig,
        endpoint: &str,
    ) -> Result<(Self, PeriodicReader<TrackedExporter<MetricExporter>>), TelemetryError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()
            .map_err(TelemetryError::Runtime)?;
        let timeout = Duration::from_millis(config.timeout_ms);
        let exported = Arc::<ExportStats>::default();
        // Building the exporters needs the context of the runtime.
        let entered = runtime.enter();
        let (spans, metrics) = exporters(config, endpoint, timeout)?;
        drop(entered);

        let handle = runtime.handle();
        let spans = TrackedExporter::new(spans, &exported, handle, timeout);
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS)
            .with_max_export_batch_size(BATCH_SPANS)
            .with_scheduled_delay(BATCH_EVERY)
            .build();
        let queue = BatchSpanProcessor::builder(spans)
            .with_batch_config(batches)
            .build();
        let tracers = SdkTracerProvider::builder()
            .with_resource(resource(config))
            .with_id_generator(Ids::default())
            // The caller's decision applies to the whole trace. The ratio applies to calls without a trace.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                config.sample_ratio.get(),
            ))))
            .with_span_processor(CountingProcessor {
                queue,
                exported: Arc::clone(&exported),
            })
            .build();
        let metrics = TrackedExporter::new(metrics, &exported, handle, timeout);
        let reader = PeriodicReader::builder(metrics)
            .with_interval(Duration::from_millis(config.metrics_every_ms))
            .build();
        let otlp = Self {
            tracers,
            exported,
            runtime,
            timeout,
        };
        Ok((otlp, reader))
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.tracers.tracer("palimpsest")
    }

    /// Exports the remaining data and stops. Each signal gets at most one export timeout.
    pub(super) fn shutdown(self, metrics: &crate::metrics::Metrics) {
        // The exporters have already logged a failure.
        let _ = self.tracers.shutdown_with_timeout(self.timeout);
        metrics.shutdown(self.timeout);
        self.runtime.shutdown_timeout(RUNTIME_CLOSE);
    }
}

/// Returns the resource attributes of all spans and metrics.
pub(super) fn resource(config: &OtlpConfig) -> Resource {
    let attributes = config.resource_attributes.pairs();
    let attributes =
        attributes.map(|(name, value)| KeyValue::new(name.to_owned(), value.to_owned()));
    Resource::builder_empty()
        .with_attributes(attributes)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_service_name(config.service_name.as_str().to_owned())
        .build()
}

fn exporters(
    config: &OtlpConfig,
    endpoint: &str,
    timeout: Duration,
) -> Result<(SpanExporter, MetricExporter), TelemetryError> {
    // Both signals share a channel or client. The endpoint of OTLP over HTTP needs a path per signal.
    let (headers, tls) = (headers(config)?, OtlpTls::read(config)?);
    match config.protocol {
        OtlpProtocol::Grpc => {
            let metadata = MetadataMap::from_headers(headers);
            let channel = channel(endpoint, &tls, timeout)?;
            let spans = SpanExporter::builder()
                .with_tonic()
                .with_channel(channel.clone())
                .with_metadata(metadata.clone())
                .with_timeout(timeout)
                .build()?;
            let metrics = MetricExporter::builder()
                .with_tonic()
                .with_channel(channel)
                .with_metadata(metadata)
                .with_timeout(timeout)
                .build()?;
            Ok((spans, metrics))
        }
        OtlpProtocol::HttpProtobuf => {
            let text = |(name, value): (&HeaderName, &HeaderValue)| {
                (
                    name.to_string(),
                    // `parse_headers` rejects a value that is no text.
                    value.to_str().unwrap_or_default().to_owned(),
                )
            };
            let headers: HashMap<String, String> = headers.iter().map(text).collect();
            // A trailing slash would give an empty segment in the paths below.
            let endpoint = endpoint.trim_end_matches('/');
            let client = tls.client(timeout)?;
            let spans = SpanExporter::builder()
                .with_http()
                .with_http_client(client.clone())
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(format!("{endpoint}/v1/traces"))
                .with_headers(headers.clone())
                .with_timeout(timeout)
                .build()?;
            let metrics = MetricExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(format!("{endpoint}/v1/metrics"))
                .with_headers(headers)
                .with_timeout(timeout)
                .build()?;
            Ok((spans, metrics))
        }
    }
}

fn channel(endpoint: &str, tls: &OtlpTls, timeout: Duration) -> Result<Channel, TelemetryError> {
    let wrong = |error: tonic::transport::Error| TelemetryError::Endpoint(error.to_string());
    let channel = Channel::from_shared(endpoint.to_owned())
        .map_err(|error| TelemetryError::Endpoint(error.to_string()))?
        .connect_timeout(timeout)
        .tcp_nodelay(true);
    let channel = if endpoint.starts_with("https:") {
        channel.tls_config(tls.of_channel()).map_err(wrong)?
    } else {
        channel
    };
    Ok(channel.connect_lazy())
}

/// Reads the headers for the collector: `name=value`, separated by commas or line ends.
fn headers(config: &OtlpConfig) -> Result<HeaderMap, TelemetryError> {
    let from_env = config.headers_env.as_ref().map(|name| {
        std::env::var(name.as_str()).map_err(|_| {
            TelemetryError::Headers("otlp.headers_env names a variable that is not set")
        })
    });
    let from_file = config.headers_file.as_ref().map(|path| {
        std::fs::read_to_string(path)
            .map_err(|_| TelemetryError::Headers("the file of otlp.headers_file cannot be read"))
    });
    let Some(text) = from_env.or(from_file).transpose()? else {
        return Ok(HeaderMap::new());
    };
    let text = SecretString::from(text);
    parse_headers(text.expose_secret()).ok_or(TelemetryError::Headers(
        "must have the form name=value in ASCII, with a comma or the end of a line between headers",
    ))
}

fn parse_headers(text: &str) -> Option<HeaderMap> {
    let parts = text
        .split([',', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let header = |part: &str| {
        // Only the first `=` is a separator, because a value in base64 can end with others.
        let (name, value) = part.split_once('=')?;
        let name: HeaderName = name.trim().to_ascii_lowercase().parse().ok()?;
        let mut value: HeaderValue = value.trim().parse().ok()?;
        // Over HTTP the exporter takes text only.
        value.to_str().ok()?;
        // Sensitive values are left out of debug output.
        value.set_sensitive(true);
        Some((name, value))
    };
    parts.map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed_or_rejected() {
        let both = parse_headers("Authorization=Bearer a=b,\n x-team = one\n").unwrap();
        assert_eq!(both["authorization"], "Bearer a=b");
        assert_eq!(both["x-team"], "one");
        assert!(both["authorization"].is_sensitive());
        assert!(parse_headers("").unwrap().is_empty());
        assert_eq!(parse_headers("no value"), None);
        assert_eq!(parse_headers("na me=value"), None);
        assert_eq!(parse_headers("name=caf\u{e9}"), None);
    }
}
