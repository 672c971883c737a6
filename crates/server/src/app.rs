//! Assembles the server: store, sessions, handlers and background tasks.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_core::models::ModelTable;
use palimpsest_edge::metrics::Sampler;
use palimpsest_engine::Engine;
use palimpsest_engine::maintenance::Maintenance;
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_engine::tools::ToolRunner;
use palimpsest_store::blobs::BlobOwner;
use palimpsest_store::sled::PendingWrites;
use palimpsest_worker::sessions;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::errors::BoxError;
use crate::grpc::Services;
use crate::hooks::HookEndpoints;
use crate::serve::{App, Backend, ServerContext};
use crate::services::{AdminHandlers, ContextHandlers, Service, SessionHandlers};
use crate::{LOG_FOLDER, store, summarizer};

/// Opens the store and builds the routes and the backend.
///
/// # Errors
///
/// Fails if the store, the blobs, the models or the maintenance tasks cannot be configured.
pub async fn build(context: ServerContext) -> Result<App, BoxError> {
    let metrics = &context.metrics;
    // Admission counts the changes in flight, and the group commit of the store waits for them.
    let in_hand = PendingWrites::counted_by(Arc::clone(&context.changes));
    let engine = store::open(&context.config, metrics, in_hand).await?;
    engine.observe(metrics);
    let log = engine.log();
    let limits = Arc::new(context.config.limits.clone());
    let settings = &context.config.policy;
    let policies = DefaultPolicies::new(&settings.server, &settings.projects)?;
    // Done before the server accepts calls, so that no call waits for a token counter.
    policies.prepare().await;
    let sessions = Sessions::new(
        Arc::clone(&log),
        Arc::clone(&context.clock),
        Arc::clone(&limits),
        policies,
        usize::try_from(context.config.sessions.cache_bytes)?,
    );
    // The blobs are bound to the identity of the log, so the log opens first.
    let owner = BlobOwner::of(&*log).await?;
    let blobs = Arc::new(store::open_blobs(&context.config, owner).await?);
    let clock = Arc::clone(&context.clock);
    let quotas = Arc::new(QuotaTracker::new(context.config.quotas.clone(), clock));
    let sessions = sessions
        .with_blobs(Arc::clone(&blobs))
        .with_quotas(Arc::clone(&quotas))
        .with_observer(Arc::new(metrics.clone()))
        .with_process(store::process_name());
    let sessions = Arc::new(sessions);
    metrics.observe_sessions(&sessions);
    let models = summarizer::from_config(&context.config.summarizer, metrics)?.map(Arc::new);
    if let Some(models) = &models {
        metrics.observe_models(models);
    }
    let folders = (
        context.config.data_dir.clone(),
        context.config.data_dir.join(LOG_FOLDER),
    );
    let clock = Arc::clone(&context.clock);
    let sampler = Sampler::start(metrics, Arc::clone(&log), clock, folders);
    let config = &context.config.worker;
    let role = context.config.role;
    // A process runs the worker and the maintenance tasks only if its role includes them.
    let worker = (config.enabled && role.works()).then(|| {
        let (clock, ids) = (&context.clock, &context.ids);
        let worker = sessions::worker(&sessions, &blobs, clock, ids, config, models.clone());
        let worker = worker.with_stats(context.summaries.clone());
        BackgroundTask::start(|stop| worker.run(stop))
    });
    let watched = Arc::clone(&sessions);
    let hooks = HookEndpoints::from_config(&context.config.hooks);
    let service = Service::new(
        sessions, blobs, context.ids, context.mutations, context.draining,
    )
    .with_quotas(Arc::clone(&quotas))
    .with_prices(context.config.prices)
    .with_model_table(ModelTable::with_entries(context.config.models.clone()))
    // A shared log may have its worker in another process.
    .with_worker(worker.is_some() || !log.is_exclusive())
    .with_summarizer(models)
    .with_hooks(hooks, context.metrics.clone())
    .with_metrics(context.metrics)
    .with_authentication(context.config.auth.is_on());
    let maintenance = if role.works() {
        let maintenance = Maintenance::new(
            Engine::clone(&service),
            (
                context.config.retention.clone(),
                context.config.sweep.clone(),
            ),
            context.maintenance,
        )?;
        Some(BackgroundTask::start(|stop| maintenance.run(stop)))
    } else {
        None
    };
    // Followed in every role: hints only speed up watchers, and nothing depends on their delivery.
    let hints = BackgroundTask::start(|stop| watched.follow_hints(stop));
    let engine = Engine::clone(&service);
    let tools: Arc<dyn ToolRunner> = Arc::new(service.clone());
    let routes = if role.serves() {
        let handlers = Services {
            context: ContextHandlers(service.clone()),
            sessions: SessionHandlers(service.clone()),
            admin: AdminHandlers(service),
        };
        handlers.into_routes(&limits)
    } else {
        Routes::default()
    };
    Ok(App {
        routes,
        quotas: Some(quotas),
        engine: Some(engine),
        tools: Some(tools),
        backend: Arc::new(StoreBackend {
            log,
            background: Mutex::new([worker, maintenance, Some(hints)]),
            sampler: Mutex::new(Some(sampler)),
        }),
    })
}

struct BackgroundTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl BackgroundTask {
    fn start<F>(work: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = tokio::spawn(work(stop.clone()));
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!(
                "a background task panicked: session memory was not updated, or deleted data was not removed"
            );
        }
    }
}

/// The backend of the app: the log, the background tasks and the metrics sampler.
struct StoreBackend {
    log: Arc<dyn palimpsest_store::Store>,
    background: Mutex<[Option<BackgroundTask>; 3]>,
    sampler: Mutex<Option<Sampler>>,
}

#[async_trait]
impl Backend for StoreBackend {
    async fn canary(&self) -> Result<(), BoxError> {
        Ok(self.log.check().await?)
    }

    async fn close(&self) -> Result<(), BoxError> {
        // Background tasks write to the log, so the log closes after them.
        let running = std::mem::take(&mut *self.background.lock().await);
        for running in running.into_iter().flatten() {
            running.stop().await;
        }
        // The sampler reads the log too, so it ends before the log closes.
        let sampler = self.sampler.lock().await.take();
        if let Some(sampler) = sampler {
            sampler.stop().await;
        }
        Ok(self.log.close().await?)
    }
}
