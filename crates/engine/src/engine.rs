//! The parts that every operation on sessions shares, whatever its transport.

use std::sync::Arc;

use palimpsest_core::command::CreateSession;
use palimpsest_core::ids::{MessageId, ProjectId, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::models::ModelTable;
use palimpsest_core::session::Session;
use palimpsest_store::blobs::Blobs;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::clock::IdSource;
use crate::compaction::HookCaller;
use crate::fair_turns::FairTurns;
use crate::history::MAX_BATCHES;
use crate::models::Models;
use crate::projects::CountCache;
use crate::search_threads::SearchPool;
use crate::sessions::{MissingSession, Sessions};
use crate::staging::SpanPasses;
use crate::turn::ArrayReader;

/// The sessions of a process, and the parts that work on them.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The sessions in memory, with their log.
    pub sessions: Arc<Sessions>,
    /// The stored results and the files of session memory.
    pub blobs: Arc<Blobs>,
    /// The source of new ids.
    pub ids: Arc<IdSource>,
    /// The tasks that continue after their call.
    pub background: Background,
    /// Cancelled when the process shuts down.
    pub draining: CancellationToken,
    /// The models that write summaries. Without models, summaries are extractive.
    pub models: Option<Arc<Models>>,
    /// The table of models, for calls that name a model and state no window.
    pub model_table: Arc<ModelTable>,
    /// The caller of the users' hooks. `None` calls no hook.
    pub hook_caller: Option<Arc<dyn HookCaller>>,
    /// The threads for searches.
    pub searches: Arc<SearchPool>,
    /// The start time of this process. Compactions that started earlier are orphaned.
    pub started_at: Timestamp,
    /// The reader of whole arrays.
    pub arrays: Arc<ArrayReader>,
    pub(crate) span_passes: SpanPasses,
    /// The sessions for whose staged spans a model writes summaries.
    pub(crate) span_summaries: SpanPasses,
    /// Limits concurrent reads of event batches. Their memory is part of no other budget.
    pub(crate) event_batches: Arc<FairTurns>,
    /// Limits concurrent steps of session lists to one.
    pub(crate) lists: Arc<Semaphore>,
    pub(crate) project_counts: Arc<CountCache>,
}

impl Engine {
    /// Creates the engine without models and hooks.
    pub fn new(
        sessions: Arc<Sessions>,
        blobs: Arc<Blobs>,
        ids: Arc<IdSource>,
        background: Background,
        draining: CancellationToken,
    ) -> Self {
        Self {
            started_at: sessions.clock().now(),
            sessions,
            blobs,
            ids,
            background,
            draining,
            models: None,
            model_table: Arc::default(),
            hook_caller: None,
            searches: Arc::default(),
            arrays: Arc::default(),
            span_passes: SpanPasses::default(),
            span_summaries: SpanPasses::default(),
            event_batches: Arc::new(FairTurns::new(MAX_BATCHES)),
            lists: Arc::new(Semaphore::new(1)),
            project_counts: Arc::default(),
        }
    }

    /// Returns the limits of the server.
    pub fn limits(&self) -> &Limits {
        self.sessions.limits()
    }

    /// Returns true if secrets are redacted in summaries, by the session's policy or the server's configuration.
    pub fn redacts(&self, session: &Session) -> bool {
        let required = || {
            let project = &session.key().project;
            // A session cannot switch off the redaction that the server requires.
            self.sessions.policies().of(project).summary.redact_secrets
        };
        session.policy().summary.redact_secrets || required()
    }

    /// Returns the options for a first write, which creates a missing session with the policy of its project.
    pub fn create_if_missing(&self, project: &ProjectId) -> MissingSession {
        MissingSession::Create(CreateSession {
            policy: Arc::clone(self.sessions.policies().of(project)),
            implicit: true,
            ..CreateSession::default()
        })
    }

    /// Returns the source of ids for messages that arrive without one.
    pub fn next_id(&self) -> impl FnMut() -> MessageId {
        || self.ids.message_id()
    }
}
