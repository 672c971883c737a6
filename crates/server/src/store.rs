//! Where sessions and their results are kept, as the settings say it: opened, and told apart no further.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_store::blobs::{BlobError, Blobs};
use palimpsest_store::postgres::{PostgresLog, PostgresOptions, Secret};
use palimpsest_store::sled::{InHand, Observers, SledLog, SledOptions};
use palimpsest_store::{SessionLog, told};
use palimpsest_summarize::SecretSource;
use secrecy::ExposeSecret as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::config::Config;
use crate::errors::BoxError;
use crate::metrics::Metrics;
use crate::{BLOB_FOLDER, LOG_FOLDER};

/// How long a start waits for the place of the blobs.
const CHECK: Duration = Duration::from_secs(5);

/// Which engine keeps the sessions: only for those who watch it.
#[derive(Debug, Clone)]
pub enum Engine {
    /// The one within this process, in a folder.
    Embedded(Arc<SledLog>),
    /// A database that others may use too.
    Shared(Arc<PostgresLog>),
}

impl Engine {
    /// The log, whoever keeps it.
    pub fn log(&self) -> Arc<dyn SessionLog> {
        match self {
            Self::Embedded(log) => Arc::<SledLog>::clone(log),
            Self::Shared(log) => Arc::<PostgresLog>::clone(log),
        }
    }
}

/// Opens the log, for a server or a worker.
pub async fn open(config: &Config, metrics: &Metrics, in_hand: InHand) -> Result<Engine, BoxError> {
    tokio::fs::create_dir_all(&config.data_dir).await?;
    if config.store.postgres.url.is_some() {
        let log = PostgresLog::open(&database(config)?).await?;
        return Ok(Engine::Shared(Arc::new(log)));
    }
    let mut options = embedded(config);
    options.observers = Observers::new(metrics.clone());
    options.in_hand = in_hand;
    Ok(Engine::Embedded(open_embedded(options).await?))
}

/// Opens the log that the settings name, for a command that only reads it: it is there, and stays as it is.
pub async fn open_existing(config: &Config) -> Result<Arc<dyn SessionLog>, BoxError> {
    if config.store.postgres.url.is_some() {
        let options = PostgresOptions {
            migrate: false,
            ..database(config)?
        };
        return Ok(Arc::new(PostgresLog::open(&options).await?));
    }
    Ok(open_existing_embedded(config).await?)
}

/// The same with the log in the data folder, whatever else the settings name.
pub async fn open_existing_embedded(config: &Config) -> Result<Arc<SledLog>, BoxError> {
    let options = embedded(config);
    if !options.dir.is_dir() {
        return Err(format!("there is no store in {}", config.data_dir.display()).into());
    }
    open_embedded(options).await
}

/// Opens a log in a folder.
pub async fn open_embedded(options: SledOptions) -> Result<Arc<SledLog>, BoxError> {
    let log = spawn_blocking(move || SledLog::open(&options)).await??;
    Ok(Arc::new(log))
}

/// How the log in the data folder is opened.
pub fn embedded(config: &Config) -> SledOptions {
    let mut options = SledOptions::new(config.data_dir.join(LOG_FOLDER));
    options.cache_bytes = config.store.cache_bytes;
    options.flush_every_ms = config.store.flush_every_ms;
    options.min_free_bytes = config.store.min_free_bytes;
    options
}

/// How the database is reached that the settings name.
pub fn database(config: &Config) -> Result<PostgresOptions, BoxError> {
    let postgres = &config.store.postgres;
    let url = postgres.url.as_ref();
    let url = url.ok_or("store.postgres.url is not set: it says where the database is")?;
    let password = match (&postgres.password_env, &postgres.password_file) {
        (Some(variable), _) => Some(SecretSource::Env(variable.as_str().to_owned())),
        (None, Some(path)) => Some(SecretSource::File(path.clone())),
        (None, None) => None,
    };
    let password = password.map(|source| Arc::new(Password(source)) as Arc<dyn Secret>);
    let cert = postgres.client_cert_file.clone();
    Ok(PostgresOptions {
        password,
        schema: postgres.schema().to_owned(),
        ca_file: postgres.ca_file.clone(),
        client_cert: cert.zip(postgres.client_key_file.clone()),
        connections: postgres.connections,
        wait: Duration::from_millis(postgres.wait_ms),
        connect: Duration::from_millis(postgres.connect_timeout_ms),
        statement: Duration::from_millis(postgres.statement_timeout_ms),
        retry: Duration::from_millis(postgres.retry_ms),
        name: process_name(),
        hints: postgres.hints,
        migrate: postgres.migrate,
        ..PostgresOptions::new(url.as_str())
    })
}

/// The database's password, wherever the settings say that it is.
#[derive(Debug)]
struct Password(SecretSource);

#[async_trait]
impl Secret for Password {
    async fn read(&self) -> Result<String, String> {
        let read = self.0.read().await;
        let read = read.map_err(|error| {
            format!("{error} (store.postgres.password_env or store.postgres.password_file)")
        })?;
        Ok(read.expose_secret().to_owned())
    }
}

/// Who this process is among those that share a store: its machine and its number there, for people, and what no
/// other process has. In containers both of the former may be the same for several.
pub fn process_name() -> String {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        format!("{host}/{}/{:016x}", std::process::id(), fastrand::u64(..))
    });
    NAME.clone()
}

/// The configured place of the blobs, or a folder beside the log, as it is.
pub fn blobs(config: &Config) -> Result<Blobs, BlobError> {
    Blobs::open(&location(config))
}

fn location(config: &Config) -> String {
    match &config.blobs.url {
        Some(url) => url.clone(),
        None => config
            .data_dir
            .join(BLOB_FOLDER)
            .to_string_lossy()
            .into_owned(),
    }
}

/// The same for whoever puts something there. A place that does not let this process in is told at once; one that
/// cannot be reached may be back when it is needed.
pub async fn open_blobs(config: &Config) -> Result<Blobs, BoxError> {
    let (location, blobs) = (location(config), blobs(config)?);
    match timeout(CHECK, blobs.check(&process_name())).await {
        Ok(Ok(())) => {}
        Ok(Err(error @ BlobError::Refused(_))) => return Err(format!("{location}: {error}").into()),
        Ok(Err(error)) => {
            let error = told(&error);
            tracing::warn!(
                location,
                error,
                "blobs cannot be reached; results stay in views until they can"
            );
        }
        Err(_) => tracing::warn!(
            location,
            "blobs do not answer; results stay in views until they do"
        ),
    }
    Ok(blobs)
}
