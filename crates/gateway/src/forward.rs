//! The steps of one request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use futures::future::join;
use http::header::CONTENT_ENCODING;
use http::request::Parts as RequestHead;
use http::response::Parts as ResponseHead;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use palimpsest_core::ids::ProjectId;
use palimpsest_edge::metrics::Metrics;
use palimpsest_edge::net::Connection;
use palimpsest_engine::clock::IdSource;
use palimpsest_engine::turn::JsonParts;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::answer::Reason;
use super::call::GatewayCall;
use super::caller::{self, Caller, Callers, Rejection};
use super::client::UpstreamClient;
use super::compaction::has_input;
use super::compress::{Compression, Problem};
use super::connection::ConnectionEnd;
use super::context::Purpose;
use super::edits;
use super::exchange::{Exchange, Readings};
use super::headers;
use super::held_key::KeyHeader;
use super::in_flight::InFlight;
use super::manage::{Manager, ModelCall, Prepared};
use super::overlong;
use super::read_back::{ReadBack, ReadBackBody, read_whole};
use super::reading::ReservedMemory;
use super::request_body::{AgentBody, RequestBody};
use super::response_body::{ForwardedBody, ResponseBody, UpstreamBody};
use super::route::{Api, OwnRoute, Route};
use super::span::{ModelSpan, ModelTarget};
use super::tee::TeeBody;
use super::upstream::{Upstreams, io_kind, is_reset, root_cause};

/// Forwards requests to upstreams.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) client: UpstreamClient,
    pub(crate) upstreams: Upstreams,
    /// The permits of requests in flight.
    pub(crate) streams: Arc<Semaphore>,
    /// The requests in flight, for the drain.
    pub(crate) requests: TaskTracker,
    /// The maximum time without progress in the body of a request.
    pub(crate) stall: Duration,
    /// The sessions that take conversations. `None` if requests are only forwarded.
    pub(crate) manager: Option<Manager>,
    /// The answers to compression guardrails. `None` without sessions.
    pub(crate) compression: Option<Compression>,
    /// True if a request is rejected whose conversation no session takes.
    pub(crate) requires_session: bool,
    /// The reading of responses.
    pub(crate) readings: Arc<Readings>,
    /// The authentication and the quotas.
    pub(crate) callers: Callers,
    /// The source of ids for traces.
    pub(crate) ids: Arc<IdSource>,
    pub(crate) metrics: Metrics,
}

/// Upstream closed the connection without a response. The agent's connection is closed in the same way.
#[derive(Debug, thiserror::Error)]
#[error("upstream closed the connection without a response")]
pub(crate) struct NoResponse(#[source] ClientError);

/// The agent of a request.
struct Agent<'a> {
    version: Version,
    end: &'a Arc<ConnectionEnd>,
    api: Api,
}

impl Forwarder {
    /// Returns the response to a request: that of upstream, or an answer of the gateway if upstream received no
    /// complete request.
    pub(crate) async fn answer(
        &self,
        mut request: Request<AgentBody>,
        connection: &Arc<Connection>,
        end: &Arc<ConnectionEnd>,
    ) -> Result<Response<ResponseBody>, NoResponse> {
        // The first step, because the route, the span and the target upstream must not contain `/p/PROJECT`.
        let project = caller::take_project(request.uri_mut());
        let route = Route::of(request.method(), request.uri().path(), request.headers());
        let api = match route {
            Route::Forward(api) | Route::WebSocket(api) => api,
            // These requests have no upstream. The API only selects the shape of an error.
            Route::Own(_) | Route::Tunnel => Api::OpenAi,
        };
        let call = GatewayCall::begin(&request, &self.ids, &self.metrics);
        let agent = Agent {
            version: request.version(),
            end,
            api,
        };
        let answering = self.run(request, (project, route), (&agent, connection), &call);
        match call.scope(answering).await {
            Ok(answered) => {
                match &answered {
                    Ok(response) => call.responded(response.status()),
                    Err(reason) => call.answered(reason),
                }
                let response = answered.unwrap_or_else(|reason| reason.answer(api));
                call.sent(response.body().own_size());
                Ok(response)
            }
            Err(error) => {
                call.unanswered();
                Err(error)
            }
        }
    }

    async fn run(
        &self,
        request: Request<AgentBody>,
        (project, route): (Result<Option<ProjectId>, Rejection>, Route),
        (agent, connection): (&Agent<'_>, &Arc<Connection>),
        call: &GatewayCall,
    ) -> Result<Result<Response<ResponseBody>, Reason>, NoResponse> {
        let own = match route {
            Route::Forward(_) => None,
            Route::Own(own) => Some(own),
            // Rejected before the admission, so that such a request takes no permit and no quota.
            Route::WebSocket(_) => return Ok(Err(Reason::WebSocket)),
            Route::Tunnel => return Ok(Err(Reason::Tunnel)),
        };
        let admitted = project.map_err(Reason::Caller);
        let admitted = admitted.and_then(|project| {
            self.admit(
                &request,
                (project, call),
                (agent.api, own.is_some()),
                connection,
            )
        });
        let (caller, in_flight) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Some(own) = own {
            let answering = self.answer_own(&own, request, (caller.project, in_flight));
            return Ok(answering.await);
        }
        let forwarded = self.forward(request, (caller.project, call), agent).await?;
        Ok(forwarded.map(|response| agent.response(response, in_flight)))
    }

    /// Authorizes the caller of a request, and takes its place among the requests in flight.
    fn admit(
        &self,
        request: &Request<AgentBody>,
        (project, call): (Option<ProjectId>, &GatewayCall),
        (api, is_own): (Api, bool),
        connection: &Arc<Connection>,
    ) -> Result<(Caller, InFlight), Reason> {
        let holds_key = !is_own && self.upstreams.get(api).key.is_some();
        let authorized = self
            .callers
            .authorize(request, project, (holds_key, is_own), call);
        let caller = authorized.map_err(Reason::Caller)?;
        // After the authorization, so that callers without a credential cannot use up the permits.
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            tracing::warn!("rejected a request: gateway.max_streams requests are in flight");
            return Err(Reason::Overloaded);
        };
        // The last check of the admission, because it charges the project, and a rejected request must cost nothing.
        let quota = self.callers.take_quota(&caller, request.headers());
        let in_flight = InFlight {
            call: call.clone(),
            _permit: permit,
            _quota: quota.map_err(Reason::Caller)?,
            _call: connection.call(),
            _request: self.requests.token(),
        };
        call.admitted();
        // From here on, the connection is not the first one to be evicted for a new one.
        connection.mark_used();
        Ok((caller, in_flight))
    }

    /// Answers a request without an upstream.
    async fn answer_own(
        &self,
        route: &OwnRoute,
        request: Request<AgentBody>,
        caller: (ProjectId, InFlight),
    ) -> Result<Response<ResponseBody>, Reason> {
        match &self.compression {
            Some(compression) => compression.answer(route, request, caller).await,
            None => Err(Reason::Compression(Problem::NoSessions)),
        }
    }

    /// Sends a request to upstream, and returns its response or the reason for an answer of the gateway.
    async fn forward(
        &self,
        request: Request<AgentBody>,
        (project, of): (ProjectId, &GatewayCall),
        agent: &Agent<'_>,
    ) -> Result<Result<(ResponseHead, UpstreamBody), Reason>, NoResponse> {
        let compaction = self.upstreams.get(agent.api).compaction;
        let call = ModelCall::of(request.method(), request.uri().path(), compaction);
        // Read before the session takes the conversation, because the request cannot leave without the key.
        let held_key = match self.held_key(agent.api).await {
            Ok(key) => key,
            Err(reason) => return Ok(Err(reason)),
        };
        let has_stalled = Arc::new(AtomicBool::new(false));
        let (mut head, body) = request.into_parts();
        let stalled = Arc::clone(&has_stalled);
        let mut body = RequestBody::new(body, self.stall, stalled, of.request_bytes());
        let (mut prepared, restored) = self.prepare(call, (project, of), &head, &mut body).await;
        // A rejection or an answer of the gateway depends on the outcome of the commit. All other requests can leave
        // before it.
        let settles_first =
            self.requires_session || prepared.as_ref().is_some_and(Prepared::is_answered);
        if settles_first {
            self.settle(&mut prepared).await;
        }
        let unmanaged = prepared.as_ref().and_then(Prepared::unmanaged);
        if let Some(reason) = unmanaged.filter(|_| self.requires_session) {
            return Ok(Err(Reason::Unmanaged(reason)));
        }
        if let Some(answered) = prepared.as_mut().and_then(own_answer) {
            return Ok(Ok(answered));
        }
        // From here on, the head contains no credential of the caller.
        if let Some(key) = &held_key {
            head.headers = headers::of_held_key(&head.headers, head.version, key);
        }
        // The head is cloned, because a shorter prompt and reads of stored content need it for further requests.
        let request = match (&prepared, &restored) {
            (Some(prepared), _) => self.prepared(&head, prepared, (body, agent.api)),
            (None, Some((restored, _))) => self.changed(head.clone(), restored, (agent.api, false)),
            (None, None) => self.to_upstream(head.clone(), body, agent.api),
        };
        let Ok(request) = request else {
            return Ok(Err(Reason::Target));
        };
        // hyper drops this future if the agent disconnects, and the client then ends the request to upstream.
        // A commit in flight and the request to upstream do not wait for each other.
        let span = self.model_span(call, of, prepared.as_ref(), agent.api);
        let settling = async {
            if !settles_first {
                self.settle(&mut prepared).await;
            }
        };
        let response = match join(self.client.request(request), settling).await.0 {
            Ok(response) => response,
            Err(error) => {
                let failure = agent.failure(error, has_stalled.load(SeqCst));
                if let Some(span) = &span {
                    span.failed(failure.as_ref().map_or("no_response", Reason::code));
                }
                return failure.map(Err);
            }
        };
        // The span gets the session after the commit, which can move the conversation to another one.
        let session = prepared.as_ref().and_then(Prepared::session);
        if let (Some(span), Some(session)) = (&span, session) {
            span.of_session(session);
        }
        let responded = self.responded(&head, response, (call, span, &mut prepared), agent.api);
        let (head, body) = match responded.await {
            Ok(responded) => responded,
            Err(error) => return agent.failure(error, false).map(Err),
        };
        if held_key.is_some() && head.status == StatusCode::UNAUTHORIZED {
            let upstream = agent.api.name();
            tracing::warn!(upstream, "an upstream rejected the key of the gateway");
            // The response is not forwarded, because it can contain parts of the key.
            return Ok(Err(Reason::KeyRejected));
        }
        let report = prepared.as_ref().and_then(Prepared::report);
        let (mut head, body) = match report {
            Some(report) => {
                let max_bytes = self.readings.max_bytes;
                edits::add_report((head, body), report, max_bytes).await
            }
            None => (head, body),
        };
        head.headers = headers::of_response(&head.headers, agent.version);
        if let Some(prepared) = &prepared {
            prepared.describe(&mut head.headers);
        }
        Ok(Ok((head, body)))
    }

    /// Gives the conversation of a request to its session. Any other request gets summaries in place of its compaction
    /// items. Its memory is in use until it is sent.
    async fn prepare(
        &self,
        call: Option<ModelCall>,
        caller: (ProjectId, &GatewayCall),
        head: &RequestHead,
        body: &mut RequestBody,
    ) -> (Option<Prepared>, Option<(JsonParts, ReservedMemory)>) {
        let Some(manager) = &self.manager else {
            return (None, None);
        };
        if let Some(call) = call {
            let preparing = manager.prepare(call, caller, &head.headers, body);
            return (Some(preparing.await), None);
        }
        if !has_input(&head.method, head.uri.path()) {
            return (None, None);
        }
        (None, manager.restore(&head.headers, body).await)
    }

    /// Returns the response of upstream, with a body that is read beside its forwarding. `agents` is the head of the
    /// request.
    async fn responded(
        &self,
        agents: &RequestHead,
        response: Response<Incoming>,
        (call, span, prepared): (Option<ModelCall>, Option<ModelSpan>, &mut Option<Prepared>),
        api: Api,
    ) -> Result<(ResponseHead, UpstreamBody), ClientError> {
        let (responded, span) = match (&mut *prepared, span) {
            (Some(prepared), Some(span)) => {
                let (responded, span) = self
                    .retry_shorter(agents, response, (prepared, span), api)
                    .await;
                (responded, Some(span))
            }
            (_, span) => (Responded::Body(response), span),
        };
        match responded {
            Responded::Body(response) => {
                let read_back = self.read_back(agents, prepared.as_ref(), (call, &span), api);
                self.read(response, (call, span, prepared.as_ref()), read_back)
                    .await
            }
            Responded::Examined(response) => {
                // The response is counted as any other rejection.
                let api = call.map(|call| call.api);
                if let Some((api, span)) = api.zip(span) {
                    drop(Exchange::begin(
                        &self.readings,
                        api,
                        (None, span),
                        &response.0,
                    ));
                }
                let (head, body) = *response;
                Ok((head, UpstreamBody::Tee(Box::new(body))))
            }
        }
    }

    /// Addresses a request whose conversation a session may have changed. `body` is the agent's.
    fn prepared(
        &self,
        head: &RequestHead,
        prepared: &Prepared,
        (body, api): (RequestBody, Api),
    ) -> Result<Request<RequestBody>, http::Error> {
        match prepared.replacement() {
            Some((body, is_changed)) => self.changed(prepared.head(head), &body, (api, is_changed)),
            None => self.to_upstream(head.clone(), body, api),
        }
    }

    /// Completes the outcome of a request with a conversation.
    async fn settle(&self, prepared: &mut Option<Prepared>) {
        if let (Some(manager), Some(prepared)) = (&self.manager, prepared) {
            manager.settle(prepared).await;
        }
    }

    /// Returns the key that the gateway holds for an API. `None` if callers send keys of their own.
    async fn held_key(&self, api: Api) -> Result<Option<KeyHeader>, Reason> {
        let Some(key) = &self.upstreams.get(api).key else {
            return Ok(None);
        };
        key.read().await.map(Some).map_err(|error| {
            tracing::warn!(%error, "cannot read the key of an upstream");
            Reason::KeyUnavailable
        })
    }

    /// Returns a response whose body is read beside its forwarding.
    async fn read(
        &self,
        response: Response<Incoming>,
        (call, span, prepared): (Option<ModelCall>, Option<ModelSpan>, Option<&Prepared>),
        read_back: Option<ReadBack>,
    ) -> Result<(ResponseHead, UpstreamBody), ClientError> {
        let (head, body) = response.into_parts();
        // Only a request for a response of the model has a span.
        let exchange = call.zip(span).and_then(|(call, span)| {
            let place = prepared.and_then(Prepared::place);
            Exchange::begin(&self.readings, call.api, (place, span), &head)
        });
        // A response with a coding cannot be changed. The request asked for none.
        let read_back = read_back.filter(|_| !head.headers.contains_key(CONTENT_ENCODING));
        let (exchange, read_back) = match (exchange, read_back) {
            (Some(exchange), Some(read_back)) => (exchange, read_back),
            (exchange, _) => {
                let body = TeeBody::new(body, exchange);
                return Ok((head, UpstreamBody::Tee(Box::new(body))));
            }
        };
        let exchange = exchange.with_rounds(Arc::clone(&read_back.offered.names), Vec::new());
        if exchange.is_stream() {
            let body = Box::new(ReadBackBody::new(body, exchange, read_back));
            return Ok((head, UpstreamBody::ReadBack(body)));
        }
        let response = Response::from_parts(head, body);
        let (head, body) = read_whole(response, exchange, read_back).await?;
        Ok((head, UpstreamBody::Tee(Box::new(body))))
    }

    /// Returns the parts for further requests within the response, if the body offers tools.
    fn read_back(
        &self,
        agents: &RequestHead,
        prepared: Option<&Prepared>,
        (call, span): (Option<ModelCall>, &Option<ModelSpan>),
        api: Api,
    ) -> Option<ReadBack> {
        let (prepared, call) = (prepared?, call?);
        let of = span.as_ref()?.call().clone();
        let (place, offered) = (prepared.place()?, prepared.offered()?.clone());
        let (body, _) = prepared.replacement()?;
        let request = self.changed(prepared.head(agents), &body, (api, true));
        let (head, _) = request.ok()?.into_parts();
        Some(ReadBack {
            client: self.client.clone(),
            context: Arc::clone(&self.manager.as_ref()?.context),
            readings: Arc::clone(&self.readings),
            api: call.api,
            session: place.session,
            target: ModelTarget::new(call.api, self.upstreams.get(api), prepared.traced()),
            call: of,
            offered,
            head,
            body,
            holds_key: self.upstreams.get(api).key.is_some(),
            appended: Vec::new(),
            // The request of the agent is the first round.
            rounds: 1,
        })
    }

    /// Shortens the conversation and sends it again, once, if the provider rejected the prompt as too long. Returns the
    /// response for the agent.
    async fn retry_shorter(
        &self,
        request: &RequestHead,
        response: Response<Incoming>,
        (prepared, span): (&mut Prepared, ModelSpan),
        api: Api,
    ) -> (Responded, ModelSpan) {
        let manager = self.manager.as_ref();
        let manager = manager.filter(|_| overlong::is_candidate(response.status()));
        let status = response.status();
        let model_api = prepared.api();
        // Without a place no session has taken the conversation, so no level can shorten it.
        let (Some(manager), Some(_)) = (manager, prepared.place()) else {
            return (Responded::Body(response), span);
        };
        let (head, body) = response.into_parts();
        let examined = overlong::examine(&head, body).await;
        // Each failure below falls back to this response, so that the agent gets the error of the provider.
        let rejected = Responded::Examined(Box::new((head, examined.body)));
        let Some(too_long) = examined.too_long else {
            return (rejected, span);
        };
        let Some(shorter) = manager.shorten(prepared, too_long.gap_tokens).await else {
            return (rejected, span);
        };
        let is_changed = prepared
            .replacement()
            .is_some_and(|(_, is_changed)| is_changed);
        let request = self.changed(prepared.head(request), &shorter, (api, is_changed));
        let Ok(request) = request else {
            return (rejected, span);
        };
        tracing::debug!("a provider rejected a prompt as too long; a shorter one is sent");
        let target = ModelTarget::new(model_api, self.upstreams.get(api), prepared.traced());
        let second = target.begin(span.call(), prepared.session());
        match self.client.request(request).await {
            Ok(response) => {
                // The first span ends with the status of the rejection. The second one is that of the response.
                span.responded(status);
                (Responded::Body(response), second)
            }
            // The agent gets the response that exists.
            Err(error) => {
                tracing::warn!(%error, "cannot send a shorter prompt");
                second.failed("no_response");
                (rejected, span)
            }
        }
    }

    /// Starts the span of a request for a response of a model. `None` for any other request.
    fn model_span(
        &self,
        call: Option<ModelCall>,
        of: &GatewayCall,
        prepared: Option<&Prepared>,
        api: Api,
    ) -> Option<ModelSpan> {
        let call = call.filter(|call| call.purpose == Purpose::Response)?;
        let traced = prepared.and_then(Prepared::traced);
        let target = ModelTarget::new(call.api, self.upstreams.get(api), traced);
        // A commit in flight can move the conversation to another session.
        Some(target.begin(of, None))
    }

    /// Addresses a request to the upstream of its API. Fails if its target cannot follow the base URL.
    fn to_upstream(
        &self,
        mut head: RequestHead,
        body: RequestBody,
        api: Api,
    ) -> Result<Request<RequestBody>, http::Error> {
        let upstream = self.upstreams.get(api);
        // The extensions of the head contain the case of the headers, so the head is reused.
        head.uri = upstream.uri(&head.uri)?;
        head.headers = headers::of_request(&head.headers, head.version, &upstream.host);
        // The client of upstreams uses HTTP/1.1. A request of HTTP/1.0 keeps its version.
        head.version = head.version.min(Version::HTTP_11);
        Ok(Request::from_parts(head, body))
    }

    /// Addresses a request with another body. `changes_response` is true if the gateway may change the response.
    fn changed(
        &self,
        mut head: RequestHead,
        body: &JsonParts,
        (api, changes_response): (Api, bool),
    ) -> Result<Request<RequestBody>, http::Error> {
        head.headers = headers::of_changed_request(&head.headers, body.len(), !changes_response);
        self.to_upstream(head, RequestBody::whole(body.parts().to_vec()), api)
    }
}

/// Returns the answer of the gateway to a request that upstream does not get.
fn own_answer(prepared: &mut Prepared) -> Option<(ResponseHead, UpstreamBody)> {
    let (mut head, body) = prepared.take_answer()?.into_response();
    prepared.describe(&mut head.headers);
    Some((head, body))
}

/// A response of upstream.
enum Responded {
    /// A response whose body has not been received.
    Body(Response<Incoming>),
    /// An error response whose body was examined.
    Examined(Box<(ResponseHead, TeeBody)>),
}

impl Agent<'_> {
    /// Returns the response of upstream for the agent.
    fn response(
        &self,
        (mut head, body): (ResponseHead, UpstreamBody),
        in_flight: InFlight,
    ) -> Response<ResponseBody> {
        // The extensions of the head contain the case of the headers and the reason phrase, so the head is reused.
        head.version = self.version;
        let end = (self.version < Version::HTTP_2).then(|| Arc::clone(self.end));
        let body = ForwardedBody::new(body, end, in_flight);
        Response::from_parts(head, ResponseBody::Forwarded(Box::new(body)))
    }

    /// Returns the reason for an answer of the gateway to a request that has no response.
    fn failure(&self, error: ClientError, has_stalled: bool) -> Result<Reason, NoResponse> {
        // Upstream received nothing, so an answer of the gateway hides nothing.
        if error.is_connect() {
            return Ok(unreachable(&error, self.api));
        }
        // The body of the agent caused the error, so upstream received an incomplete request.
        if has_stalled {
            return Ok(Reason::Stalled);
        }
        // An answer of the gateway would hide that upstream may have processed the request.
        if self.version < Version::HTTP_2 && is_reset(&error) {
            self.end.reset();
        }
        Err(NoResponse(error))
    }
}

/// Returns the reason for a request without a connection to upstream.
fn unreachable(error: &ClientError, api: Api) -> Reason {
    let cause = root_cause(error);
    tracing::warn!(upstream = api.name(), %cause, "cannot connect to an upstream");
    match io_kind(error) {
        Some(io::ErrorKind::TimedOut) => Reason::ConnectTimeout,
        _ => Reason::Unreachable(cause),
    }
}
