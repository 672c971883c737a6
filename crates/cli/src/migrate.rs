//! `palimpsest migrate`: copies sessions between the embedded store and a database.

use std::sync::Arc;

use anyhow::{Error, anyhow, bail};
use clap::{Args, ValueEnum};
use palimpsest_core::ids::ProjectId;
use palimpsest_engine::clock::{Clock, SystemClock};
use palimpsest_engine::migrate::{DeletionPolicy, MigrationJournal, StoreSide, migrate};
use palimpsest_server::errors::BoxError;
use palimpsest_server::{BLOB_FOLDER, store};
use palimpsest_settings::Config;
use palimpsest_store::Store;
use palimpsest_store::blobs::{BlobOwner, Blobs};
use palimpsest_store::postgres::PostgresLog;

use super::client::block_on;
use super::output::{bytes, number, print};
use super::settings::Settings;

/// Move all sessions from the embedded store to a database that servers share, or back
#[derive(Debug, Args)]
#[command(
    after_help = "Stop all servers and workers of both stores first. The embedded store is in data_dir, and its stored \
results are beside it, or in --embedded-blobs. store.postgres.url is the address of the database, and \
blobs.url the place of its results.

Each session is copied with its whole log and all its results. A session counts as moved when the digests \
of its views are equal in both stores. The source is not changed. If a run is interrupted, the next run \
continues it.

The file migrated.jsonl in data_dir records the moved sessions. If such a session is later deleted in one \
of the two stores, the next run stops and names it. --deletions selects another behavior.

Examples:
  palimpsest migrate --from sled --to postgres --config palimpsest.toml
  palimpsest migrate --from postgres --to sled --data-dir /tmp/back --config palimpsest.toml"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are shown by --help as they are"
)]
pub(super) struct Migrate {
    /// Store to read the sessions from
    #[arg(long, value_name = "STORE")]
    from: EngineArg,
    /// Store to write the sessions to
    #[arg(long, value_name = "STORE")]
    to: EngineArg,
    /// Folder or bucket of the embedded store's results, such as s3://bucket/prefix [default: in data_dir]
    #[arg(long, value_name = "URL")]
    embedded_blobs: Option<String>,
    /// Move only the sessions of this project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Behavior for moved sessions that were later deleted in one of the two stores
    #[arg(long, value_enum, default_value = "refuse", value_name = "HOW")]
    deletions: DeletionMode,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeletionMode {
    /// Move nothing, and print their names
    Refuse,
    /// Delete them in the other store too
    Mirror,
    /// Keep the remaining copies, and move those of the source again
    Keep,
}

impl From<DeletionMode> for DeletionPolicy {
    fn from(how: DeletionMode) -> Self {
        match how {
            DeletionMode::Refuse => Self::Refuse,
            DeletionMode::Mirror => Self::Mirror,
            DeletionMode::Keep => Self::Keep,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineArg {
    /// Embedded store in the data folder
    Sled,
    /// PostgreSQL database (store.postgres.url)
    Postgres,
}

impl Migrate {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.migrate())
    }

    async fn migrate(self) -> anyhow::Result<()> {
        if self.from == self.to {
            bail!(
                "--from and --to name the same store: pass sled for one and postgres for the other"
            );
        }
        let project = self.project.as_deref().map(ProjectId::new).transpose();
        let project = project.map_err(|error| anyhow!("--project {error}"))?;
        let config = self.settings.load()?.config;
        let embedded = self.embedded_blobs.unwrap_or_else(|| {
            let folder = config.data_dir.join(BLOB_FOLDER);
            folder.to_string_lossy().into_owned()
        });
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let from = open(&config, self.from, &embedded, true).await;
        let (from_log, from_blobs) = from.map_err(Error::from_boxed)?;
        let to = open(&config, self.to, &embedded, false).await;
        let (to_log, to_blobs) = to.map_err(Error::from_boxed)?;
        // If both stores share one place for results, the target takes it over. The source cannot write there any more.
        let owner = BlobOwner {
            // Without this permission, the owner marker of the source would make the target fail.
            takes_over_from: Some(from_log.store_id().await?),
            restored_from: None,
            ..BlobOwner::of(&*to_log).await?
        };
        let target = owner.store;
        let to_blobs = to_blobs.bind(owner);
        to_blobs.verify().await?;
        // In a shared place, the source only reads, so a mirrored deletion removes no file of the target.
        let from_blobs = if from_blobs.read_owner().await? == Some(target) {
            from_blobs
        } else {
            from_blobs.bind(BlobOwner::of(&*from_log).await?)
        };
        let side = |log: &Arc<dyn Store>, blobs| {
            let side = StoreSide::new(Arc::clone(log), Arc::new(blobs), Arc::clone(&clock));
            side.map_err(|error| anyhow!("{error}"))
        };
        let (from, to) = (side(&from_log, from_blobs)?, side(&to_log, to_blobs)?);
        // The journal has one place for both directions, so a migration back finds the sessions that were moved before.
        let record = MigrationJournal::open(&config.data_dir, self.from == EngineArg::Sled).await?;
        let how = self.deletions.into();
        let moved = migrate((&from, &to), project.as_ref(), clock.now(), &record, how).await;
        drop((from, to));
        // Both stores are closed even after a failed migration, so that accepted writes are complete.
        from_log.close().await?;
        to_log.close().await?;
        let moved = moved?;
        print(&format!(
            "{} sessions are in both stores with equal views. This run moved {} sessions, {} events and {} stored \
             files ({}), and deleted {} sessions that were deleted in the other store.\n",
            number(moved.sessions),
            number(moved.moved),
            number(moved.events),
            number(moved.files),
            bytes(moved.bytes),
            number(moved.deleted)
        ))
    }
}

async fn open(
    config: &Config,
    engine: EngineArg,
    embedded_blobs: &str,
    is_source: bool,
) -> Result<(Arc<dyn Store>, Blobs), BoxError> {
    match engine {
        EngineArg::Sled => {
            // A missing source is a wrong path, and a missing target is a new store.
            let log = if is_source {
                store::open_existing_embedded(config).await?
            } else {
                store::make_folder(&config.data_dir).await?;
                store::open_embedded(store::embedded(config)).await?
            };
            Ok((log, Blobs::open(embedded_blobs)?))
        }
        EngineArg::Postgres => {
            let log = PostgresLog::open(&store::database(config)?).await?;
            Ok((Arc::new(log), store::blobs(config)?))
        }
    }
}
