//! `palimpsest import`: brings transcripts of other programs, and our own exports, into a server.

mod atomic;
mod report;
mod upload;
mod view_change;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use palimpsest_transcripts::import;

use self::report::{FileReport, SessionReport};
use super::client::{Remote, block_on};
use super::files::{self, Format};
use super::terminal;

/// How many files are brought in at a time.
const PARALLEL_FILES: usize = 4;

/// Bring transcripts into a server, one session for each conversation
#[derive(Debug, Args)]
#[command(
    after_help = "A session is named after its file. Importing a file again changes nothing: messages
keep their ids.

What `palimpsest export` wrote comes in whole or not at all. docs/export.md lists the restored data.

Examples:
  palimpsest import --format claude-code ~/.claude/projects/my-project/*.jsonl
  palimpsest import --format openai conversations.jsonl --project demo --json
  palimpsest import --format palimpsest my-session.jsonl --session my-session-again"
)]
pub(super) struct Import {
    /// How the files are written
    #[arg(long)]
    format: Format,
    /// The id of the session, for a single file that holds one [default: the file's name]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
    /// Files, or folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Import {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = files::find(&self.paths)?;
        if self.session.is_some() && files.len() > 1 {
            bail!(
                "--session names one session, and there are {} files",
                files.len()
            );
        }
        // Before a server is needed: a program in place of a transcript is refused at once.
        files::refuse_binary(&files)?;
        let reports = block_on(self.import_files(files))?;
        report::show(&reports, self.json)?;
        let failed = reports
            .iter()
            .filter(|report| report.failure.is_some())
            .count();
        if failed > 0 {
            bail!(
                "{failed} of {} files could not be brought in",
                reports.len()
            );
        }
        let mut sessions = reports.iter().flat_map(|report| &report.sessions);
        if sessions.all(SessionReport::is_empty) {
            bail!(
                "no message was found in {} files: is --format right?",
                reports.len()
            );
        }
        Ok(())
    }

    async fn import_files(&self, files: Vec<PathBuf>) -> anyhow::Result<Vec<FileReport>> {
        let clients = self.remote.connect().await?;
        let total: u64 = files
            .iter()
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
                progress.set_message(terminal::line(&shown).into_owned());
                // Parsing megabytes must not hold up the uploads of other files.
                let task = tokio::task::spawn_blocking(move || {
                    let imported = import::read(format.into(), &bytes);
                    upload::plan(&project, (&file, session.as_deref()), &imported)
                });
                let plan = task.await?;
                let report = upload::run(clients, plan).await;
                progress.inc(size);
                anyhow::Ok(report)
            }
        });
        let mut reports: Vec<FileReport> = Vec::new();
        let mut done = futures::stream::iter(work).buffer_unordered(PARALLEL_FILES);
        while let Some(report) = done.next().await {
            reports.push(report?);
        }
        progress.finish_and_clear();
        reports.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(reports)
    }
}
