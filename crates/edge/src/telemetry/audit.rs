//! The audit log: one JSON object per line for each call that changes or deletes something. It contains no content.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_engine::call::AUDIT;
use palimpsest_settings::AuditConfig;
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

use super::{TelemetryError, TraceId};
use crate::access::Right;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Returns true if there is an audit log. `tracing::enabled!` cannot be used for that: with filters of single layers, a
/// check can make the thread lose its next log line.
pub fn is_audited() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// A call that can be a line of the audit log.
#[derive(Debug)]
pub struct AuditedCall<'a> {
    /// The credential of the caller. `None` without authentication.
    pub who: Option<&'a str>,
    /// The rpc, or the method and the path of an HTTP request.
    pub method: &'a str,
    /// The right that the call needs.
    pub right: Right,
    /// True if the caller was denied.
    pub is_denied: bool,
    /// The project. `None` if it is not known.
    pub project: Option<&'a ProjectId>,
    /// The session. `None` if the call ended before it was known.
    pub session: Option<&'a SessionKey>,
    /// The gRPC status, or the HTTP status.
    pub outcome: &'a str,
    /// The reason of a failure.
    pub reason: Option<&'a str>,
    /// The trace of the call.
    pub trace: TraceId,
}

impl AuditedCall<'_> {
    /// Adds the call to the audit log, if there is one and the call can change something or was denied.
    pub fn write(&self) {
        if !is_audited() || (self.right == Right::Read && !self.is_denied) {
            return;
        }
        tracing::info!(
            target: AUDIT,
            who = self.who,
            method = self.method,
            right = self.right.name(),
            project = self.project.map(ProjectId::as_str),
            session = self.session.map(tracing::field::display),
            outcome = self.outcome,
            reason = self.reason,
            trace_id = %self.trace,
        );
    }
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
