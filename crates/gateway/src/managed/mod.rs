//! The context of sessions in the engine of this process.
//!
//! A request's whole array goes to its session, as with `SyncContext`. If a level has changed the view, the array in the
//! body is replaced by the view. Every other byte of the body stays.

mod compacted_items;
mod compaction;
mod edits;
mod fields;
mod identity;
mod markers;
mod response;
mod returned;
mod rewrite;
mod session;
mod short_input;
mod taken_out;
mod tools;
mod views;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::view::Provider;
use palimpsest_engine::call::in_current_call;
use palimpsest_engine::tools::ToolRunner;
use palimpsest_engine::turn::record_response;
use palimpsest_engine::{Engine, EngineError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument as _;

pub(crate) use self::identity::{named as session_named, of_headers as session_of_headers};
pub use self::rewrite::with_messages;
use self::session::SessionPolicies;
pub use self::tools::AddedTools;
use self::views::RenderedViews;
use super::context::{
    ContextPort, ModelRequest, OwnCalls, PendingCommit, PreparedRequest, Purpose, RecordError,
    RecordedResponse, ToolRound, Unmanaged,
};
use super::reading::ResponseApi;

/// The context of sessions in the engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineContext {
    engine: Engine,
    policies: Arc<SessionPolicies>,
    /// Runs the service's tools for models. `None` offers no tools.
    tools: Option<Arc<dyn ToolRunner>>,
    views: Arc<RenderedViews>,
    /// The maximum time of a request before it is forwarded as it is.
    prepare_timeout: Duration,
    /// True if sessions serve the edits of the context that requests of Anthropic's API ask for.
    serves_edits: bool,
}

impl EngineContext {
    pub(crate) fn new(
        engine: Engine,
        tools: Option<Arc<dyn ToolRunner>>,
        prepare_timeout: Duration,
    ) -> Self {
        Self {
            engine,
            tools,
            policies: Arc::default(),
            views: Arc::default(),
            prepare_timeout,
            serves_edits: false,
        }
    }

    /// Makes sessions serve the edits of the context that requests of Anthropic's API ask for.
    pub(crate) fn serving_edits(mut self, serves_edits: bool) -> Self {
        self.serves_edits = serves_edits;
        self
    }
}

#[async_trait]
impl ContextPort for EngineContext {
    async fn prepare(&self, request: ModelRequest) -> Result<PreparedRequest, Unmanaged> {
        let mut limit = self.prepare_timeout;
        if matches!(request.purpose, Purpose::Compaction { .. }) {
            // The client waits for the compaction and for nothing else.
            let policy = self.engine.sessions.policies().of(&request.project);
            limit += Duration::from_millis(policy.autocompact.timeout.get());
        }
        let deadline = Instant::now() + limit;
        let context = self.clone();
        let (early, decided) = oneshot::channel();
        // A task of its own: a change that has begun continues if the agent disconnects, and a panic ends only this
        // task.
        let preparing = in_current_call(async move { context.run(request, early).await });
        let preparing = tokio::spawn(preparing.in_current_span());
        let commit = PendingCommit::new(preparing, deadline);
        match timeout_at(deadline, decided).await {
            Ok(Ok(request)) => Ok(PreparedRequest {
                request,
                commit: Some(commit),
            }),
            // The task ends without a request before its commit, or the time is over.
            Ok(Err(_)) | Err(_) => commit.outcome().await.map(Into::into),
        }
    }

    async fn record(&self, response: RecordedResponse) -> Result<(), RecordError> {
        let messages = response::messages(&self.engine, &response)?;
        let place = &response.place;
        let recorded = record_response(&self.engine, &place.session, place.after, &messages);
        recorded
            .await
            .map_err(|error: EngineError| RecordError(error.to_string()))
    }

    async fn run_tools(&self, calls: OwnCalls) -> Result<ToolRound, RecordError> {
        let runner = self.tools.as_ref();
        let runner = runner.ok_or_else(|| RecordError("no tool was offered".to_owned()))?;
        let running = tools::run(&**runner, &calls, self.engine.next_id());
        let round = timeout(self.prepare_timeout, running).await;
        round.unwrap_or_else(|_| Err(RecordError("the calls exceeded their time".to_owned())))
    }
}

/// Returns the format of the messages of an API.
pub(crate) const fn provider_of(api: ResponseApi) -> Provider {
    match api {
        ResponseApi::Messages => Provider::Anthropic,
        ResponseApi::Chat => Provider::OpenAi,
        ResponseApi::Responses => Provider::OpenAiResponses,
    }
}
