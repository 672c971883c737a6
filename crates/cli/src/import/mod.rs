//! `palimpsest import`: imports exports of Palimpsest and transcripts of other programs into a server.

mod atomic;
mod removed_messages;
mod report;
mod upload;
mod view_change;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};

use self::report::{FileReport, SessionReport};
use super::client::{Remote, block_on};
use super::escapes;
use super::files::{self, Format};

/// The number of files that are imported at the same time.
const PARALLEL_FILES: usize = 4;

/// Import transcripts into a server, one session per conversation
#[derive(Debug, Args)]
#[command(
    after_help = "A session gets the name of its file. A second import of the same file changes nothing, because \
messages keep their ids. An export of Palimpsest is imported completely or not at all; \
docs/export.md lists the restored data.

Examples:
  palimpsest import ~/.claude/projects/my-project/*.jsonl
  palimpsest import conversations.jsonl --project demo --json
  palimpsest import my-session.jsonl --session my-session-again"
)]
pub(super) struct Import {
    /// Transcript files, or folders with such files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Id of the session, for a single file with one session [default: the name of the file]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Import {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = files::find(&self.paths)?;
        if self.session.is_some() && files.len() > 1 {
            bail!(
                "--session is for a single file, but {} files were found: import one file, or remove --session",
                files.len()
            );
        }
        files::require_different_sessions(&files)?;
        // A binary file is rejected before the command connects to the server.
        files::reject_binary(&files)?;
        let reports = block_on(self.import_files(files))?;
        report::show(&reports, self.json)?;
        let failed = reports
            .iter()
            .filter(|report| report.failure.is_some())
            .count();
        if failed > 0 {
            bail!(
                "{failed} of {} files were not imported: the report above has the reasons",
                reports.len()
            );
        }
        let mut sessions = reports.iter().flat_map(|report| &report.sessions);
        if sessions.all(SessionReport::is_empty) {
            bail!(
                "no message was found in {} files: check --format",
                reports.len()
            );
        }
        Ok(())
    }

    async fn import_files(&self, files: Vec<PathBuf>) -> anyhow::Result<Vec<FileReport>> {
        let clients = self.remote.connect().await?;
        let total: u64 = files
            .iter()
            // The sum is for the progress bar only. The read of the file reports an error.
            .filter_map(|file| file.metadata().ok())
            .map(|metadata| metadata.len())
            .sum();
        let style = ProgressStyle::with_template(
            "{bar:40.cyan} {bytes}/{total_bytes} ({bytes_per_sec})  {wide_msg}",
        )?;
        let progress = Arc::new(ProgressBar::new(total).with_style(style));
        let work = files.into_iter().map(|file| {
            let (clients, progress) = (clients.clone(), Arc::clone(&progress));
            let (format, project) = (self.format, self.remote.project.clone());
            let session = self.session.clone();
            async move {
                let bytes = tokio::fs::read(&file)
                    .await
                    .with_context(|| format!("cannot read {}", file.display()))?;
                let size = bytes.len() as u64;
                let shown = file.display().to_string();
                progress.set_message(escapes::line(&shown).into_owned());
                // Parsing takes processor time, so it must not block the thread of the uploads.
                let task = tokio::task::spawn_blocking(move || {
                    let imported = format.read(&bytes);
                    upload::plan(&project, (&file, session.as_deref()), &imported)
                });
                let plan = task.await?;
                let report = upload::run(clients, plan).await;
                progress.inc(size);
                anyhow::Ok(report)
            }
        });
        let mut reports: Vec<FileReport> = Vec::new();
        // A large file does not hold up the files behind it.
        let mut done = futures::stream::iter(work).buffer_unordered(PARALLEL_FILES);
        while let Some(report) = done.next().await {
            reports.push(report?);
        }
        progress.finish_and_clear();
        // Files finish in any order.
        reports.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(reports)
    }
}
