//! Telemetry of the server: logs on stderr or in a file, and spans and metrics to an optional collector. Contents of conversations
//! are never included.
//!
//! All exported spans have the target `SPANS`, so no span of a library is exported by accident, above all none of the
//! exporter's own transport. Without a collector this target has no subscriber, and a span costs one comparison.

mod audit;
mod call_span;
mod export_stats;
mod fields;
mod ids;
mod otlp;
mod rate_limit;
mod sampling;
mod tls;
mod trace;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;
use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

pub use self::audit::{AuditedCall, is_audited};
pub use self::call_span::CallerSpan;
pub(crate) use self::export_stats::ExportStats;
use self::otlp::Otlp;
use self::rate_limit::{LogRateLimit, RateLimitedLayer};
use self::sampling::Sampled;
use self::sampling::not_sampled;
pub use self::trace::{CallTrace, TraceId, injected_headers};
use palimpsest_settings::{Config, LogFormat};

use crate::metrics::Metrics;
pub use palimpsest_engine::call::{AUDIT, SPANS};

/// The SDK of MCP logs each request at `info`, with texts of the client. The call of the request is logged anyway.
const QUIET: &str = "rmcp=error";

/// The reason for a failed setup of telemetry.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is invalid. The settings are checked earlier, so this is unexpected.
    #[error("failed to read the log filter: {0}")]
    Filter(#[from] ParseError),
    /// The process already has a logger.
    #[error("failed to set up logging: {0}")]
    Init(#[from] TryInitError),
    /// The file of the audit log cannot be opened.
    #[error("failed to open audit.file {path}: {source}", path = path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The runtime of the exporter cannot be started.
    #[error("failed to start the threads that export telemetry: {0}")]
    Runtime(#[source] io::Error),
    /// The address of the collector is invalid.
    #[error("failed to use otlp.endpoint: {0}")]
    Endpoint(String),
    /// The headers for the collector cannot be read.
    #[error("failed to read the headers for the collector: {0}")]
    Headers(&'static str),
    /// A TLS file for the collector cannot be used.
    #[error("failed to use {0}: {1}")]
    Tls(&'static str, String),
    /// The exporter rejects its settings.
    #[error("failed to set up the export to otlp.endpoint: {0}")]
    Exporter(#[from] ExporterBuildError),
}

/// The telemetry of the process. Shut it down last, so that nothing is lost.
#[must_use]
pub struct Telemetry {
    metrics: Metrics,
    otlp: Option<Otlp>,
}

impl Telemetry {
    /// Returns the metrics of the server.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Exports the remaining data, for at most `otlp.timeout_ms` per signal. Logs are written immediately and need no
    /// flush.
    pub fn shutdown(self) {
        if let Some(otlp) = self.otlp {
            otlp.shutdown(&self.metrics);
        }
    }
}

/// Sets up logging on standard error, the export to the collector and the panic hook of the process.
pub fn init(config: &Config) -> Result<Telemetry, TelemetryError> {
    set_up(config, io::stderr().is_terminal(), io::stderr)
}

/// Sets up telemetry like [`init`], with log lines in a file.
pub fn init_to(config: &Config, file: File) -> Result<Telemetry, TelemetryError> {
    set_up(config, false, file)
}

fn set_up<W>(config: &Config, is_terminal: bool, writer: W) -> Result<Telemetry, TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // The audit log has an output of its own.
    let level = directives(config.log.level.as_str());
    let filter = EnvFilter::try_new(format!("{level},{AUDIT}=off"))?;
    // The limiter lives as long as the process, because its report thread never ends.
    let limit: &'static LogRateLimit = Box::leak(Box::default());
    let lines = lines(config.log.format, is_terminal, writer);
    let lines = RateLimitedLayer::new(lines, limit).with_filter(filter);
    rate_limit::report(limit);
    let endpoint = config.otlp.endpoint.as_ref();
    let otlp = endpoint
        .map(|url| Otlp::start(&config.otlp, url.as_str()))
        .transpose()?;
    let (otlp, reader) = otlp.unzip();
    let resource = otlp.as_ref().map(|_| otlp::resource(&config.otlp));
    let resource = resource.unwrap_or_else(|| Resource::builder_empty().build());
    let metrics = Metrics::new(resource, reader);
    let spans = otlp.as_ref().map(|otlp| {
        metrics.observe_exports(&otlp.exported);
        tracing_opentelemetry::layer()
            .with_tracer(otlp.tracer())
            // Source locations and threads are of no use in traces, and each attribute has a cost.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(Sampled)
    });
    let audit = audit::layer(&config.audit)?;
    Registry::default()
        .with(lines)
        .with(audit)
        .with(spans)
        .try_init()?;
    panic::set_hook(Box::new(log_panic));
    Ok(Telemetry { metrics, otlp })
}

/// Returns the filter directives for `log.level`.
///
/// A bare `debug` or `trace` applies to the crates of this repository, and libraries stay at `info`. A filter with a
/// module is used unchanged, so `debug,sled=debug` includes a library. Call spans are always enabled, because a warning
/// without its trace is of little use.
fn directives(level: &str) -> String {
    let is_bare = |name: &str| level.trim().eq_ignore_ascii_case(name);
    if is_bare("debug") || is_bare("trace") {
        // The names of all crates of this repository begin with `palimpsest`, which is a prefix match here.
        format!("{QUIET},info,palimpsest={level},{SPANS}=info")
    // `off` disables `rmcp` too. A directive for it would switch its errors on again.
    } else if is_bare("off") {
        format!("{level},{SPANS}=info")
    } else {
        format!("{QUIET},{level},{SPANS}=info")
    }
}

fn lines<S, W>(format: LogFormat, is_terminal: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let base = fmt::layer().with_ansi(is_terminal).with_writer(writer);
    let json = match format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Pretty => false,
        LogFormat::Json => true,
    };
    if json {
        // Only the current span is logged, because it already contains the trace of its parents.
        base.json()
            .flatten_event(true)
            .with_span_list(false)
            .fmt_fields(fields::JsonObject)
            .boxed()
    } else {
        base.boxed()
    }
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of panics in this process.
pub fn panics() -> u64 {
    PANICS.load(Relaxed)
}

/// Logs a panic as one event. The panic message is omitted, because it may quote contents of a conversation.
fn log_panic(info: &panic::PanicHookInfo<'_>) {
    PANICS.fetch_add(1, Relaxed);
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    // Captured only if `RUST_BACKTRACE` or `RUST_LIB_BACKTRACE` is set.
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(
        location,
        thread = thread.name().unwrap_or_default(),
        backtrace,
        "the code panicked"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A log writer that keeps its output in memory.
    #[derive(Clone, Default)]
    pub(super) struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Memory {
        pub(super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_level_debug_excludes_the_transport() {
        assert!(directives("debug").starts_with("rmcp=error,info,palimpsest=debug,"));
        for other in ["info", "warn", "debug,h2=trace", "palimpsest_server=debug"] {
            let expected = format!("rmcp=error,{other},palimpsest::span=info");
            assert_eq!(directives(other), expected);
        }
        assert_eq!(directives("off"), "off,palimpsest::span=info");
        assert!(EnvFilter::try_new(directives("trace")).is_ok());
    }

    #[test]
    fn a_panic_is_one_json_event_without_its_text() {
        let written = Memory::default();
        let writer = written.clone();
        let subscriber =
            Registry::default().with(lines(LogFormat::Json, true, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let before = panic::take_hook();
            panic::set_hook(Box::new(log_panic));
            let caught = panic::catch_unwind(|| panic!("secret words"));
            panic::set_hook(before);
            assert!(caught.is_err());
        });
        let text = written.text();
        // The panic hook is global, so the output may include the panic of another test.
        let ours = text
            .lines()
            .find(|line| line.contains("telemetry/mod.rs"))
            .unwrap();
        assert!(
            ours.starts_with('{') && ours.contains("\"level\":\"ERROR\""),
            "{ours}"
        );
        assert!(!text.contains("secret"), "{text}");
    }
}
