//! `palimpsest backup`: copies all data of a running server to a folder or bucket.

mod create;

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use palimpsest_engine::backup;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_store::archive::Archive;
use palimpsest_store::blobs::local_folder;
use tonic::Code;

use self::create::{BackupReport, CreateBackupError, create_backup};
use super::client::{Remote, block_on};
use super::health::wait_until_ready;
use super::output::{bytes, note, number, print, print_json, print_line};

/// Back up a running server, with the changes since the last backup
#[derive(Debug, Args)]
#[command(
    after_help = "The server continues to serve. Each session is copied at the revision that is durable when it is read, \
with every stored result that its events name. Only changes since the last backup in the same place are \
read and written. docs/backup.md describes backups.

Examples:
  palimpsest backup --to /var/backups/palimpsest
  palimpsest backup --to s3://bucket/palimpsest --keep 14
  palimpsest backup --to /var/backups/palimpsest --list"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are shown by --help as they are"
)]
pub(super) struct BackupCommand {
    /// Folder or bucket (s3://bucket/prefix) of the backups
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Read everything instead of the changes since the last backup
    #[arg(long)]
    full: bool,
    /// Number of backups to keep; older ones are removed afterwards, with the files that only they use
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// List the complete backups instead of creating one
    #[arg(long, conflicts_with_all = ["full", "keep"])]
    list: bool,
    /// Wait for at most this number of seconds until the server is ready
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        conflicts_with = "list"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl BackupCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.take())
    }

    async fn take(&self) -> anyhow::Result<()> {
        if self.list {
            return list(&open_existing("--to", &self.to)?, self.json).await;
        }
        let place = Archive::open(&self.to)?;
        if self.wait > 0 {
            wait_until_ready(&self.remote, self.wait).await?;
        }
        let clients = self.remote.connect().await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        // The random part keeps the names of two backups apart that start in the same millisecond.
        let random = IdSource::random(Arc::clone(&clock)).uuid().as_u64_pair().1;
        let named = (clock.now(), random);
        let taken = create_backup(&place, clients.admin, named, self.full).await;
        let taken = taken.map_err(|error| match error {
            // The server advises to name a project, and a backup has no such option.
            CreateBackupError::Server(call) if call.code() == Code::PermissionDenied => anyhow!(
                "a call to the server failed: the credential does not have the right admin in every project. A backup \
                 contains all projects, so pass a key that `palimpsest keys create --project '*' --right admin` created"
            ),
            error => error.into(),
        });
        let taken = taken.context("no backup was created, and earlier backups are unchanged")?;
        report(&taken, self.json)?;
        for (session, file) in &taken.damaged {
            report_missing(session, file);
        }
        // Older backups are removed only after the new one is complete, so a failed backup removes none.
        if let Some(keep) = self.keep {
            let pruned = backup::prune(&place, keep as usize).await?;
            if !self.json {
                print(&format!(
                    "Removed older backups: {}. Removed files that only they used: {}.\n",
                    number(pruned.backups),
                    number(pruned.files)
                ))?;
            }
        }
        Ok(())
    }
}

/// Opens the place of existing backups for a command that only reads it.
///
/// [`Archive::open`] creates a missing folder. A folder that a misspelled `flag` created would look like a place whose
/// backups are lost.
pub(super) fn open_existing(flag: &str, location: &str) -> anyhow::Result<Archive> {
    if let Some(folder) = local_folder(location)?
        && !folder.is_dir()
    {
        bail!(
            "the folder {} does not exist: check {flag}",
            folder.display()
        );
    }
    Ok(Archive::open(location)?)
}

/// Reports a missing result on standard error, so that a job that logs only errors logs it.
fn report_missing(session: &str, file: &str) {
    note(&format!(
        "The backup lacks the stored result {file} of {session}: the copy of the server is damaged or lost, and no \
         earlier backup has one. `palimpsest verify-store --contents` lists all such results."
    ));
}

fn report(taken: &BackupReport, json: bool) -> anyhow::Result<()> {
    if json {
        let line = serde_json::json!({
            "id": taken.id,
            "base": taken.base,
            "sessions": taken.sessions,
            "changed": taken.changed,
            "gone": taken.gone,
            "results": taken.results,
            "damaged_results": taken.damaged.len(),
            "bytes": taken.bytes,
        });
        return print_json(&line.to_string());
    }
    let base = match &taken.base {
        Some(base) => format!("based on {base}"),
        None => "complete".to_owned(),
    };
    print(&format!(
        "{}, {base}: {} sessions, {} changed, {} new results, {} written.\n",
        taken.id,
        number(taken.sessions),
        number(taken.changed),
        number(taken.results),
        bytes(taken.bytes)
    ))
}

async fn list(place: &Archive, json: bool) -> anyhow::Result<()> {
    let ids = backup::list(place).await?;
    if json {
        return print_json(&serde_json::json!({ "backups": ids }).to_string());
    }
    for id in &ids {
        print_line(id)?;
    }
    if ids.is_empty() {
        note("No backup exists in this place: check --to");
    }
    Ok(())
}
