//! Gives the conversation of a request to the context, and selects the body for upstream.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts as RequestHead;
use http::response::Parts as ResponseHead;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use palimpsest_core::ids::ProjectId;
use palimpsest_core::message::Digest;
use palimpsest_engine::clock::IdSource;
use palimpsest_engine::turn::JsonParts;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::caller::{KEY_HEADER, PROVIDER_KEY_HEADERS};
use super::context::{
    ContextPort, EditReport, ManagedRequest, ModelBody, ModelRequest, OfferedTools, PendingCommit,
    Purpose, ResponsePlace, Unmanaged,
};
use super::edits::paused;
use super::headers;
use super::managed::session_of_headers;
use super::metrics::ContextMetrics;
use super::reading::{ReadMemory, ReservedMemory, ResponseApi, content_coding, decode_parts};
use super::request_body::RequestBody;
use super::response_body::UpstreamBody;
use super::span::ModelSpan;

/// The header with the kind of the body that upstream got.
pub(crate) const BODY_HEADER: HeaderName = HeaderName::from_static("x-palimpsest-body");
/// The header with the reason for an unmanaged request.
pub(crate) const REASON_HEADER: HeaderName = HeaderName::from_static("x-palimpsest-reason");
/// The header with the session of the conversation.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("x-palimpsest-session");

/// Gives conversations to the context.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) context: Arc<dyn ContextPort>,
    pub(crate) metrics: ContextMetrics,
    /// The source of ids for traces. `None` without sessions.
    pub(crate) ids: Option<Arc<IdSource>>,
    /// The memory of all requests in flight.
    pub(crate) memory: ReadMemory,
    /// The maximum size of a body, in bytes.
    pub(crate) max_bytes: usize,
}

/// A request with a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelCall {
    pub(crate) api: ResponseApi,
    pub(crate) purpose: Purpose,
}

impl ModelCall {
    /// Returns the call of a request. `None` for a request without a conversation.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        if let Some(api) = ResponseApi::of(method, path) {
            let purpose = Purpose::Response;
            return Some(Self { api, purpose });
        }
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let counts = *method == Method::POST && path == "/messages/count_tokens";
        counts.then_some(Self {
            api: ResponseApi::Messages,
            purpose: Purpose::Count,
        })
    }
}

/// A request after the context has seen it.
#[derive(Debug)]
pub(crate) struct Prepared {
    outcome: Result<Managed, Unmanaged>,
    api: ResponseApi,
    /// The time until the request could be sent.
    duration: Duration,
    /// The commit of the conversation. `None` after its end.
    commit: Option<PendingCommit>,
    /// The span of the request. `None` without sessions.
    pub(crate) span: Option<ModelSpan>,
}

/// A request whose conversation a session has taken.
#[derive(Debug)]
struct Managed {
    /// The request of the agent, from which a shorter one can be made.
    from_agent: ModelRequest,
    /// The request for upstream.
    to_upstream: ManagedRequest,
    _memory: ReservedMemory,
}

impl Manager {
    /// Gives the conversation of a request to the context. The body can be sent afterwards in any case.
    /// [`Self::settle`] completes the outcome.
    pub(crate) async fn prepare(
        &self,
        call: ModelCall,
        project: ProjectId,
        headers: &HeaderMap,
        body: &mut RequestBody,
    ) -> Prepared {
        let begun = Instant::now();
        let span = (self.ids.as_ref()).map(|ids| ModelSpan::begin(headers, ids, call.api));
        let within = span
            .as_ref()
            .map_or_else(Span::none, |span| span.span().clone());
        let running = self.run(call, project, headers, body);
        let (outcome, commit) = match running.instrument(within).await {
            Ok((managed, commit)) => (Ok(managed), commit),
            Err(reason) => (Err(reason), None),
        };
        Prepared {
            outcome,
            api: call.api,
            duration: begun.elapsed(),
            commit,
            span,
        }
    }

    /// Waits until the conversation is committed, and reports the outcome. Until then, the agent gets no part of the
    /// response, so it never has a response whose conversation a crash can lose.
    pub(crate) async fn settle(&self, prepared: &mut Prepared) {
        if let Some(commit) = prepared.commit.take() {
            match (commit.outcome().await, &mut prepared.outcome) {
                // The body was sent already. The place changes if another writer has committed first.
                (Ok(committed), Ok(managed)) => managed.to_upstream.place = committed.place,
                (Err(reason), outcome) => *outcome = Err(reason),
                (Ok(_), Err(_)) => {}
            }
        }
        let outcome = &prepared.outcome;
        let kind = match outcome {
            Ok(managed) => {
                if let Some(span) = &prepared.span {
                    let request = &managed.to_upstream;
                    let (model, session) = (request.model.as_deref(), &request.place.session);
                    span.prepared(model, session, managed.kind());
                }
                managed.kind()
            }
            Err(reason) => {
                tracing::debug!(reason = reason.name(), "forwarding a request unmanaged");
                UNMANAGED
            }
        };
        if let Some(edits) = prepared.edits() {
            self.metrics.served(edits);
        }
        let reason = outcome.as_ref().err().copied();
        self.metrics
            .prepared(prepared.api, kind, reason, prepared.duration);
    }

    async fn run(
        &self,
        call: ModelCall,
        project: ProjectId,
        headers: &HeaderMap,
        body: &mut RequestBody,
    ) -> Result<(Managed, Option<PendingCommit>), Unmanaged> {
        let mut memory = ReservedMemory::new(self.memory.clone());
        let max = self.max_bytes;
        let receiving = body.receive(|size| {
            if size > max {
                return Err(Unmanaged::TooLarge);
            }
            memory.reserve(size).map_err(|_| Unmanaged::Memory)
        });
        // A body that ends with an error reaches upstream with the same error.
        let received = receiving.await?.ok_or(Unmanaged::Unreadable)?;
        let coding = content_coding(headers).map_err(|_| Unmanaged::Encoding)?;
        // A body without a coding stays in its frames, which are sent as they are.
        let json = decode_parts(coding, received, max).map_err(|_| Unmanaged::Encoding)?;
        let request = ModelRequest {
            project,
            scope: scope(headers),
            api: call.api,
            session: session_of_headers(headers),
            body: JsonParts::new(json),
            purpose: call.purpose,
        };
        let to_upstream = self.context.prepare(request.clone()).await?;
        let managed = Managed {
            from_agent: request,
            to_upstream: to_upstream.request,
            _memory: memory,
        };
        Ok((managed, to_upstream.commit))
    }

    /// Prepares a request again after the provider rejected its body as too long. Returns the shorter body, or `None` if
    /// no level can shorten the conversation.
    pub(crate) async fn shorten(
        &self,
        prepared: &mut Prepared,
        gap_tokens: Option<u64>,
    ) -> Option<JsonParts> {
        let managed = prepared.outcome.as_mut().ok()?;
        if managed.from_agent.purpose != Purpose::Response {
            return None;
        }
        let mut request = managed.from_agent.clone();
        request.purpose = Purpose::ShorterPrompt { gap_tokens };
        let shorter = self.context.prepare(request).await.ok()?.request;
        let ModelBody::View(body) = &shorter.body else {
            return None;
        };
        let sent = match &managed.to_upstream.body {
            ModelBody::View(sent) => sent,
            ModelBody::Original | ModelBody::Unsendable => &managed.from_agent.body,
        };
        // The provider would reject a body of the same size again.
        if body.len() >= sent.len() {
            return None;
        }
        let body = body.clone();
        let before = std::mem::replace(&mut managed.to_upstream, shorter);
        // The first body had a summary too, which the agent did not get yet.
        if let (Some(edits), Some(before)) = (&mut managed.to_upstream.edits, before.edits) {
            edits.summary = edits.summary.take().or(before.summary);
        }
        Some(body)
    }
}

/// Returns the digest of all credentials of a request.
pub(crate) fn scope(headers: &HeaderMap) -> Digest {
    let mut scope = Digest::of_bytes(b"");
    for name in PROVIDER_KEY_HEADERS.into_iter().chain([KEY_HEADER]) {
        for value in headers.get_all(name) {
            scope = scope.chain(name.as_bytes()).chain(value.as_bytes());
        }
    }
    scope
}

/// The kinds of bodies, in metrics and headers.
pub(crate) const BODIES: [&str; 4] = [ORIGINAL, VIEW, UNSENDABLE, UNMANAGED];
const ORIGINAL: &str = "original";
const VIEW: &str = "view";
const UNSENDABLE: &str = "unsendable";
const UNMANAGED: &str = "unmanaged";

impl Managed {
    const fn kind(&self) -> &'static str {
        match self.to_upstream.body {
            ModelBody::Original => ORIGINAL,
            ModelBody::View(_) => VIEW,
            ModelBody::Unsendable => UNSENDABLE,
        }
    }
}

impl Prepared {
    /// Returns the reason for which no session has taken the conversation.
    pub(crate) fn unmanaged(&self) -> Option<Unmanaged> {
        self.outcome.as_ref().err().copied()
    }

    /// Returns the body that replaces the agent's, and true if its response can be changed.
    pub(crate) fn view(&self) -> Option<(JsonParts, bool)> {
        let changes_response = || self.edits().is_some_and(EditReport::changes_response);
        match &self.outcome.as_ref().ok()?.to_upstream.body {
            ModelBody::View(body) => {
                Some((body.clone(), self.offered().is_some() || changes_response()))
            }
            ModelBody::Original | ModelBody::Unsendable => None,
        }
    }

    /// Returns the tools that the body offers in addition to the agent's.
    pub(crate) fn offered(&self) -> Option<&OfferedTools> {
        self.outcome.as_ref().ok()?.to_upstream.offered.as_ref()
    }

    /// Returns the edits of the context that the session has served.
    pub(crate) fn edits(&self) -> Option<&EditReport> {
        self.outcome.as_ref().ok()?.to_upstream.edits.as_ref()
    }

    /// Returns the report for the response. `None` if the response has none.
    pub(crate) fn report(&self) -> Option<&EditReport> {
        let managed = self.outcome.as_ref().ok()?;
        let has_report = managed.from_agent.purpose == Purpose::Response;
        self.edits().filter(|_| has_report)
    }

    /// Returns the head of the request with the view, without values of `anthropic-beta` that its body does not need.
    pub(crate) fn head(&self, agents: &RequestHead) -> RequestHead {
        let mut head = agents.clone();
        if let Some(edits) = self.edits() {
            head.headers = headers::without_betas(&head.headers, &edits.unused_betas);
        }
        head
    }

    /// Returns the answer to a request that pauses after its compaction.
    pub(crate) fn paused(&self) -> Option<(ResponseHead, UpstreamBody)> {
        let managed = self.outcome.as_ref().ok()?;
        let report = managed.to_upstream.edits.as_ref()?;
        let summary = report.summary.as_deref()?;
        let model = managed.to_upstream.model.as_deref();
        Some(paused(report, (summary, report.pause.as_ref()?), model))
    }

    /// Returns the place for the response.
    pub(crate) fn place(&self) -> Option<ResponsePlace> {
        let managed = self.outcome.as_ref().ok()?;
        let is_recorded = managed.from_agent.purpose == Purpose::Response;
        is_recorded.then(|| managed.to_upstream.place.clone())
    }

    /// Adds the headers about the request to its response.
    pub(crate) fn describe(&self, headers: &mut HeaderMap) {
        let managed = match &self.outcome {
            Ok(managed) => managed,
            Err(reason) => {
                headers.insert(BODY_HEADER, HeaderValue::from_static(UNMANAGED));
                headers.insert(REASON_HEADER, HeaderValue::from_static(reason.name()));
                return;
            }
        };
        headers.insert(BODY_HEADER, HeaderValue::from_static(managed.kind()));
        let session = managed.to_upstream.place.session.to_string();
        if let Ok(session) = HeaderValue::try_from(session) {
            headers.insert(SESSION_HEADER, session);
        }
    }
}
