//! `palimpsest restore`: restores a backup into a data folder.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_engine::backup::{
    self, ManifestReader, RestoreFilter, RestoreReport, RestoreTarget,
};
use palimpsest_engine::clock::{Clock as _, SystemClock};
use palimpsest_server::{BLOB_FOLDER, LOG_FOLDER};
use palimpsest_store::archive::Archive;
use palimpsest_store::blobs::Blobs;

use super::backup::open_existing;
use super::client::block_on;
use super::output::{bytes, number, print};

/// Restore a backup into an empty data folder, or check a backup
#[derive(Debug, Args)]
#[command(
    after_help = "Every byte is compared with the checksums of the backup. The store is moved into its place when it is \
complete. Start the server on the folder afterwards.

Examples:
  palimpsest restore --from /var/backups/palimpsest --data-dir /var/lib/palimpsest
  palimpsest restore --from s3://bucket/palimpsest --check
  palimpsest restore --from /var/backups/palimpsest --data-dir /tmp/one --project support"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are shown by --help as they are"
)]
pub(super) struct RestoreCommand {
    /// Folder or bucket (s3://bucket/prefix) of the backups
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Name of the backup [default: the latest]
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// Data folder to create; it must not contain a store
    #[arg(long, value_name = "FOLDER", required_unless_present = "check")]
    data_dir: Option<PathBuf>,
    /// Folder or bucket for stored results, such as s3://bucket/prefix [default: in the data folder]
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// Write to a place that already contains stored results of the same sessions
    #[arg(long)]
    keep_blobs: bool,
    /// Restore only the sessions of this project; repeatable
    #[arg(long, value_name = "NAME")]
    project: Vec<String>,
    /// Restore only this session, by its full name; repeatable
    #[arg(long, value_name = "NAME")]
    session: Vec<String>,
    /// Read the whole backup and compare it with its checksums; nothing is restored
    #[arg(long, conflicts_with = "data_dir")]
    check: bool,
}

impl RestoreCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.restore())
    }

    async fn restore(&self) -> anyhow::Result<()> {
        let place = open_existing("--from", &self.from)?;
        let id = match &self.backup {
            Some(id) => id.clone(),
            None => match backup::latest(&place).await? {
                Some(id) => id,
                None => bail!("no backup exists in {}: check --from", self.from),
            },
        };
        let selection = self.selection()?;
        // Before anything is created, because the corrected command would otherwise find a store or a folder.
        check_selection(&place, &id, &selection).await?;
        let Some(data_dir) = &self.data_dir else {
            let found = backup::check(&place, &id, &selection).await?;
            return print_report(&id, "is complete", found);
        };
        // The location is stored with an interrupted restoration, so it is kept as text too.
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

/// Returns an error if the backup does not exist, or if a selected project or session is not in it.
async fn check_selection(
    place: &Archive,
    id: &str,
    selection: &RestoreFilter,
) -> anyhow::Result<()> {
    let mut manifest = ManifestReader::open(place, id).await?;
    let mut projects: HashSet<&ProjectId> = selection.projects.iter().collect();
    let mut sessions: HashSet<&SessionKey> = selection.sessions.iter().collect();
    while !(projects.is_empty() && sessions.is_empty()) {
        let Some(entry) = manifest.next().await? else {
            break;
        };
        if let Some(key) = entry.key() {
            projects.remove(&key.project);
            sessions.remove(&key);
        }
    }
    let projects = selection.projects.iter().filter(|it| projects.contains(it));
    let sessions = selection.sessions.iter().filter(|it| sessions.contains(it));
    let missing: Vec<String> = projects
        .map(|project| format!("the project {project}"))
        .chain(sessions.map(|session| format!("the session {session}")))
        .collect();
    if !missing.is_empty() {
        bail!(
            "the backup {id} does not contain {}: check --project and --session",
            missing.join(" and ")
        );
    }
    Ok(())
}

fn print_report(id: &str, what: &str, found: RestoreReport) -> anyhow::Result<()> {
    let damaged = match found.damaged {
        0 => String::new(),
        count => format!(
            " {} more results are missing, because they were damaged or lost on the server during the backup.",
            number(count)
        ),
    };
    print(&format!(
        "{id} {what}: {} sessions with {} events, {} stored results, {} checked.{damaged}\n",
        number(found.sessions),
        number(found.events),
        number(found.results),
        bytes(found.bytes)
    ))
}
