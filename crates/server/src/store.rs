//! Opens the session log and the blob store that the settings configure.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_edge::metrics::Metrics;
use palimpsest_settings::Config;
use palimpsest_store::blobs::{BlobError, BlobOwner, Blobs};
use palimpsest_store::postgres::{PostgresLog, PostgresOptions, SecretProvider};
use palimpsest_store::sled::{
    OptionalObserver, PendingWrites, SledLog, SledOptions, copy_for_reading,
};
use palimpsest_store::{Store, StoreError, error_chain};
use palimpsest_summarize::SecretSource;
use secrecy::ExposeSecret as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::errors::BoxError;
use crate::{BLOB_FOLDER, LOG_FOLDER};

/// The timeout of the blob-store check at startup.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The open store engine. Only metrics distinguish the variants.
#[derive(Debug, Clone)]
pub enum Engine {
    /// The sled log in a folder of this host, used by this process alone.
    Embedded(Arc<SledLog>),
    /// The PostgreSQL log, which several processes may share.
    Shared(Arc<PostgresLog>),
}

impl Engine {
    /// Registers the metrics of the engine.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        match self {
            Self::Embedded(log) => metrics.observe_sled(log),
            Self::Shared(log) => metrics.observe_postgres(log),
        }
    }

    /// Returns the log of either engine.
    pub fn log(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(log) => Arc::<SledLog>::clone(log),
            Self::Shared(log) => Arc::<PostgresLog>::clone(log),
        }
    }
}

/// Opens the log for a server or a worker.
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
    options.observers = OptionalObserver::new(metrics.clone());
    options.pending_writes = in_hand;
    Ok(Engine::Embedded(open_embedded(options).await?))
}

/// Creates the data folder. The error names the path, unlike the error of the system.
pub async fn make_folder(folder: &Path) -> Result<(), BoxError> {
    let made = tokio::fs::create_dir_all(folder).await;
    made.map_err(|error| {
        let path = folder.display();
        // `AlreadyExists` for a file at the path itself, `NotADirectory` for a file at one of its parents.
        let text = if error.kind() == std::io::ErrorKind::AlreadyExists
            || error.kind() == std::io::ErrorKind::NotADirectory
        {
            format!("cannot use the data folder {path}: a file is in its place. Pass --data-dir with a folder")
        } else {
            format!("cannot create the data folder {path}: {error}. Pass --data-dir with a writable folder")
        };
        BoxError::from(text)
    })
}

/// A log that is open for reading, with its temporary copy if one was made.
pub struct ReadOnlyLog {
    /// The open log.
    pub log: Arc<dyn Store>,
    /// The temporary copy. Its folder is deleted on drop.
    _copy: Option<tempfile::TempDir>,
}

/// Opens the configured log for a command that only reads.
///
/// The log must exist and is not modified. An embedded store is copied into `scratch` first, because opening a store
/// writes files and recovers from crashes.
pub async fn open_existing(config: &Config, scratch: &Path) -> Result<ReadOnlyLog, BoxError> {
    // PostgreSQL supports concurrent readers, so no copy is needed. The tables are not migrated.
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
    let options = existing_options(config)?;
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
    // A read-only copy needs no free-space reserve.
    let opened = open_embedded(SledOptions {
        dir: to,
        min_free_bytes: 0,
        ..options
    });
    let log = opened.await.map_err(|error| with_store_path(error, dir))?;
    Ok(ReadOnlyLog {
        log,
        _copy: Some(copy),
    })
}

/// Replaces the path of the temporary copy in a corruption error by the path of the store.
fn with_store_path(error: BoxError, dir: PathBuf) -> BoxError {
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

fn existing_options(config: &Config) -> Result<SledOptions, BoxError> {
    let options = SledOptions {
        quarantines_damaged: false,
        ..embedded(config)
    };
    if options.dir.is_dir() {
        return Ok(options);
    }
    Err(format!(
        "no store exists in {}: check --data-dir",
        config.data_dir.display()
    )
    .into())
}

/// Opens the log in the data folder, even if the settings configure PostgreSQL.
///
/// Crash recovery is the only modification. A damaged log stays at its path.
pub async fn open_existing_embedded(config: &Config) -> Result<Arc<SledLog>, BoxError> {
    open_embedded(existing_options(config)?).await
}

/// Opens an embedded log in the folder of `options`.
pub async fn open_embedded(options: SledOptions) -> Result<Arc<SledLog>, BoxError> {
    let log = spawn_blocking(move || SledLog::open(&options)).await??;
    Ok(Arc::new(log))
}

/// Returns the options of the log in the data folder.
pub fn embedded(config: &Config) -> SledOptions {
    let mut options = SledOptions::new(config.data_dir.join(LOG_FOLDER));
    options.cache_bytes = config.store.cache_bytes;
    options.flush_every_ms = config.store.flush_every_ms;
    options.min_free_bytes = config.store.min_free_bytes;
    options
}

/// Returns the connection options of the configured database.
///
/// Fails if `store.postgres.url` is not set.
pub fn database(config: &Config) -> Result<PostgresOptions, BoxError> {
    let postgres = &config.store.postgres;
    let url = postgres.url.as_ref();
    let url = url.ok_or("store.postgres.url is not set: set it to the address of the database")?;
    // The variable takes precedence over the file.
    let password = match (&postgres.password_env, &postgres.password_file) {
        (Some(variable), _) => Some(Password {
            source: SecretSource::Env(variable.as_str().to_owned()),
            setting: "store.postgres.password_env",
        }),
        (None, Some(path)) => Some(Password {
            source: SecretSource::File(path.clone()),
            setting: "store.postgres.password_file",
        }),
        (None, None) => None,
    };
    let password = password.map(|password| Arc::new(password) as Arc<dyn SecretProvider>);
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

/// The database password, from a variable or a file. Each connection reads it again.
#[derive(Debug)]
struct Password {
    source: SecretSource,
    setting: &'static str,
}

#[async_trait]
impl SecretProvider for Password {
    async fn read(&self) -> Result<String, String> {
        let read = self.source.read().await;
        let read = read.map_err(|error| format!("{error} ({})", self.setting))?;
        Ok(read.expose_secret().to_owned())
    }
}

/// Returns the name of this process among all processes of a store: host, process id and a random number.
///
/// Host and process id are for people. The random number makes the name unique, because containers may share both.
pub fn process_name() -> String {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        // Computed once, because all parts of a process must use the same name.
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        format!("{host}/{}/{:016x}", std::process::id(), fastrand::u64(..))
    });
    NAME.clone()
}

/// Opens the configured blob location, or a folder beside the log, without binding it to a log.
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

/// Opens the blob location and binds it to the log of `owner`.
///
/// Fails if access is denied or if the location belongs to another log. An unreachable location is only logged,
/// because it may recover, and the owner is verified again at its first use.
pub async fn open_blobs(config: &Config, owner: BlobOwner) -> Result<Blobs, BoxError> {
    let (location, blobs) = (location(config), blobs(config)?.bind(owner));
    let checked = async {
        // The owner is verified before `check` writes a probe. An unreadable marker is not final: the probe then finds
        // out if this process has access at all.
        match blobs.verify().await {
            Err(error) if error.is_final() => Err(error),
            _ => blobs.check(&process_name()).await,
        }
    };
    match timeout(CHECK_TIMEOUT, checked).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_final() => return Err(format!("{location}: {error}").into()),
        Ok(Err(error)) => {
            let error = error_chain(&error);
            tracing::warn!(
                location,
                error,
                "the blob store is unavailable; results stay in views until it is available"
            );
        }
        Err(_) => tracing::warn!(
            location,
            "the blob store does not respond; results stay in views until it responds"
        ),
    }
    Ok(blobs)
}
