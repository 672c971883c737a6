//! A request to the gateway from its head to its last byte: its caller, its trace and span, and its record in the audit log
//! and in metrics.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use http::{Request, StatusCode};
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_edge::access::{Principal, Right};
use palimpsest_edge::metrics::{Metrics, ProjectCall};
use palimpsest_edge::telemetry::{AuditedCall, CallTrace, CallerSpan, TraceId};
use palimpsest_engine::call::{self, Caller};
use palimpsest_engine::clock::IdSource;
use tracing::{Instrument as _, Span};

use super::answer::Reason;
use super::caller::required_right;
use super::request_body::AgentBody;
use super::route;

/// The maximum length of a path in log lines and in the audit log, in bytes.
const MAX_PATH_BYTES: usize = 200;

/// A request in flight. Every task that works for it holds a clone. The request ends when the last clone is dropped: then
/// its line of the audit log is written, and it is counted.
#[derive(Debug, Clone)]
pub(crate) struct GatewayCall(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The HTTP method and the path, such as `POST /v1/messages`.
    method: Box<str>,
    right: Right,
    /// True if the HTTP method cannot change anything.
    is_safe: bool,
    trace: TraceId,
    span: CallerSpan,
    principal: OnceLock<Arc<Principal>>,
    project: OnceLock<ProjectId>,
    session: OnceLock<SessionKey>,
    /// True if the caller was authorized, and its quotas were taken.
    is_admitted: AtomicBool,
    end: OnceLock<End>,
    request_bytes: Arc<AtomicU64>,
    response_bytes: AtomicU64,
    metrics: Metrics,
}

/// The outcome of a request.
#[derive(Debug)]
struct End {
    /// The status of the response. `None` if upstream closed the connection without one.
    status: Option<StatusCode>,
    /// The code of an answer of the gateway itself.
    reason: Option<&'static str>,
    is_denied: bool,
}

impl GatewayCall {
    /// Starts the record of a request, in the trace of its agent or in a new one. The path of the request names no project.
    pub(crate) fn begin(request: &Request<AgentBody>, ids: &IdSource, metrics: &Metrics) -> Self {
        let (method, path) = (request.method(), request.uri().path());
        let trace = CallTrace::of(request.headers(), ids);
        // A caller chooses the path, so its length in log lines is limited. A cut inside of a character would panic.
        let shown = &path[..path.floor_char_boundary(MAX_PATH_BYTES)];
        let shown: Box<str> = format!("{method} {shown}").into();
        let span = CallerSpan::begin(&trace, &shown, route::span_name(method, path));
        // Unknown methods share a name, as the conventions for HTTP require.
        let known = route::known_method(method).unwrap_or("_OTHER");
        span.set_attribute("http.request.method", known);
        if let Some(route) = route::of_path(path) {
            span.set_attribute("http.route", route);
        }
        Self(Arc::new(Inner {
            method: shown,
            right: required_right(method, path),
            is_safe: method.is_safe(),
            trace: trace.id,
            span,
            principal: OnceLock::new(),
            project: OnceLock::new(),
            session: OnceLock::new(),
            is_admitted: AtomicBool::new(false),
            end: OnceLock::new(),
            request_bytes: Arc::default(),
            response_bytes: AtomicU64::new(0),
            metrics: metrics.clone(),
        }))
    }

    /// Runs a future as a part of the request. Events that it causes contain the credential of the caller.
    pub(crate) fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let span = self.span().clone();
        call::scope(Arc::clone(&self.0) as Arc<dyn Caller>, future).instrument(span)
    }

    pub(crate) fn span(&self) -> &Span {
        self.0.span.span()
    }

    /// Records the caller.
    pub(crate) fn by(&self, principal: &Arc<Principal>) {
        self.0.span.by(&principal.name);
        let _ = self.0.principal.set(Arc::clone(principal));
    }

    /// Records the project, once the caller may know it.
    pub(crate) fn of_project(&self, project: &ProjectId) {
        self.0.span.of_project(project);
        let _ = self.0.project.set(project.clone());
    }

    /// Returns the right that the request needs.
    pub(crate) fn right(&self) -> Right {
        self.0.right
    }

    /// Records that the request may be sent. From here on, it counts as one of its project.
    pub(crate) fn admitted(&self) {
        self.0.is_admitted.store(true, Relaxed);
    }

    /// Records the session that has taken the conversation. Later calls have no effect.
    pub(crate) fn about(&self, session: &SessionKey) {
        let inner = &self.0;
        if inner.session.set(session.clone()).is_ok() {
            inner.span.about(session);
            let conversation = session.session.to_string();
            inner
                .span
                .set_attribute("gen_ai.conversation.id", conversation);
        }
    }

    /// Records the kind of the body for upstream, and the reason if no session has taken the conversation.
    pub(crate) fn sends(&self, body: &'static str, unmanaged: Option<&'static str>) {
        self.0.span.set_attribute("palimpsest.body", body);
        if let Some(reason) = unmanaged {
            let name = "palimpsest.unmanaged_reason";
            self.0.span.set_attribute(name, reason);
        }
    }

    /// Records an answer of the gateway in place of the response of upstream.
    pub(crate) fn answered(&self, reason: &Reason) {
        self.end(End {
            status: Some(reason.status()),
            reason: Some(reason.code()),
            is_denied: reason.is_denial(),
        });
    }

    /// Records the status of the response.
    pub(crate) fn responded(&self, status: StatusCode) {
        self.end(End {
            status: Some(status),
            reason: None,
            is_denied: false,
        });
    }

    /// Records that upstream closed the connection without a response.
    pub(crate) fn unanswered(&self) {
        self.end(End {
            status: None,
            reason: Some("no_response"),
            is_denied: false,
        });
    }

    fn end(&self, end: End) {
        let inner = &self.0;
        if let Some(status) = end.status {
            let code = i64::from(status.as_u16());
            inner.span.set_attribute("http.response.status_code", code);
        }
        // A 4xx is the fault of the caller. The conventions for HTTP set no error on the span of a server for it.
        let is_fault = end.status.is_none_or(|status| status.is_server_error());
        if is_fault {
            let status = end.status.map(|status| status.as_u16().to_string());
            let error = end.reason.map(str::to_owned).or(status).unwrap_or_default();
            inner.span.set_attribute("error.type", error);
            inner.span.set_error("the gateway or its upstream failed");
        }
        // `Forwarder::answer` records one outcome of each request, so the cell is empty here.
        let _ = inner.end.set(end);
    }

    /// Returns the counter of the bytes of the request.
    pub(crate) fn request_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.request_bytes)
    }

    /// Counts bytes of the response.
    pub(crate) fn sent(&self, bytes: usize) {
        self.0.response_bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Caller for Inner {
    fn may_start_change(&self) -> bool {
        // Only rpcs have a deadline of their caller, after which no change may begin.
        true
    }

    fn credential(&self) -> Option<&str> {
        self.principal.get().map(|principal| &*principal.name)
    }

    /// Returns false, because requests to the gateway have no permit of the admission of rpcs.
    fn pause(&self) -> bool {
        false
    }

    fn resume(&self) {}
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The last clone can be dropped outside of the request, and the log lines below belong to its span.
        let _entered = self.span.span().enter();
        let end = self.end.get();
        let status = end.and_then(|end| end.status);
        let outcome = match (end, status) {
            (_, Some(status)) => status.as_str().to_owned(),
            (Some(_), None) => "UNAVAILABLE".to_owned(),
            // The agent disconnected before a response had a status.
            (None, None) => "CANCELLED".to_owned(),
        };
        let is_denied = end.is_some_and(|end| end.is_denied);
        let reason = end.and_then(|end| end.reason);
        // A `GET` changes nothing, so only a denied one has a line. `write` also leaves out requests with the right
        // `read`, such as a count of tokens.
        if is_denied || !self.is_safe {
            AuditedCall {
                who: self.credential(),
                method: &self.method,
                right: self.right,
                is_denied,
                project: self.project.get(),
                session: self.session.get(),
                outcome: &outcome,
                reason,
                trace: self.trace,
            }
            .write();
        }
        let request_bytes = self.request_bytes.load(Relaxed);
        let response_bytes = self.response_bytes.load(Relaxed);
        tracing::debug!(outcome, reason, request_bytes, response_bytes, "request");
        let project = self.project.get();
        if let Some(project) = project.filter(|_| self.is_admitted.load(Relaxed)) {
            self.metrics.project_call(&ProjectCall {
                project,
                is_ok: status.is_some_and(|status| status.is_success()),
                request_bytes,
                response_bytes,
            });
        }
    }
}
