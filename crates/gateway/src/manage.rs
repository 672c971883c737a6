//! Gives the conversation of a request to the context, and selects the body for upstream.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts as RequestHead;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_engine::turn::JsonParts;
use palimpsest_settings::ProviderCompaction;
use tokio::time::Instant;

use super::answer::OwnAnswer;
use super::call::GatewayCall;
use super::caller::{KEY_HEADER, PROVIDER_KEY_HEADERS};
use super::compaction::{
    self, CompactionForm, has_summary, has_trigger, is_endpoint, with_summaries, without_trigger,
};
use super::context::{
    ContextPort, EditReport, ManagedRequest, ModelBody, ModelOptions, ModelRequest, OfferedTools,
    Pause, PendingCommit, Purpose, ResponsePlace, Unmanaged,
};
use super::edits::paused;
use super::headers;
use super::managed::session_of_headers;
use super::metrics::ContextMetrics;
use super::reading::{
    ReadMemory, ReservedMemory, ResponseApi, Unread, content_coding, decode_reserved,
};
use super::request_body::RequestBody;
use super::thread::{MAX_INLINE_BYTES, on_fitting_thread};

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
    /// The handling of a compaction that the request can ask for.
    pub(crate) compaction: ProviderCompaction,
}

impl ModelCall {
    /// Returns the call of a request. `None` for a request without a conversation.
    pub(crate) fn of(method: &Method, path: &str, compaction: ProviderCompaction) -> Option<Self> {
        let of = |api, purpose| Self {
            api,
            purpose,
            compaction,
        };
        // A trigger is found only in the body, so a request with one begins as a request for a response.
        if let Some(api) = ResponseApi::of(method, path) {
            return Some(of(api, Purpose::Response));
        }
        if compaction == ProviderCompaction::Served && is_endpoint(method, path) {
            let requires_summary = false;
            let purpose = Purpose::Compaction { requires_summary };
            return Some(of(ResponseApi::Responses, purpose));
        }
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let counts = *method == Method::POST && path == "/messages/count_tokens";
        counts.then(|| of(ResponseApi::Messages, Purpose::Count))
    }

    /// Returns true if the last item of the request can ask for a compaction that the gateway serves.
    fn serves_trigger(self) -> bool {
        self.api == ResponseApi::Responses
            && self.purpose == Purpose::Response
            && self.compaction == ProviderCompaction::Served
    }
}

/// A request after the context has seen it.
#[derive(Debug)]
pub(crate) struct Prepared {
    outcome: Result<Managed, Unmanaged>,
    /// The agent's body with summaries in place of compaction items. `None` if it has no such item.
    restored: Option<JsonParts>,
    /// The answer of the gateway. `None` if the request goes to upstream.
    answer: Option<OwnAnswer>,
    api: ResponseApi,
    /// The time until the request could be sent.
    duration: Duration,
    /// The commit of the conversation. `None` after its end.
    commit: Option<PendingCommit>,
    /// The agent's request.
    of: GatewayCall,
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
        (project, of): (ProjectId, &GatewayCall),
        headers: &HeaderMap,
        body: &mut RequestBody,
    ) -> Prepared {
        let begun = Instant::now();
        let mut restored = None;
        let ran = self
            .run(call, (project, headers), body, &mut restored)
            .await;
        let (outcome, commit, answer) = match ran {
            Ok(ran) => (Ok(ran.managed), ran.commit, ran.answer),
            Err(reason) => (Err(reason), None, None),
        };
        Prepared {
            outcome,
            restored,
            answer,
            api: call.api,
            duration: begun.elapsed(),
            commit,
            of: of.clone(),
        }
    }

    /// Waits until the conversation is committed, and reports the outcome. Until then, the agent gets no part of the
    /// response, so it never has a response whose conversation a crash can lose.
    pub(crate) async fn settle(&self, prepared: &mut Prepared) {
        if let Some(commit) = prepared.commit.take() {
            match (commit.outcome().await, &mut prepared.outcome) {
                // The body was sent already. The place changes if another writer has committed first.
                (Ok(committed), Ok(managed)) => managed.to_upstream.place = committed.place,
                // The request can be upstream already. Its response is then described as unmanaged, and is not
                // recorded.
                (Err(reason), outcome) => *outcome = Err(reason),
                // `prepare` keeps a commit only beside an `Ok` outcome, so this case cannot occur.
                (Ok(_), Err(_)) => {}
            }
        }
        let outcome = &prepared.outcome;
        let kind = match outcome {
            Ok(managed) => {
                prepared.of.about(&managed.to_upstream.place.session);
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
        prepared.of.sends(kind, reason.map(Unmanaged::name));
        self.metrics
            .prepared(prepared.api, kind, reason, prepared.duration);
    }

    async fn run(
        &self,
        call: ModelCall,
        (project, headers): (ProjectId, &HeaderMap),
        body: &mut RequestBody,
        restored: &mut Option<JsonParts>,
    ) -> Result<Ran, Unmanaged> {
        let mut memory = ReservedMemory::new(self.memory.clone());
        let mut json = self.receive(headers, body, &mut memory).await?;
        // Upstream cannot read the items of the service, so it gets the summaries even if no session takes the request.
        if call.api == ResponseApi::Responses
            && has_summary(&json)
            && let Some(body) = of_body(json.clone(), |json| with_summaries(&json)).await
        {
            json = body.clone();
            *restored = Some(body);
        }
        let mut purpose = call.purpose;
        let mut form = CompactionForm::Endpoint;
        if call.serves_trigger()
            && has_trigger(&json)
            && let Some(body) = of_body(json.clone(), |json| without_trigger(&json)).await
        {
            json = body;
            purpose = Purpose::Compaction {
                requires_summary: true,
            };
            form = CompactionForm::Trigger;
        }
        let request = ModelRequest {
            project,
            scope: scope(headers),
            api: call.api,
            session: session_of_headers(headers),
            body: json,
            purpose,
        };
        // The copy shares the bytes of the body. `shorten` needs it if the provider rejects the prompt as too long.
        let to_upstream = self.context.prepare(request.clone()).await?;
        let answer = match &to_upstream.request.body {
            ModelBody::Compacted(compacted) => {
                let compacted = compacted.clone();
                let write =
                    move |body: JsonParts| compaction::answer(form, &compacted, &body.whole());
                let written = of_body(request.body.clone(), write).await;
                Some(written.ok_or(Unmanaged::Unreadable)?)
            }
            _ => None,
        };
        let managed = Managed {
            from_agent: request,
            to_upstream: to_upstream.request,
            _memory: memory,
        };
        Ok(Ran {
            managed,
            commit: to_upstream.commit,
            answer,
        })
    }

    /// Receives the body of a request, without a content coding.
    async fn receive(
        &self,
        headers: &HeaderMap,
        body: &mut RequestBody,
        memory: &mut ReservedMemory,
    ) -> Result<JsonParts, Unmanaged> {
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
        let json = decode_reserved(coding, received, max, memory).await;
        let json = json.map_err(|unread| match unread {
            // Either the body, or one step of its decoding.
            Unread::TooLarge | Unread::Expansion => Unmanaged::TooLarge,
            Unread::Memory => Unmanaged::Memory,
            Unread::Panic => Unmanaged::Defect,
            _ => Unmanaged::Encoding,
        })?;
        Ok(JsonParts::new(json))
    }

    /// Receives the body of a request without a conversation. Returns it with summaries in place of the compaction items
    /// of the service, together with its memory. `None` if the body has no such item, or exceeds a limit.
    pub(crate) async fn restore(
        &self,
        headers: &HeaderMap,
        body: &mut RequestBody,
    ) -> Option<(JsonParts, ReservedMemory)> {
        let mut memory = ReservedMemory::new(self.memory.clone());
        let json = self.receive(headers, body, &mut memory).await.ok()?;
        if !has_summary(&json) {
            return None;
        }
        let restored = of_body(json, |json| with_summaries(&json)).await?;
        Some((restored, memory))
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
        // Only the first request for a response is handed out before its commit, so this one is committed already.
        let shorter = self.context.prepare(request).await.ok()?.request;
        let ModelBody::View(body) = &shorter.body else {
            return None;
        };
        // Sizes without a content coding are compared: that of the sent view, or otherwise that of the agent's body.
        let sent = match &managed.to_upstream.body {
            ModelBody::View(sent) => sent,
            _ => &managed.from_agent.body,
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

/// A request that the context has taken.
struct Ran {
    managed: Managed,
    commit: Option<PendingCommit>,
    answer: Option<OwnAnswer>,
}

/// Returns the result of work on a body. `None` also after a panic.
async fn of_body<T: Send + 'static>(
    body: JsonParts,
    work: impl FnOnce(JsonParts) -> Option<T> + Send + 'static,
) -> Option<T> {
    let is_large = body.len() > MAX_INLINE_BYTES;
    let done = on_fitting_thread(is_large, move || work(body)).await;
    done.ok().flatten()
}

/// Returns the digest of all credentials of a request.
pub(crate) fn scope(headers: &HeaderMap) -> Digest {
    let mut scope = Digest::of_bytes(b"");
    // Both kinds of keys count: callers with one key of the provider can have keys of Palimpsest of their own.
    for name in PROVIDER_KEY_HEADERS.into_iter().chain([KEY_HEADER]) {
        for value in headers.get_all(name) {
            scope = scope.chain(name.as_bytes()).chain(value.as_bytes());
        }
    }
    scope
}

/// The kinds of bodies, in metrics and headers.
pub(crate) const BODIES: [&str; 5] = [ORIGINAL, VIEW, UNSENDABLE, COMPACTION, UNMANAGED];
const ORIGINAL: &str = "original";
const VIEW: &str = "view";
const UNSENDABLE: &str = "unsendable";
const COMPACTION: &str = "compaction";
const UNMANAGED: &str = "unmanaged";

impl Managed {
    const fn kind(&self) -> &'static str {
        match self.to_upstream.body {
            ModelBody::Original => ORIGINAL,
            ModelBody::View(_) => VIEW,
            ModelBody::Unsendable => UNSENDABLE,
            ModelBody::Compacted(_) => COMPACTION,
        }
    }
}

impl Prepared {
    /// Returns the reason for which no session has taken the conversation.
    pub(crate) fn unmanaged(&self) -> Option<Unmanaged> {
        self.outcome.as_ref().err().copied()
    }

    /// Returns the body that replaces the agent's, and true if its response can be changed.
    pub(crate) fn replacement(&self) -> Option<(JsonParts, bool)> {
        let body = self.outcome.as_ref().map(|it| &it.to_upstream.body);
        if let Ok(ModelBody::View(body)) = body {
            let changes_response = self.edits().is_some_and(EditReport::changes_response);
            return Some((body.clone(), self.offered().is_some() || changes_response));
        }
        // Without a view, the items of the service still have to leave the body, because no provider can read them.
        self.restored.clone().map(|body| (body, false))
    }

    /// Returns true if the gateway answers the request.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.is_some() || self.pause().is_some()
    }

    /// Takes the answer of the gateway to the request. `None` if the request goes to upstream.
    pub(crate) fn take_answer(&mut self) -> Option<OwnAnswer> {
        let answer = self.answer.take();
        answer.or_else(|| self.paused())
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
    fn paused(&self) -> Option<OwnAnswer> {
        let model = self.outcome.as_ref().ok()?.to_upstream.model.as_deref();
        let (report, of) = self.pause()?;
        Some(paused(report, of, model))
    }

    /// Returns the report of a request that pauses after its compaction, with the summary and the form of the answer.
    fn pause(&self) -> Option<(&EditReport, (&str, &Pause))> {
        let report = self.edits()?;
        let summary = report.summary.as_deref()?;
        Some((report, (summary, report.pause.as_ref()?)))
    }

    /// Returns the model and the options that traces report. `None` if no session has taken the conversation.
    pub(crate) fn traced(&self) -> Option<(Option<String>, ModelOptions)> {
        let request = &self.outcome.as_ref().ok()?.to_upstream;
        Some((request.model.clone(), request.options))
    }

    pub(crate) fn api(&self) -> ResponseApi {
        self.api
    }

    /// Returns the session that has taken the conversation.
    pub(crate) fn session(&self) -> Option<&SessionKey> {
        let managed = self.outcome.as_ref().ok()?;
        Some(&managed.to_upstream.place.session)
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
