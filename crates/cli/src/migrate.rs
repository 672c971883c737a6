//! `palimpsest migrate`: sessions from the embedded store into a database, and back.

use std::sync::Arc;

use anyhow::{Error, anyhow, bail};
use clap::{Args, ValueEnum};
use palimpsest_core::ids::ProjectId;
use palimpsest_engine::clock::{Clock, SystemClock};
use palimpsest_engine::migrate::{Deletions, MigrationJournal, StoreSide, migrate};
use palimpsest_server::errors::BoxError;
use palimpsest_server::{BLOB_FOLDER, store};
use palimpsest_settings::Config;
use palimpsest_store::SessionLog;
use palimpsest_store::blobs::{Blobs, Owner};
use palimpsest_store::postgres::PostgresLog;

use super::client::block_on;
use super::output::{bytes, number, print};
use super::settings::Settings;

/// Move all sessions from the embedded store into a database that servers share, or back
#[derive(Debug, Args)]
#[command(
    after_help = "No server and no worker may work on either of the two meanwhile. The embedded store is in data_dir,
and its stored results beside it; store.postgres.url says where the database is, and blobs.url where its
results are. Each session is copied with its whole log and all its results, and counts when both stores
give the same views, by their digests. What was cut off is gone on with when it is run again. The file
migrated.jsonl in data_dir records what was moved: a session that is deleted in one of the two stores
afterwards is not brought back by the next run, which stops and names it. Nothing of the source is changed
otherwise.

Examples:
  palimpsest migrate --from sled --to postgres --data-dir /var/lib/palimpsest --config palimpsest.toml
  palimpsest migrate --from postgres --to sled --data-dir /tmp/back --config palimpsest.toml"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are shown by --help as they are"
)]
pub(super) struct Migrate {
    /// The store that has the sessions
    #[arg(long, value_name = "STORE")]
    from: EngineArg,
    /// The store that gets them
    #[arg(long, value_name = "STORE")]
    to: EngineArg,
    /// Where the embedded store's results are, such as s3://bucket/prefix [default: in data_dir]
    #[arg(long, value_name = "URL")]
    embedded_blobs: Option<String>,
    /// Move the sessions of this project alone
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// What becomes of sessions that were deleted in one of the two stores since they were moved
    #[arg(long, value_enum, default_value = "refuse", value_name = "HOW")]
    deletions: HowDeleted,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HowDeleted {
    /// Nothing is moved, and they are named
    Refuse,
    /// They are deleted in the other store too
    Mirror,
    /// They stay where they are, and those of the source are moved again
    Keep,
}

impl From<HowDeleted> for Deletions {
    fn from(how: HowDeleted) -> Self {
        match how {
            HowDeleted::Refuse => Self::Refuse,
            HowDeleted::Mirror => Self::Mirror,
            HowDeleted::Keep => Self::Keep,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineArg {
    /// The embedded one, in the data folder
    Sled,
    /// A database, at store.postgres.url
    Postgres,
}

impl Migrate {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.migrate())
    }

    async fn migrate(self) -> anyhow::Result<()> {
        if self.from == self.to {
            bail!(
                "--from and --to name the same store: say sled for one and postgres for the other"
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
        // Where both have one place for their results, it becomes the target's: the source cannot write there any more.
        let owner = Owner {
            takes_over_from: Some(from_log.store_id().await?),
            restored_from: None,
            ..Owner::of(&*to_log).await?
        };
        let to_blobs = to_blobs.bind(owner);
        to_blobs.verify().await?;
        // A deletion that is mirrored there removes files. A place that has become the target's refuses it.
        let from_blobs = from_blobs.bind(Owner::of(&*from_log).await?);
        let side = |log: &Arc<dyn SessionLog>, blobs| {
            let side = StoreSide::new(Arc::clone(log), Arc::new(blobs), Arc::clone(&clock));
            side.map_err(|error| anyhow!("{error}"))
        };
        let (from, to) = (side(&from_log, from_blobs)?, side(&to_log, to_blobs)?);
        let record = MigrationJournal::open(&config.data_dir, self.from == EngineArg::Sled).await?;
        let how = self.deletions.into();
        let moved = migrate((&from, &to), project.as_ref(), clock.now(), &record, how).await;
        drop((from, to));
        from_log.close().await?;
        to_log.close().await?;
        let moved = moved?;
        print(&format!(
            "{} sessions are in both stores, and each gives the same views in both. Moved now: {} sessions, \
             {} events, {} stored files, {}. Deleted now, as in the other store: {}.\n",
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
) -> Result<(Arc<dyn SessionLog>, Blobs), BoxError> {
    match engine {
        EngineArg::Sled => {
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
