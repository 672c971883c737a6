//! `palimpsest backup`: everything that a running server has stored, somewhere else.

mod create;

use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use palimpsest_engine::backup;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_store::archive::Archive;

use self::create::{BackupReport, create_backup};
use super::client::{Remote, block_on};
use super::output::{bytes, number, print, print_json, print_line};

/// Back up a running server, upon the last backup if there is one
#[derive(Debug, Args)]
#[command(
    after_help = "The server goes on meanwhile. Each session is taken at the revision that is durable when it is
read, with every stored result that its events name. Only what is new since the last backup in the
same place is read and written. docs/backup.md says more.

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
    /// The folder or the bucket (s3://bucket/prefix) that holds the backups
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Read everything anew instead of what is new alone
    #[arg(long)]
    full: bool,
    /// Afterwards remove all backups but so many, and what only they had
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// List the backups that there are, and take none
    #[arg(long, conflicts_with_all = ["full", "keep"])]
    list: bool,
    /// Print JSON
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
        let place = Archive::open(&self.to)?;
        if self.list {
            return list(&place).await;
        }
        let clients = self.remote.connect().await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let random = IdSource::random(Arc::clone(&clock)).uuid().as_u64_pair().1;
        let named = (clock.now(), random);
        let taken = create_backup(&place, clients.admin, named, self.full).await;
        let taken = taken.context("there is no new backup; those from before are as they were")?;
        report(&taken, self.json)?;
        for (session, file) in &taken.damaged {
            report_damaged(session, file);
        }
        if let Some(keep) = self.keep {
            let pruned = backup::prune(&place, keep as usize).await?;
            if !self.json {
                print(&format!(
                    "{} older backups and {} files that only they had are removed.\n",
                    number(pruned.backups),
                    number(pruned.files)
                ))?;
            }
        }
        Ok(())
    }
}

/// On standard error, so that a job that only keeps errors keeps this.
#[expect(clippy::print_stderr, reason = "it is the command's own output")]
fn report_damaged(session: &str, file: &str) {
    eprintln!(
        "The backup lacks the stored result {file} of {session}: the server's copy is damaged, and no earlier backup here \
         has it. palimpsest verify-store --contents lists all of them."
    );
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
    let upon = match &taken.base {
        Some(base) => format!("upon {base}"),
        None => "by itself".to_owned(),
    };
    print(&format!(
        "{}, {upon}: {} sessions, {} of them with something new, {} new results, {} written.\n",
        taken.id,
        number(taken.sessions),
        number(taken.changed),
        number(taken.results),
        bytes(taken.bytes)
    ))
}

async fn list(place: &Archive) -> anyhow::Result<()> {
    for id in backup::list(place).await? {
        print_line(&id)?;
    }
    Ok(())
}
