//! The handlers: one function for each rpc. A handler validates the request, runs commands on the session and
//! builds the reply.
//!
//! Limits, deadlines, load shedding and logging are applied before a handler runs (`grpc`). The mapping between
//! proto and domain types is in `convert`.

mod admin;
mod admit;
mod adopt;
mod append;
mod cache_control;
mod commit_summary;
mod compact;
mod context;
mod delegation;
mod delete;
mod etag;
mod events;
mod export;
mod list;
mod manage;
mod memory;
mod messages;
mod overrides;
mod persist;
mod prepare;
mod projects;
mod recovery;
mod restore;
mod results;
mod rewind;
mod rpcs;
mod search;
mod session;
mod snip;
mod stream;
mod sync;
mod tools;
mod view;
mod view_report;
mod working_state;

use std::ops::Deref;
use std::sync::Arc;

use palimpsest_core::ids::SessionKey;
use palimpsest_core::limits::Limits;
use palimpsest_core::models::ModelTable;
use palimpsest_core::policy::Prices;
use palimpsest_core::session::Session;
use palimpsest_edge::metrics::Metrics;
use palimpsest_engine::Engine;
use palimpsest_engine::background::Background;
use palimpsest_engine::clock::IdSource;
use palimpsest_engine::models::Models;
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_engine::sessions::Sessions;
use palimpsest_store::blobs::Blobs;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use crate::errors::ServiceError;
use crate::grpc::Mutations;
use crate::hooks::{HookEndpoints, RemoteHooks};

pub use admin::AdminHandlers;
pub use context::ContextHandlers;
pub use session::SessionHandlers;

/// The shared state of all handlers: the engine, and the parts of the transport.
#[derive(Debug, Clone)]
pub struct Service {
    engine: Engine,
    mutations: Mutations,
    prices: Prices,
    has_worker: bool,
    hooks: Arc<HookEndpoints>,
    /// True if callers must authenticate.
    auth_required: bool,
    quotas: Option<Arc<QuotaTracker>>,
    metrics: Metrics,
}

impl Service {
    /// Creates the state with default options.
    pub fn new(
        sessions: Arc<Sessions>,
        blobs: Arc<Blobs>,
        ids: Arc<IdSource>,
        mutations: Mutations,
        draining: CancellationToken,
    ) -> Self {
        Self {
            engine: Engine::new(
                sessions,
                blobs,
                ids,
                // The drain waits for the background work of the engine too, because both use one tracker.
                Background::clone(&mutations),
                draining,
            ),
            mutations,
            prices: Prices::default(),
            has_worker: false,
            hooks: Arc::default(),
            auth_required: false,
            quotas: None,
            metrics: Metrics::default(),
        }
    }

    /// Sets whether callers must authenticate. If true, calls without an authenticated principal are rejected.
    #[must_use]
    pub fn with_authentication(mut self, auth_required: bool) -> Self {
        self.auth_required = auth_required;
        self
    }

    /// Sets the token prices. They are used in cache ledgers.
    #[must_use]
    pub fn with_prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// Sets the table of models. The default is the table of the data file.
    #[must_use]
    pub fn with_model_table(mut self, table: ModelTable) -> Self {
        self.engine.model_table = Arc::new(table);
        self
    }

    /// Sets whether a worker runs in this process.
    #[must_use]
    pub fn with_worker(mut self, has_worker: bool) -> Self {
        self.has_worker = has_worker;
        self
    }

    /// Sets the models that write summaries. Without models, summaries are extractive.
    #[must_use]
    pub fn with_summarizer(mut self, models: Option<Arc<Models>>) -> Self {
        self.engine.models = models;
        self
    }

    /// Sets the endpoints of the users' hooks.
    #[must_use]
    pub fn with_hooks(mut self, hooks: HookEndpoints, metrics: Metrics) -> Self {
        self.hooks = Arc::new(hooks);
        let (endpoints, sessions) = (Arc::clone(&self.hooks), Arc::clone(&self.sessions));
        let remote = RemoteHooks::new(endpoints, sessions, Arc::clone(&self.ids), metrics);
        self.engine.hook_caller = Some(Arc::new(remote));
        self
    }

    /// Sets the quotas of projects.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Arc<QuotaTracker>) -> Self {
        self.quotas = Some(quotas);
        self
    }

    /// Sets the metrics of the handlers.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Returns the limits for calls on one session. The session's policy can lower the server's limits.
    async fn limits_of(&self, key: &SessionKey) -> Result<Limits, ServiceError> {
        let narrowed = |session: &Session| self.limits().narrowed_by(&session.policy().limits);
        Ok(self.sessions.read(key, narrowed).await?)
    }
}

/// Handlers use the parts of the engine as their own.
impl Deref for Service {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Converts the outcome of a handler to a gRPC reply.
fn reply<T>(outcome: Result<T, ServiceError>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(Status::from)
}
