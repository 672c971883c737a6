//! The audit log: one JSON object per line for each call that changes or deletes something. It contains no content.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use palimpsest_engine::call::AUDIT;
use palimpsest_settings::AuditConfig;
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

use super::TelemetryError;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Returns true if there is an audit log. `tracing::enabled!` cannot be used for that: with filters of single layers, a
/// check can make the thread lose its next log line.
pub fn is_audited() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Returns the layer that writes the audit log. `None` if there is none.
///
/// Lines are written whole and in order. Unlike other log lines, none is left out because there are many.
pub(super) fn layer<S>(
    config: &AuditConfig,
) -> Result<Option<Box<dyn Layer<S> + Send + Sync>>, TelemetryError>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let Some(path) = &config.file else {
        return Ok(None);
    };
    let layer = fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        .with_writer(writer(path)?)
        .with_filter(filter_fn(|event| event.target() == AUDIT));
    IS_ON.store(true, Ordering::Relaxed);
    Ok(Some(layer.boxed()))
}

fn writer(path: &Path) -> Result<BoxMakeWriter, TelemetryError> {
    if path == Path::new("-") {
        return Ok(BoxMakeWriter::new(io::stdout));
    }
    let file = File::options().append(true).create(true).open(path);
    let file = file.map_err(|source| TelemetryError::Audit {
        path: path.to_owned(),
        source,
    })?;
    Ok(BoxMakeWriter::new(file))
}
