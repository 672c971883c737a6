//! Where sessions and their results are kept, as the settings say it: opened, and told apart no further.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_settings::Config;
use palimpsest_store::blobs::{BlobError, Blobs, Owner};
use palimpsest_store::postgres::{PostgresLog, PostgresOptions, Secret};
use palimpsest_store::sled::{Observers, PendingWrites, SledLog, SledOptions, copy_for_reading};
use palimpsest_store::{SessionLog, StoreError, error_chain};
use palimpsest_summarize::SecretSource;
use secrecy::ExposeSecret as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

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
pub async fn open(
    config: &Config,
    metrics: &Metrics,
    in_hand: PendingWrites,
) -> Result<Engine, BoxError> {
    make_folder(&config.data_dir).await?;
    if config.store.postgres.url.is_some() {
        let log = PostgresLog::open(&database(config)?).await?;
        return Ok(Engine::Shared(Arc::new(log)));
    }
    let mut options = embedded(config);
    options.observers = Observers::new(metrics.clone());
    options.pending_writes = in_hand;
    Ok(Engine::Embedded(open_embedded(options).await?))
}

/// Makes the data folder. The system's own error names no path.
pub async fn make_folder(folder: &Path) -> Result<(), BoxError> {
    let made = tokio::fs::create_dir_all(folder).await;
    made.map_err(|error| {
        let path = folder.display();
        let text = if error.kind() == std::io::ErrorKind::AlreadyExists
            || error.kind() == std::io::ErrorKind::NotADirectory
        {
            format!("failed to use the data folder {path}: a file is in its place; pass --data-dir with a folder")
        } else {
            format!("failed to make the data folder {path}: {error}; pass --data-dir with a folder that can be written")
        };
        BoxError::from(text)
    })
}

/// A log that is open for reading, with the copy that it is read from.
pub struct ReadOnlyLog {
    /// The log.
    pub log: Arc<dyn SessionLog>,
    /// Removed with its value.
    _copy: Option<tempfile::TempDir>,
}

/// Opens the log that the settings name, for a command that only reads it: it is there, and stays as it is. An embedded
/// store is copied into `scratch` first, because opening one writes and recovers what a crash left.
pub async fn open_existing(config: &Config, scratch: &Path) -> Result<ReadOnlyLog, BoxError> {
    if config.store.postgres.url.is_some() {
        let options = PostgresOptions {
            auto_migrate: false,
            ..database(config)?
        };
        return Ok(ReadOnlyLog {
            log: Arc::new(PostgresLog::open(&options).await?),
            _copy: None,
        });
    }
    let options = existing(config)?;
    let (from, scratch) = (options.dir.clone(), scratch.to_owned());
    let copied = spawn_blocking(move || {
        let copy = tempfile::Builder::new()
            .prefix("palimpsest-")
            .tempdir_in(&scratch)
            .map_err(|error| format!("cannot write to {}: {error}", scratch.display()))?;
        let to = copy.path().join(LOG_FOLDER);
        std::fs::create_dir(&to)?;
        copy_for_reading(&from, &to)?;
        Ok::<_, BoxError>((copy, to))
    });
    let (copy, to) = copied.await??;
    let dir = options.dir.clone();
    let opened = open_embedded(SledOptions {
        dir: to,
        min_free_bytes: 0,
        ..options
    });
    let log = opened.await.map_err(|error| of_the_store(error, dir))?;
    Ok(ReadOnlyLog {
        log,
        _copy: Some(copy),
    })
}

/// Says of the store what was found out about its copy.
fn of_the_store(error: BoxError, dir: PathBuf) -> BoxError {
    match error.downcast::<StoreError>() {
        Ok(error) => match *error {
            StoreError::Corrupt { detail, .. } => Box::new(StoreError::Corrupt {
                kept: dir.clone(),
                dir,
                detail,
            }),
            error => Box::new(error),
        },
        Err(error) => error,
    }
}

fn existing(config: &Config) -> Result<SledOptions, BoxError> {
    let options = SledOptions {
        moves_damaged_aside: false,
        ..embedded(config)
    };
    if options.dir.is_dir() {
        return Ok(options);
    }
    Err(format!("there is no store in {}", config.data_dir.display()).into())
}

/// Opens the log in the data folder, whatever else the settings name. It is not changed but for what a crash left half
/// done, and a damaged one is left where it is.
pub async fn open_existing_embedded(config: &Config) -> Result<Arc<SledLog>, BoxError> {
    open_embedded(existing(config)?).await
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
        wait: Duration::from_millis(postgres.pool_timeout_ms),
        connect: Duration::from_millis(postgres.connect_timeout_ms),
        statement: Duration::from_millis(postgres.statement_timeout_ms),
        retry: Duration::from_millis(postgres.retry_timeout_ms),
        name: process_name(),
        notify: postgres.notify,
        auto_migrate: postgres.auto_migrate,
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

/// The same for the log that puts something there, bound to it. A place that does not let this process in, or that belongs
/// to another log, is an error. A place that cannot be reached may be back when it is needed, and is verified then.
pub async fn open_blobs(config: &Config, owner: Owner) -> Result<Blobs, BoxError> {
    let (location, blobs) = (location(config), blobs(config)?.bind(owner));
    let checked = async {
        // The owner of the files is verified before `check` writes a probe. A marker that cannot be read now is no
        // answer: the probe finds out whether this process is let in at all.
        match blobs.verify().await {
            Err(error) if error.is_final() => Err(error),
            _ => blobs.check(&process_name()).await,
        }
    };
    match timeout(CHECK, checked).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_final() => return Err(format!("{location}: {error}").into()),
        Ok(Err(error)) => {
            let error = error_chain(&error);
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
