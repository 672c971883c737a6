//! What the server says about itself: logs on stderr, spans and metrics to a collector where one is configured, and
//! never what a conversation says.
//!
//! All spans that leave have the target `SPANS`: nothing of a library leaves by chance, least of all of the
//! exporter's own transport. Without a collector nobody listens to that target, so a span is one comparison.

pub(crate) mod exported;
mod fields;
mod ids;
mod otlp;
mod rate_limit;
mod sampled;
mod tls;
mod trace;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic;
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

pub(crate) use self::exported::ExportStats;
use self::otlp::Otlp;
use self::rate_limit::{LogRateLimit, RateLimitedLayer};
use self::sampled::Sampled;
pub(crate) use self::sampled::not_sampled;
pub(crate) use self::trace::{CallTrace, TraceId, outgoing};
use palimpsest_settings::{Config, LogFormat};

use crate::metrics::Metrics;
pub(crate) use palimpsest_engine::call::SPANS;

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one. The configuration checks this first.
    #[error("failed to read the log filter: {0}")]
    Filter(#[from] ParseError),
    /// The process logs elsewhere already.
    #[error("failed to set up logging: {0}")]
    Init(#[from] TryInitError),
    /// No runtime for the exporter.
    #[error("failed to start the threads that export telemetry: {0}")]
    Runtime(#[source] io::Error),
    /// The collector's address is none.
    #[error("failed to use otlp.endpoint: {0}")]
    Endpoint(String),
    /// The headers for the collector cannot be read.
    #[error("failed to read the headers for the collector: {0}")]
    Headers(&'static str),
    /// A file for TLS to the collector is not what it must be.
    #[error("failed to use {0}: {1}")]
    Tls(&'static str, String),
    /// The exporter refuses its settings.
    #[error("failed to set up the export to otlp.endpoint: {0}")]
    Exporter(#[from] ExporterBuildError),
}

/// What must be shut down last, so that nothing said on the way is lost.
#[must_use]
pub struct Telemetry {
    metrics: Metrics,
    otlp: Option<Otlp>,
}

impl Telemetry {
    /// What the server measures.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Sends what is still to be sent, for as long as `otlp.timeout_ms`. Logs are written at once.
    pub fn shutdown(self) {
        if let Some(otlp) = self.otlp {
            otlp.shutdown(&self.metrics);
        }
    }
}

/// Sets up logging for the process, the way to the collector, and the panic hook.
pub fn init(config: &Config) -> Result<Telemetry, TelemetryError> {
    let is_terminal = io::stderr().is_terminal();
    let filter = EnvFilter::try_new(directives(config.log.level.as_str()))?;
    let flood: &'static LogRateLimit = Box::leak(Box::default());
    let lines = lines(config.log.format, is_terminal, io::stderr);
    let lines = RateLimitedLayer::new(lines, flood).with_filter(filter);
    rate_limit::report(flood);
    let endpoint = config.otlp.endpoint.as_ref();
    let otlp = endpoint
        .map(|url| Otlp::start(&config.otlp, url.as_str()))
        .transpose()?;
    let (otlp, reader) = otlp.unzip();
    let resource = otlp.as_ref().map(|_| otlp::resource(&config.otlp));
    let resource = resource.unwrap_or_else(|| Resource::builder_empty().build());
    let metrics = Metrics::new(resource, reader);
    let spans = otlp.as_ref().map(|otlp| {
        metrics.watch_exports(&otlp.exported);
        tracing_opentelemetry::layer()
            .with_tracer(otlp.tracer())
            // Where the code stands and which thread ran it says nothing to who reads traces, and each costs.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(Sampled)
    });
    Registry::default().with(lines).with(spans).try_init()?;
    panic::set_hook(Box::new(log_panic));
    Ok(Telemetry { metrics, otlp })
}

/// A bare `debug` or `trace` is the level of our own crates, and of libraries `info`: their lines would bury ours. A
/// filter with a module in it is taken as it is, so `debug,sled=debug` shows a library. Of the spans the log shows those of calls, whatever its level is: a warning without its trace leads nowhere.
fn directives(level: &str) -> String {
    let is_bare = |name: &str| level.trim().eq_ignore_ascii_case(name);
    if is_bare("debug") || is_bare("trace") {
        // The target of our own lines begins with `palimpsest`, which is a prefix of each of our crates' names.
        format!("info,palimpsest={level},{SPANS}=info")
    } else {
        format!("{level},{SPANS}=info")
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
        // The spans above the current one are told once: it has their trace.
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

/// How often the code panicked, in this process.
pub(crate) fn panics() -> u64 {
    PANICS.load(Relaxed)
}

/// One event for a panic. Its text is left out: it may quote whatever the code was working on.
fn log_panic(info: &panic::PanicHookInfo<'_>) {
    PANICS.fetch_add(1, Relaxed);
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
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

    /// A log that is kept.
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
    fn a_bare_debug_leaves_the_transport_out() {
        assert!(directives("debug").starts_with("info,palimpsest=debug,"));
        for other in ["info", "warn", "debug,h2=trace", "palimpsest_server=debug"] {
            assert_eq!(directives(other), format!("{other},palimpsest::span=info"));
        }
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
        // The hook is the process's: another test's panic may have come between.
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
