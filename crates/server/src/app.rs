//! What is served: the store opened, the sessions on it, the handlers on those, and what works in the
//! background beside them; and that alone.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_store::SessionLog;
use palimpsest_store::blobs::Blobs;
use palimpsest_store::sled::{InHand, Observers, SledLog, SledOptions};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, IdSource, SystemClock};
use crate::config::Config;
use crate::errors::BoxError;
use crate::grpc::{Mutations, Services};
use crate::hooks::Hooks;
use crate::memory;
use crate::metrics::{Metrics, Sampler};
use crate::quotas::Quotas;
use crate::serve::{App, Backend, Context};
use crate::services::{AdminHandlers, ContextHandlers, Service, SessionHandlers};
use crate::sessions::{Policies, Sessions};
use crate::summarizer::Models;
use crate::upkeep::{self, Upkeep};
use crate::{BLOB_FOLDER, LOG_FOLDER};

/// Opens the store and builds what is served.
pub async fn build(context: Context) -> Result<App, BoxError> {
    let metrics = &context.metrics;
    let sled = Arc::new(
        open(
            &context.config,
            metrics,
            InHand::counted_by(Arc::clone(&context.changes)),
        )
        .await?,
    );
    metrics.watch_store(&sled);
    let log: Arc<dyn SessionLog> = sled;
    let limits = Arc::new(context.config.limits.clone());
    let settings = &context.config.policy;
    let policies = Policies::new(&settings.server, &settings.projects)?;
    policies.prepare().await;
    let sessions = Sessions::new(
        Arc::clone(&log),
        Arc::clone(&context.clock),
        Arc::clone(&limits),
        policies,
        usize::try_from(context.config.sessions.cache_bytes)?,
    );
    let blobs = Arc::new(open_blobs(&context.config)?);
    let clock = Arc::clone(&context.clock);
    let quotas = Arc::new(Quotas::new(context.config.quotas.clone(), clock));
    let sessions = sessions
        .with_blobs(Arc::clone(&blobs))
        .with_quotas(Arc::clone(&quotas))
        .with_metrics(metrics.clone());
    let sessions = Arc::new(sessions);
    metrics.watch_sessions(&sessions);
    let models = Models::from_config(&context.config.summarizer, metrics)?.map(Arc::new);
    if let Some(models) = &models {
        metrics.watch_models(models);
    }
    let folders = (
        context.config.data_dir.clone(),
        context.config.data_dir.join(LOG_FOLDER),
    );
    let clock = Arc::clone(&context.clock);
    let sampler = Sampler::start(metrics, Arc::clone(&log), clock, folders);
    let config = &context.config.worker;
    let worker = config.enabled.then(|| {
        let (clock, ids) = (&context.clock, &context.ids);
        let worker = memory::worker(&sessions, &blobs, clock, ids, config, models.clone());
        let worker = worker.with_stats(context.summaries.clone());
        Running::start(|stop| worker.run(stop))
    });
    let (of_upkeep, blobs_of_upkeep) = (Arc::clone(&sessions), Arc::clone(&blobs));
    let service = Service::new(
        sessions,
        blobs,
        context.ids,
        context.mutations,
        context.draining,
    )
    .with_quotas(quotas)
    .with_prices(context.config.prices)
    .with_worker(worker.is_some())
    .with_summarizer(models)
    .with_hooks(Hooks::from_config(&context.config.hooks))
    .with_metrics(context.metrics)
    .with_authentication(context.config.auth.is_on());
    let upkeep = Upkeep::new(
        service.clone(),
        of_upkeep,
        blobs_of_upkeep,
        (
            context.config.retention.clone(),
            context.config.sweep.clone(),
        ),
        context.upkeep,
    )?;
    let upkeep = Running::start(|stop| upkeep.run(stop));
    let handlers = Services {
        context: ContextHandlers(service.clone()),
        sessions: SessionHandlers(service.clone()),
        admin: AdminHandlers(service),
    };
    Ok(App {
        routes: handlers.into_routes(&limits),
        backend: Arc::new(Store {
            log,
            background: Mutex::new([worker, Some(upkeep)]),
            sampler: Mutex::new(Some(sampler)),
        }),
    })
}

async fn open(config: &Config, metrics: &Metrics, in_hand: InHand) -> Result<SledLog, BoxError> {
    let mut options = SledOptions::new(config.data_dir.join(LOG_FOLDER));
    options.cache_bytes = config.store.cache_bytes;
    options.flush_every_ms = config.store.flush_every_ms;
    options.min_free_bytes = config.store.min_free_bytes;
    options.observers = Observers::new(metrics.clone());
    options.in_hand = in_hand;
    tokio::fs::create_dir_all(&config.data_dir).await?;
    Ok(spawn_blocking(move || SledLog::open(&options)).await??)
}

/// The configured place of the blobs, or a folder beside the log.
fn open_blobs(config: &Config) -> Result<Blobs, BoxError> {
    let folder = config.data_dir.join(BLOB_FOLDER);
    let location = match &config.blobs.url {
        Some(url) => url.clone(),
        None => folder.to_string_lossy().into_owned(),
    };
    Ok(Blobs::open(&location)?)
}

/// Opens the store and the blobs, and runs the worker alone until `stop`.
pub async fn work(
    config: Config,
    metrics: &Metrics,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let ids = Arc::new(IdSource::random(Arc::clone(&clock)));
    let log: Arc<dyn SessionLog> = Arc::new(open(&config, metrics, InHand::default()).await?);
    let policies = Policies::new(&config.policy.server, &config.policy.projects)?;
    policies.prepare().await;
    let sessions = Sessions::new(
        Arc::clone(&log),
        Arc::clone(&clock),
        Arc::new(config.limits.clone()),
        policies,
        usize::try_from(config.sessions.cache_bytes)?,
    );
    let blobs = Arc::new(open_blobs(&config)?);
    let sessions = sessions
        .with_blobs(Arc::clone(&blobs))
        .with_metrics(metrics.clone());
    let sessions = Arc::new(sessions);
    let models = Models::from_config(&config.summarizer, metrics)?.map(Arc::new);
    let worker = memory::worker(&sessions, &blobs, &clock, &ids, &config.worker, models);
    // Its handlers are what an export is read by; nobody calls them here.
    let service = Service::new(
        Arc::clone(&sessions),
        Arc::clone(&blobs),
        ids,
        Mutations::default(),
        stop.clone(),
    );
    let settings = (config.retention, config.sweep);
    let upkeep = Upkeep::new(service, sessions, blobs, settings, upkeep::Stats::default())?;
    tracing::info!(data_dir = %config.data_dir.display(), "working");
    tokio::join!(worker.run(stop.clone()), upkeep.run(stop));
    log.close().await?;
    tracing::info!("down");
    Ok(())
}

/// Work in the background, while it runs.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
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
                "work in the background had panicked: summaries were not kept, or deleted data not removed"
            );
        }
    }
}

/// The log and what works on it in the background, as the server's life goes.
struct Store {
    log: Arc<dyn SessionLog>,
    background: Mutex<[Option<Running>; 2]>,
    sampler: Mutex<Option<Sampler>>,
}

#[async_trait]
impl Backend for Store {
    async fn canary(&self) -> Result<(), BoxError> {
        Ok(self.log.check().await?)
    }

    async fn close(&self) -> Result<(), BoxError> {
        let running = std::mem::take(&mut *self.background.lock().await);
        for running in running.into_iter().flatten() {
            running.stop().await;
        }
        let sampler = self.sampler.lock().await.take();
        if let Some(sampler) = sampler {
            sampler.stop().await;
        }
        Ok(self.log.close().await?)
    }
}
