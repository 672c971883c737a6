//! Logs: structured, on stderr, and never with what a conversation says.
//!
//! Traces and metrics over OTLP join the subscriber that [`init`] builds; their shutdown belongs
//! into [`Telemetry::shutdown`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic;

use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::config::{LogConfig, LogFormat};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one. The configuration checks this first.
    #[error("failed to read the log filter: {0}")]
    Filter(#[from] ParseError),
    /// The process logs elsewhere already.
    #[error("failed to set up logging: {0}")]
    Init(#[from] TryInitError),
}

/// What must be shut down last, so that nothing said on the way is lost.
#[derive(Debug)]
#[must_use]
pub struct Telemetry(());

impl Telemetry {
    /// Sends what is still to be sent. Logs are written at once, so that today nothing is.
    pub fn shutdown(self) {}
}

/// Sets up logging for the process, and the panic hook.
pub fn init(config: &LogConfig) -> Result<Telemetry, TelemetryError> {
    let is_terminal = io::stderr().is_terminal();
    let filter = EnvFilter::try_new(directives(config.level.as_str()))?;
    Registry::default()
        .with(lines(config.format, is_terminal, io::stderr).with_filter(filter))
        .try_init()?;
    panic::set_hook(Box::new(log_panic));
    Ok(Telemetry(()))
}

/// A bare `debug` means our own: the transport's frames would bury it. Naming modules still shows
/// whatever is named.
fn directives(level: &str) -> String {
    let is_bare = |name: &str| level.trim().eq_ignore_ascii_case(name);
    if is_bare("debug") || is_bare("trace") {
        format!("{level},h2=info,hyper=info,hyper_util=info,tonic=info,tower=info")
    } else {
        level.to_owned()
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
        base.json().flatten_event(true).boxed()
    } else {
        base.boxed()
    }
}

/// One event for a panic. Its text is left out: it may quote whatever the code was working on.
fn log_panic(info: &panic::PanicHookInfo<'_>) {
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

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

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
        assert!(directives("debug").starts_with("debug,h2=info,"));
        for other in ["info", "warn", "debug,h2=trace", "palimpsest_server=debug"] {
            assert_eq!(directives(other), other);
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
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        // The hook is the process's: another test's panic may have come between.
        let ours = text
            .lines()
            .find(|line| line.contains("telemetry.rs"))
            .unwrap();
        assert!(
            ours.starts_with('{') && ours.contains("\"level\":\"ERROR\""),
            "{ours}"
        );
        assert!(!text.contains("secret"), "{text}");
    }
}
