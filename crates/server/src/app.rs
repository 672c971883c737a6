//! What is served: the store opened, the sessions on it, and the handlers on those.

use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_store::SessionLog;
use palimpsest_store::blobs::Blobs;
use palimpsest_store::sled::{SledLog, SledOptions};
use tokio::task::spawn_blocking;

use crate::config::Config;
use crate::errors::BoxError;
use crate::grpc::Services;
use crate::serve::{App, Backend, Context};
use crate::services::{ContextHandlers, Service, SessionHandlers};
use crate::sessions::{Policies, Sessions};
use crate::summarizer::Models;
use crate::{BLOB_FOLDER, LOG_FOLDER};

/// Opens the store and builds what is served.
pub async fn build(context: Context) -> Result<App, BoxError> {
    let log: Arc<dyn SessionLog> = Arc::new(open(&context.config).await?);
    let limits = Arc::new(context.config.limits.clone());
    let sessions = Sessions::new(
        Arc::clone(&log),
        Arc::clone(&context.clock),
        Arc::clone(&limits),
        Policies::new(
            &context.config.policy.server,
            &context.config.policy.projects,
        )?,
        usize::try_from(context.config.sessions.cache_bytes)?,
    );
    let blobs = Arc::new(open_blobs(&context.config)?);
    let service = Service::new(
        Arc::new(sessions.with_blobs(Arc::clone(&blobs))),
        blobs,
        context.ids,
        context.mutations,
        context.draining,
    )
    .with_prices(context.config.prices)
    .with_summarizer(Models::from_config(&context.config.summarizer)?.map(Arc::new));
    let handlers = Services {
        context: ContextHandlers(service.clone()),
        sessions: SessionHandlers(service),
    };
    Ok(App {
        routes: handlers.into_routes(&limits),
        backend: Arc::new(Store(log)),
    })
}

async fn open(config: &Config) -> Result<SledLog, BoxError> {
    let mut options = SledOptions::new(config.data_dir.join(LOG_FOLDER));
    options.cache_bytes = config.store.cache_bytes;
    options.flush_every_ms = config.store.flush_every_ms;
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

/// The log, as the server's life goes.
struct Store(Arc<dyn SessionLog>);

#[async_trait]
impl Backend for Store {
    async fn canary(&self) -> Result<(), BoxError> {
        Ok(self.0.check().await?)
    }

    async fn close(&self) -> Result<(), BoxError> {
        Ok(self.0.close().await?)
    }
}
