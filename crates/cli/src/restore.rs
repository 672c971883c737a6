//! `palimpsest restore`: a backup as the store of a server.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_engine::backup::{self, RestoreFilter, RestoreReport, RestoreTarget};
use palimpsest_engine::clock::{Clock as _, SystemClock};
use palimpsest_server::{BLOB_FOLDER, LOG_FOLDER};
use palimpsest_store::archive::Archive;
use palimpsest_store::blobs::Blobs;

use super::client::block_on;
use super::output::{bytes, number, print};

/// Restore a backup into an empty data folder, or check that it could be
#[derive(Debug, Args)]
#[command(
    after_help = "Every byte is compared with what the backup says before it counts. The store comes into its place
when it is complete. Start the server on the folder afterwards.

Examples:
  palimpsest restore --from /var/backups/palimpsest --data-dir /var/lib/palimpsest
  palimpsest restore --from s3://bucket/palimpsest --check
  palimpsest restore --from /var/backups/palimpsest --data-dir /tmp/one --session projects/p/sessions/s"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are shown by --help as they are"
)]
pub(super) struct RestoreCommand {
    /// The folder or the bucket that holds the backups
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Which backup [default: the latest]
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// The data folder to make; it must hold no store
    #[arg(long, value_name = "FOLDER", required_unless_present = "check")]
    data_dir: Option<PathBuf>,
    /// Where stored results go, such as s3://bucket/prefix [default: in the data folder]
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// Write into a place that holds stored results already, those of the same sessions
    #[arg(long)]
    keep_blobs: bool,
    /// Restore the sessions of this project alone; may be repeated
    #[arg(long, value_name = "NAME")]
    project: Vec<String>,
    /// Restore this session alone, by its full name; may be repeated
    #[arg(long, value_name = "NAME")]
    session: Vec<String>,
    /// Read the whole backup and compare it with what it says, and restore nothing
    #[arg(long, conflicts_with = "data_dir")]
    check: bool,
}

impl RestoreCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.restore())
    }

    async fn restore(&self) -> anyhow::Result<()> {
        let place = Archive::open(&self.from)?;
        let id = match &self.backup {
            Some(id) => id.clone(),
            None => match backup::latest(&place).await? {
                Some(id) => id,
                None => bail!("there is no backup in {}", self.from),
            },
        };
        let selection = self.selection()?;
        let Some(data_dir) = &self.data_dir else {
            let found = backup::check(&place, &id, &selection).await?;
            return print_report(&id, "is whole", found);
        };
        let location = match &self.blobs {
            Some(url) => url.clone(),
            None => data_dir.join(BLOB_FOLDER).to_string_lossy().into_owned(),
        };
        let target = RestoreTarget {
            log: data_dir.join(LOG_FOLDER),
            blobs: Blobs::open(&location)?,
            blobs_at: location,
            keep_blobs: self.keep_blobs,
            now: SystemClock::new().now(),
        };
        let restored = backup::restore(&place, &id, &selection, target).await?;
        let what = format!("is restored into {}", data_dir.display());
        print_report(&id, &what, restored)
    }

    fn selection(&self) -> anyhow::Result<RestoreFilter> {
        let project = |name: &String| {
            ProjectId::new(name).map_err(|error| anyhow!("the project {name} {error}"))
        };
        let session = |name: &String| {
            SessionKey::parse(name).map_err(|error| anyhow!("the session {name} {error}"))
        };
        Ok(RestoreFilter {
            projects: self.project.iter().map(project).collect::<Result<_, _>>()?,
            sessions: self.session.iter().map(session).collect::<Result<_, _>>()?,
        })
    }
}

fn print_report(id: &str, what: &str, found: RestoreReport) -> anyhow::Result<()> {
    let damaged = match found.damaged {
        0 => String::new(),
        some => format!(
            " {} more were damaged on the server when the backup was taken, and are not in it.",
            number(some)
        ),
    };
    print(&format!(
        "{id} {what}: {} sessions with {} events, {} stored results, {} compared.{damaged}\n",
        number(found.sessions),
        number(found.events),
        number(found.results),
        bytes(found.bytes)
    ))
}
