//! The handlers: one function an rpc, which reads its request, asks the sessions, and makes the reply.
//!
//! What is common to all of them (limits, deadlines, load, logs) is done before they are reached; what
//! the parts of a request or a reply mean is `convert`'s.

mod adopt;
mod append;
mod authorize;
mod backup;
mod cache_ledger;
mod change;
mod commit_summary;
mod compact;
mod compaction;
mod context;
mod delete;
mod entry;
mod etag;
mod events;
mod export;
mod failure;
mod hooks;
mod list;
mod manage;
mod memory;
mod messages;
mod originals;
mod overflow;
mod overrides;
mod persist;
mod prepare;
mod recovery;
mod restore;
mod results;
mod rewind;
mod search;
mod search_threads;
mod session;
mod snip;
mod staging;
mod stream;
mod tools;
mod turns;
mod within;
mod working;

use std::sync::Arc;

use palimpsest_core::command::Create;
use palimpsest_core::ids::{MessageId, ProjectId, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Prices;
use palimpsest_core::session::Session;
use palimpsest_engine::clock::IdSource;
use palimpsest_engine::models::Models;
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_engine::sessions::{MissingSession, Sessions};
use palimpsest_store::blobs::Blobs;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use self::turns::FairTurns;
use crate::errors::ServiceError;
use crate::grpc::Mutations;
use crate::hooks::HookEndpoints;
use crate::metrics::Metrics;

pub use backup::AdminHandlers;
pub use context::ContextHandlers;
pub use export::CompleteExport;
pub(crate) use results::BlobLoss;
pub use session::SessionHandlers;

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct Service {
    sessions: Arc<Sessions>,
    blobs: Arc<Blobs>,
    ids: Arc<IdSource>,
    mutations: Mutations,
    draining: CancellationToken,
    prices: Prices,
    passes: staging::Passes,
    has_worker: bool,
    models: Option<Arc<Models>>,
    /// When this process began to serve.
    started_at: Timestamp,
    hooks: Arc<HookEndpoints>,
    /// Whether callers have to say who they are.
    auth_required: bool,
    quotas: Option<Arc<QuotaTracker>>,
    metrics: Metrics,
    /// The turn of one list of sessions at a time.
    lists: Arc<Semaphore>,
    /// The turns of event batches that are read and converted. Their memory is not counted anywhere else.
    event_batches: Arc<FairTurns>,
    searches: Arc<search_threads::Searches>,
}

impl Service {
    /// Handlers on some sessions.
    pub fn new(
        sessions: Arc<Sessions>,
        blobs: Arc<Blobs>,
        ids: Arc<IdSource>,
        mutations: Mutations,
        draining: CancellationToken,
    ) -> Self {
        Self {
            started_at: sessions.clock().now(),
            sessions,
            blobs,
            ids,
            mutations,
            draining,
            prices: Prices::default(),
            passes: staging::Passes::default(),
            has_worker: false,
            models: None,
            hooks: Arc::default(),
            auth_required: false,
            quotas: None,
            metrics: Metrics::default(),
            lists: Arc::new(Semaphore::new(1)),
            event_batches: Arc::new(FairTurns::new(events::MAX_BATCHES)),
            searches: Arc::default(),
        }
    }

    /// The same where callers have to say who they are: a call that does not tell is not answered.
    #[must_use]
    pub fn with_authentication(mut self, asks_who: bool) -> Self {
        self.auth_required = asks_who;
        self
    }

    /// The same where tokens have other prices.
    #[must_use]
    pub fn with_prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// The same where a worker runs in this process.
    #[must_use]
    pub fn with_worker(mut self, has_worker: bool) -> Self {
        self.has_worker = has_worker;
        self
    }

    /// The same where models write summaries; without any they are made from structure.
    #[must_use]
    pub fn with_summarizer(mut self, models: Option<Arc<Models>>) -> Self {
        self.models = models;
        self
    }

    /// The same where users have hooks of their own.
    #[must_use]
    pub fn with_hooks(mut self, hooks: HookEndpoints) -> Self {
        self.hooks = Arc::new(hooks);
        self
    }

    /// The same where projects may use only so much.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Arc<QuotaTracker>) -> Self {
        self.quotas = Some(quotas);
        self
    }

    /// The same where what it does is measured.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    fn limits(&self) -> &Limits {
        self.sessions.limits()
    }

    /// The limits of calls on one session: its policy may narrow the server's.
    async fn limits_of(&self, key: &SessionKey) -> Result<Limits, ServiceError> {
        let narrowed = |session: &Session| self.limits().narrowed_by(&session.policy().limits);
        Ok(self.sessions.read(key, narrowed).await?)
    }

    /// True if secrets leave what is summarised: the session's policy says so, or the configuration.
    fn redacts(&self, session: &Session) -> bool {
        let required = || {
            let project = &session.key().project;
            self.sessions.policies().of(project).summary.redact_secrets
        };
        session.policy().summary.redact_secrets || required()
    }

    fn next_id(&self) -> impl FnMut() -> MessageId {
        || self.ids.message_id()
    }

    /// A first write creates the session, with the policy of its project.
    fn create_if_missing(&self, project: &ProjectId) -> MissingSession {
        MissingSession::Create(Create {
            policy: Arc::clone(self.sessions.policies().of(project)),
            implicit: true,
            ..Create::default()
        })
    }
}

/// A handler's outcome as a reply.
fn reply<T>(outcome: Result<T, ServiceError>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(Status::from)
}
